package choose_test

import (
	"testing"

	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/router/choose"
)

func TestAgain(t *testing.T) {
	self := func(id string, twist ...func(*choose.Worker)) choose.Worker {
		return worker(id, append([]func(*choose.Worker){func(w *choose.Worker) { w.SelfPrefill = true }}, twist...)...)
	}
	with := func(f func(*choose.Worker)) func(*choose.Worker) { return f }
	down := with(func(w *choose.Worker) { w.Up = false })
	class := with(func(w *choose.Worker) { w.Numerics = "n2" })
	weights := with(func(w *choose.Worker) { w.ModelRevision = "w2" })
	small := with(func(w *choose.Worker) { w.Limit = 50 })
	never := with(func(w *choose.Worker) { w.SelfPrefill = false })
	busy := with(func(w *choose.Worker) { w.Queued = 1 })
	running := with(func(w *choose.Worker) { w.Sequences = 2 })
	open := with(func(w *choose.Worker) { w.Open = 2 })
	full := with(func(w *choose.Worker) { w.Free = 26 }) // 2 are needed, and a quarter of 100 must stay
	just := with(func(w *choose.Worker) { w.Free = 27 })
	for _, c := range []struct {
		why     string
		decodes []choose.Worker
		tokens  uint32
		waits   bool
		want    string // worker or kind
	}{
		{"the same worker, other pages", []choose.Worker{self("d")}, 100, true, "d"},
		{"another one, when there is one", []choose.Worker{self("d"), self("e")}, 100, true, "e"},
		{"another one, in any order", []choose.Worker{self("e"), self("d")}, 100, true, "e"},
		{"the roomier of two others", []choose.Worker{self("d"), self("e", just), self("f")}, 100, true, "f"},
		{"the other one is down", []choose.Worker{self("d"), self("e", down)}, 100, true, "d"},
		{"the other one is of another class", []choose.Worker{self("d"), self("e", class)}, 100, true, "d"},
		{"the other one has other weights", []choose.Worker{self("d"), self("e", weights)}, 100, true, "d"},
		{"the other one is too small", []choose.Worker{self("d"), self("e", small)}, 100, true, "d"},
		{"the other one computes no prompts", []choose.Worker{self("d"), self("e", never)}, 100, true, "d"},
		{"a prompt of one token needs no prefill", []choose.Worker{self("d"), self("e", never)}, 1, true, "e"},
		{"the other one is busy: it waits", []choose.Worker{self("d"), self("e", busy)}, 100, true, "exhausted"},
		{"the other one is busy, and it must be now", []choose.Worker{self("d"), self("e", busy)}, 100, false, "e"},
		{"two sequences run", []choose.Worker{self("d", running)}, 100, true, "exhausted"},
		{"two of this router's calls run", []choose.Worker{self("d", open)}, 100, true, "exhausted"},
		{"the pool is nearly full", []choose.Worker{self("d", full)}, 100, true, "exhausted"},
		{"the pool has just enough", []choose.Worker{self("d", just)}, 100, true, "d"},
		{"nobody of the class", []choose.Worker{self("d", class)}, 100, false, "not_found"},
		{"nobody", nil, 100, false, "not_found"},
	} {
		r, err := choose.Again(choose.Fleet{Decode: c.decodes, Prefill: []choose.Worker{worker("p")}}, model,
			choose.Replay{Tokens: c.tokens, MaxNew: 10, Numerics: "n", Decode: "d", Waits: c.waits})
		got := r.Decode.ID
		if err != nil {
			got = errs.KindOf(err).String()
		}
		if got != c.want {
			t.Errorf("%s: %q (%v), want %q", c.why, got, err, c.want)
		}
		if err == nil && (r.Prefill != nil || r.Mover != meshv1.Mover_MOVER_NONE || r.Why != choose.UnsplitReplay || r.MaxNew != 10) {
			t.Errorf("%s: route %+v", c.why, r)
		}
	}
}
