package scripted

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	prefillv1 "leasehold.dev/protos/gen/leasehold/prefill/v1"
	"leasehold.dev/protos/proof"
)

func beat() <-chan time.Time { return time.After(time.Second) }

// Prefill is a prefill worker. Its funcs are set before the first request.
type Prefill struct {
	prefillv1.UnimplementedPrefillServiceServer
	*status
	Addr  string
	Stop  func()                                               // kills the process
	Calls atomic.Int32                                         // of Run
	Live  atomic.Int32                                         // calls of Run that have not ended
	Twist func(*meshv1.PrefillVerdict)                         // changes the verdict that the router gets
	Do    func(ctx context.Context, a *meshv1.Admission) error // runs before the answer; an error refuses
	After func(ctx context.Context, a *meshv1.Admission) error // runs once D has the pages; an error is all that the router hears
	m     *Mesh
}

// NewPrefill starts one.
func (m *Mesh) NewPrefill(s *meshv1.WorkerStatus) *Prefill {
	p := &Prefill{status: newStatus(s), m: m}
	p.Addr, p.Stop = m.server("prefill", s.Id, func(g *grpc.Server) { prefillv1.RegisterPrefillServiceServer(g, p) })
	return p
}

// Watch sends the status.
func (p *Prefill) Watch(_ *prefillv1.WatchRequest, s grpc.ServerStreamingServer[prefillv1.WatchResponse]) error {
	return p.watch(s.Context(), func(w *meshv1.WorkerStatus) error { return s.Send(&prefillv1.WatchResponse{Status: w}) })
}

// Run checks the ticket and answers with what was admitted.
func (p *Prefill) Run(ctx context.Context, r *prefillv1.RunRequest) (*prefillv1.RunResponse, error) {
	p.Calls.Add(1)
	p.Live.Add(1)
	defer p.Live.Add(-1)
	a, err := proof.Open(p.m.Public, r.Admission, r.TokenIds)
	if err != nil {
		return nil, err
	}
	to := p.m.handover(a.Id)
	if p.Do != nil {
		if err := p.Do(ctx, a); err != nil {
			select {
			case to <- handover{err: err}:
			default: // D was told already
			}
			p.m.record(a.PrefillBroker, &brokerv1.LeaseRecord{AdmissionId: a.Id, Role: brokerv1.Role_ROLE_SOURCE, Tenant: a.Tenant, Code: uint32(grpcstatus.Code(errs.ToStatus(err))), Mover: a.Mover})
			return nil, err
		}
	}
	v := &meshv1.PrefillVerdict{
		AdmissionId: a.Id, LeaseHash: proof.LeaseHash(append([]byte("source"), a.Id...)), Instance: Hash(a.PrefillBroker)[:16],
		Epoch: 7, ModelRevision: a.ModelRevision, LayoutHash: Hash("layout"),
		PromptDigest: proof.PromptDigest(a.Nonce, a.Tenant, a.ModelRevision, r.TokenIds),
		Rows:         a.PromptTokens - 1, Pages: proof.Pages(a.PromptTokens, 0), Root: Hash("root"), ComputeUs: 1000,
	}
	p.m.record(a.PrefillBroker, &brokerv1.LeaseRecord{AdmissionId: a.Id, Role: brokerv1.Role_ROLE_SOURCE, Tenant: a.Tenant, Worker: a.Prefill,
		LeaseHash: v.LeaseHash, Epoch: v.Epoch, Rows: v.Rows, Pages: v.Pages, Reserved: v.Pages, PromptDigest: v.PromptDigest, Root: v.Root,
		LayoutHash: v.LayoutHash, ModelRevision: v.ModelRevision, Mover: a.Mover})
	to <- handover{verdict: v}
	if p.After != nil {
		if err := p.After(ctx, a); err != nil {
			return nil, err
		}
	}
	out := proto.Clone(v).(*meshv1.PrefillVerdict)
	if p.Twist != nil {
		p.Twist(out)
	}
	return &prefillv1.RunResponse{Verdict: out}, nil
}

// Decode is a decode worker that answers with Text, a token a word.
type Decode struct {
	decodev1.UnimplementedDecodeServiceServer
	*status
	Addr    string
	Stop    func()
	Calls   atomic.Int32
	Live    atomic.Int32
	Text    []string
	Reason  decodev1.FinishReason
	Twist   func(*meshv1.DecodeVerdict)
	End     func(*decodev1.Finished)                                        // changes the last word
	Before  func(ctx context.Context, a *meshv1.Admission) error            // before Admitted
	Wait    func(ctx context.Context, a *meshv1.Admission) error            // after Admitted, before P's word
	Step    func(ctx context.Context, a *meshv1.Admission, i int) error     // before the token i, and after the last with i = len(Text)
	Tokens  func(s *decodev1.Sampling, i int, text string) *decodev1.Tokens // nil: the word
	Rewrite func(error) error                                               // what D makes of P's failure; nil: passes it on
	m       *Mesh
}

// NewDecode starts one.
func (m *Mesh) NewDecode(s *meshv1.WorkerStatus) *Decode {
	d := &Decode{status: newStatus(s), m: m, Text: []string{"The", " sky", " is", " blue"}, Reason: decodev1.FinishReason_FINISH_REASON_STOP}
	d.Addr, d.Stop = m.server("decode", s.Id, func(g *grpc.Server) { decodev1.RegisterDecodeServiceServer(g, d) })
	return d
}

// Watch sends the status.
func (d *Decode) Watch(_ *decodev1.WatchRequest, s grpc.ServerStreamingServer[decodev1.WatchResponse]) error {
	return d.watch(s.Context(), func(w *meshv1.WorkerStatus) error { return s.Send(&decodev1.WatchResponse{Status: w}) })
}

// Generate answers rightly unless told otherwise.
func (d *Decode) Generate(r *decodev1.GenerateRequest, s grpc.ServerStreamingServer[decodev1.GenerateResponse]) error {
	d.Calls.Add(1)
	d.Live.Add(1)
	defer d.Live.Add(-1)
	ctx := s.Context()
	a, err := proof.Open(d.m.Public, r.Admission, r.TokenIds)
	if err != nil {
		return err
	}
	if d.Before != nil {
		if err := d.Before(ctx, a); err != nil {
			return err
		}
	}
	lease := proof.LeaseHash(append([]byte("destination"), a.Id...))
	v := &meshv1.DecodeVerdict{AdmissionId: a.Id, LeaseHash: lease, ModelRevision: a.ModelRevision, LayoutHash: Hash("layout"),
		PromptDigest: proof.PromptDigest(a.Nonce, a.Tenant, a.ModelRevision, r.TokenIds), Mover: a.Mover, Instance: Hash(a.DecodeBroker)[:16], Epoch: 8}
	split := a.Mover != meshv1.Mover_MOVER_NONE
	if split {
		v.ExpectedPages = proof.Pages(a.PromptTokens, 0)
	}
	send := func(e *decodev1.GenerateResponse) error { return s.Send(e) }
	if err := send(&decodev1.GenerateResponse{Event: &decodev1.GenerateResponse_Admitted{Admitted: &decodev1.Admitted{
		LeaseHash: lease, Pages: (a.PromptTokens + a.MaxNewTokens - 1 + 63) / 64, ExpectedPages: v.ExpectedPages}}}); err != nil {
		return err
	}
	if d.Wait != nil {
		if err := d.Wait(ctx, a); err != nil {
			return err
		}
	}
	v.Unsplit = !split
	if split {
		select {
		case h := <-d.m.handover(a.Id):
			if h.err != nil && d.Rewrite != nil {
				return d.Rewrite(h.err)
			}
			if h.err != nil {
				return h.err
			}
			p := h.verdict
			v.SourceLeaseHash, v.SourceInstance, v.SourceEpoch = p.LeaseHash, p.Instance, p.Epoch
			v.Rows, v.Pages, v.Root = p.Rows, p.Pages, p.Root
			if a.Mover == meshv1.Mover_MOVER_GRPC {
				v.BytesMoved = uint64(p.Pages) * 4096
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	d.m.record(a.DecodeBroker, recorded(a, v))
	if d.Twist != nil {
		d.Twist(v)
	}
	if err := send(&decodev1.GenerateResponse{Event: &decodev1.GenerateResponse_Verdict{Verdict: v}}); err != nil {
		return err
	}
	return d.answer(ctx, a, r.Sampling, send)
}

// recorded is what D's broker keeps.
func recorded(a *meshv1.Admission, v *meshv1.DecodeVerdict) *brokerv1.LeaseRecord {
	r := &brokerv1.LeaseRecord{AdmissionId: a.Id, Role: brokerv1.Role_ROLE_DESTINATION, Tenant: a.Tenant, Worker: a.Decode, LeaseHash: v.LeaseHash, Epoch: 3,
		Rows: v.Rows, Pages: v.Pages, Reserved: (a.PromptTokens + a.MaxNewTokens - 1 + 63) / 64, PromptDigest: v.PromptDigest, Root: v.Root,
		SourceLeaseHash: v.SourceLeaseHash, SourceInstance: v.SourceInstance, SourceEpoch: v.SourceEpoch, LayoutHash: v.LayoutHash,
		ModelRevision: v.ModelRevision, Mover: a.Mover}
	if v.Unsplit {
		r.Role = brokerv1.Role_ROLE_SOLO
	}
	return r
}

func (d *Decode) answer(ctx context.Context, a *meshv1.Admission, how *decodev1.Sampling, send func(*decodev1.GenerateResponse) error) error {
	digest, count := sha256.New(), uint32(0)
	for i := 0; i <= len(d.Text); i++ {
		if d.Step != nil {
			if err := d.Step(ctx, a, i); err != nil {
				if errors.Is(err, ErrSilence) {
					return nil
				}
				return err
			}
		}
		if i == len(d.Text) {
			break
		}
		t := &decodev1.Tokens{Text: d.Text[i], Tokens: []*decodev1.TokenInfo{{Id: int32(100 + i)}}}
		if d.Tokens != nil {
			t = d.Tokens(how, i, d.Text[i])
		}
		for _, one := range t.Tokens {
			digest.Write(binary.LittleEndian.AppendUint32(nil, uint32(one.Id)))
			count++
		}
		if err := send(&decodev1.GenerateResponse{Event: &decodev1.GenerateResponse_Tokens{Tokens: t}}); err != nil {
			return err
		}
	}
	f := &decodev1.Finished{Reason: d.Reason, PromptTokens: a.PromptTokens, CompletionTokens: count, OutputDigest: digest.Sum(nil),
		LogitDigest: Hash("logits"), GuardsOn: true, NumericsClass: "ref-1"}
	if d.End != nil {
		d.End(f)
	}
	return send(&decodev1.GenerateResponse{Event: &decodev1.GenerateResponse_Finished{Finished: f}})
}

// ErrSilence is what Step returns to end the stream with status OK and without Finished.
var ErrSilence = errs.New(errs.Internal, "scripted: the end without a word")
