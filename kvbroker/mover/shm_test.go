package mover

import (
	"bytes"
	"fmt"
	"testing"

	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

func (p *pages) serveShared(s ServerStream) error {
	if _, err := ReceiveOpen(s); err != nil {
		return err
	}
	return ServeShared(s, p, uint32(len(p.from[0])))
}

func share(t *testing.T, p *pages, serve func(ServerStream) error) (*brokerv1.Completion, Moved, error) {
	t.Helper()
	s, err := OpenShared(t.Context(), dial(t, serve), &brokerv1.PullOpen{}, p.pool())
	if err != nil {
		return nil, Moved{}, err
	}
	return receiveAll(s, p)
}

func TestPagesAreCopiedFromTheSendersPool(t *testing.T) {
	for _, n := range []int{1, 2, 9, 2*maxNamed + 1} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			p := newPages(n, 64)
			p.together = n != 2
			c, m, err := share(t, p, p.serveShared)
			if err != nil {
				t.Fatal(err)
			}
			if c.Pages != uint32(n) || m.Pages != uint32(n) || m.Bytes != uint64(n*64) {
				t.Errorf("completion of %d pages, moved %+v", c.Pages, m)
			}
			for i := range p.from {
				if !bytes.Equal(p.from[i], p.to[i]) || p.landed[i] != uint32(i) {
					t.Errorf("page %d differs, or landed out of order: %v", i, p.landed)
				}
			}
		})
	}
}

func TestSharedReceiveFails(t *testing.T) {
	says := func(places ...[]uint32) func(*pages) func(ServerStream) error {
		return func(*pages) func(ServerStream) error {
			return func(s ServerStream) error {
				if _, err := ReceiveOpen(s); err != nil {
					return err
				}
				msgs := []*brokerv1.PullResponse{{Kind: &brokerv1.PullResponse_Attached{Attached: &brokerv1.PullAttached{}}}}
				for _, at := range places {
					msgs = append(msgs, &brokerv1.PullResponse{Kind: &brokerv1.PullResponse_Pages{Pages: &brokerv1.PullPages{First: at[0], Pages: at[1:]}}})
				}
				msgs = append(msgs, &brokerv1.PullResponse{Kind: &brokerv1.PullResponse_Sent{Sent: &brokerv1.PullSent{Pages: 2}}})
				for _, m := range msgs {
					if err := s.SendMsg(m); err != nil {
						return err
					}
				}
				return nil
			}
		}
	}
	for _, tt := range []struct {
		name   string
		pages  func(*pages)
		serve  func(*pages) func(ServerStream) error
		want   errs.Kind
		landed int
	}{
		{"with the sender's own error", func(p *pages) { p.failRead = errs.New(errs.Limit, "P holds 64 tokens") }, nil, errs.Limit, 0},
		{"with the destination's own error", func(p *pages) { p.failPage = errs.New(errs.Stale, "the lease has ended") }, nil, errs.Stale, 1},
		{"when a page is outside of the pool", nil, says([]uint32{0, 3}), errs.Corrupt, 0},
		{"when nothing is named", nil, says([]uint32{0}), errs.Corrupt, 0},
		{"when the second of two is outside of the pool", nil, says([]uint32{0, 2, 3}), errs.Corrupt, 1},
		{"when three are named at once", nil, says([]uint32{0, 2, 1, 0}), errs.Corrupt, 2},
		{"when a place comes twice", nil, says([]uint32{0, 2}, []uint32{0, 2}), errs.Corrupt, 1},
		{"when a place is left out", nil, says([]uint32{1, 1}), errs.Corrupt, 0},
		{"when a place is too many", nil, says([]uint32{0, 2}, []uint32{1, 1}, []uint32{2, 0}), errs.Corrupt, 2},
		{"when all are said to be sent and one is missing", nil, says([]uint32{0, 2}), errs.Corrupt, 1},
		{"when bytes come", nil, func(p *pages) func(ServerStream) error { return p.serve }, errs.Corrupt, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPages(2, 1024)
			if tt.pages != nil {
				tt.pages(p)
			}
			serve := p.serveShared
			if tt.serve != nil {
				serve = tt.serve(p)
			}
			_, _, err := share(t, p, serve)
			if err == nil || errs.KindOf(err) != tt.want || len(p.landed) != tt.landed {
				t.Errorf("Receive = %v (%v) with %d pages copied, want %v and %d", err, errs.KindOf(err), len(p.landed), tt.want, tt.landed)
			}
		})
	}
}

// The name of a page means nothing to a Pull whose bytes come in the stream.
func TestANameIsNoPage(t *testing.T) {
	p := newPages(2, 1024)
	if _, _, err := move(t, p, p.serveShared); errs.KindOf(err) != errs.Corrupt || len(p.landed) != 0 {
		t.Errorf("Receive = %v with %d pages, want Corrupt and none", err, len(p.landed))
	}
}
