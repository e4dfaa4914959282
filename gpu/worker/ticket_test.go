package worker

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

func TestTicket(t *testing.T) {
	g := newRig(t, nil)
	l := &Link[*handle]{Facts: g.facts}
	ids := []int32{1, 2, 3}
	for _, tt := range []struct {
		name   string
		change func(*meshv1.Admission)
		ids    []int32
		forge  func(*meshv1.SignedAdmission)
		side   Side
		kind   errs.Kind
		want   string // "": accepted
	}{
		{name: "a good one for prefill", side: Prefill},
		{name: "a good one for decode", side: Decode},
		{name: "a byte of it changed", forge: func(s *meshv1.SignedAdmission) { s.Admission[3]++ }, kind: errs.Corrupt, want: "signature is wrong"},
		{name: "no signature", forge: func(s *meshv1.SignedAdmission) { s.Signature = nil }, kind: errs.Corrupt, want: "signature is wrong"},
		{name: "other ids", ids: []int32{1, 2, 4}, kind: errs.Corrupt, want: "prompt digest differs"},
		{name: "fewer ids", ids: []int32{1, 2}, kind: errs.Corrupt, want: "2 token ids presented, 3 admitted"},
		{name: "another prefill worker", change: func(a *meshv1.Admission) { a.Prefill = "w1" }, side: Prefill, kind: errs.Invalid, want: `names worker "w1"`},
		{name: "another decode worker", change: func(a *meshv1.Admission) { a.Decode = "w1" }, side: Decode, kind: errs.Invalid, want: `names worker "w1"`},
		{name: "another prefill worker, and decode is asked", change: func(a *meshv1.Admission) { a.Prefill = "w1" }, side: Decode},
		{name: "another broker", change: func(a *meshv1.Admission) { a.PrefillBroker = "b9" }, side: Prefill, kind: errs.Stale, want: `names broker "b9"`},
		{name: "other weights", change: func(a *meshv1.Admission) { a.ModelRevision = bytes.Repeat([]byte{9}, 32) }, kind: errs.Invalid, want: "names model revision 0909"},
		{name: "too late", change: func(a *meshv1.Admission) { a.DeadlineUnixMs = time.Now().Add(-time.Second).UnixMilli() }, kind: errs.Unavailable, want: "its deadline passed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := g.ticket(t, ids, tt.change)
			if tt.forge != nil {
				tt.forge(s)
			}
			presented := ids
			if tt.ids != nil {
				presented = tt.ids
			}
			a, err := g.Ticket(l, tt.side, s, presented)
			switch {
			case tt.want == "" && (err != nil || a.PromptTokens != 3):
				t.Errorf("Ticket = %v, %v, want accepted", a, err)
			case tt.want != "" && (err == nil || errs.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("Ticket = %v, want %v: ...%s...", err, tt.kind, tt.want)
			}
		})
	}
}

func TestTicketRefusesIdsOutsideTheVocabulary(t *testing.T) {
	g := newRig(t, nil)
	l := &Link[*handle]{Facts: g.facts}
	for _, id := range []int32{-1, int32(g.model.Config.Vocab)} {
		ids := []int32{1, id}
		if _, err := g.Ticket(l, Prefill, g.ticket(t, ids, nil), ids); errs.KindOf(err) != errs.Invalid || !strings.Contains(err.Error(), "token 1 of the prompt") {
			t.Errorf("Ticket with id %d = %v, want invalid", id, err)
		}
	}
	ids := []int32{0, int32(g.model.Config.Vocab) - 1}
	if _, err := g.Ticket(l, Prefill, g.ticket(t, ids, nil), ids); err != nil {
		t.Errorf("Ticket with the first and the last id = %v", err)
	}
}
