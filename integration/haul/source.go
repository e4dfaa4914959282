package haul

import (
	"context"
	"io"

	"google.golang.org/protobuf/proto"

	"leasehold.dev/kvbroker/transfer"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// marshal makes a ticket without a signature: who signs and who checks is not what is measured.
func marshal(a *meshv1.Admission) (*meshv1.SignedAdmission, error) {
	b, err := proto.Marshal(a)
	return &meshv1.SignedAdmission{Admission: b}, err
}

// Source is the sending side of one Pull, as a broker's: it implements mover.Source. All pages are sealed, so Next never
// waits. Pages are digested once more after the Completion.
type Source struct {
	of   *Sources
	core *transfer.Source
	next int
}

// Park makes the Source of a Pull.
func (s *Sources) Park(open *brokerv1.PullOpen) (*Source, error) {
	a := &meshv1.Admission{}
	if err := proto.Unmarshal(open.GetAdmission().GetAdmission(), a); err != nil {
		return nil, errs.New(errs.Invalid, "admission: %w", err)
	}
	core, err := transfer.NewSource(s.own, a, open)
	if err != nil {
		return nil, err
	}
	_, rows, pages := core.Want()
	for _, o := range []transfer.Occurrence{
		transfer.Bound{Lease: [16]byte{1}, Epoch: epoch, Pages: pages, Rows: rows, PromptDigest: a.PromptDigest},
		transfer.Finished{Seals: s.seals, Rows: rows},
	} {
		if _, err := core.Step(o); err != nil {
			return nil, err
		}
	}
	return &Source{of: s, core: core}, nil
}

// Next implements mover.Source.
func (s *Source) Next(context.Context) (uint32, error) {
	if s.next == len(s.of.At) {
		return 0, io.EOF
	}
	s.next++
	return uint32(s.next - 1), nil
}

// Read implements mover.Source.
func (s *Source) Read(place, off uint32, dst []byte) error {
	copy(dst, s.of.Place(int(place))[off:])
	return nil
}

// Bytes implements mover.Holder.
func (s *Source) Bytes(place uint32) ([]byte, error) { return s.of.Place(int(place)), nil }

// Complete implements mover.Source.
func (s *Source) Complete(pages uint32, size uint64) (*brokerv1.Completion, error) {
	send, err := s.core.Step(transfer.Received{Pages: pages, Bytes: size})
	return send.Completion, err
}

// Settle implements mover.Source.
func (s *Source) Settle() error {
	for i, want := range s.of.seals {
		f, err := s.of.find(i)
		if err != nil {
			return err
		}
		if f.Digest != want.Digest {
			return errs.New(errs.Corrupt, "page %d changed after it was sealed", i)
		}
	}
	return nil
}
