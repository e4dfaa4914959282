//go:build cgo

package engine_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/gpu/tinymodel"
	"leasehold.dev/model"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

// A step that is invalid changes nothing: the next one gives what it would have given.
func TestInvalidSteps(t *testing.T) {
	eachBackend(t, func(t *testing.T, m *model.Model, o engine.Options) {
		o.MaxTokens, o.MaxSeqs = 8, 3
		b := newBench(t, m, o, 8)
		s, other := b.open(1, 2), b.open(2, 2)
		closed := b.open(3, 1)
		if err := b.e.CloseSeq(closed.id); err != nil {
			t.Fatal(err)
		}
		good := engine.Work{Seq: s.id, Tokens: prompt(1, 2), Want: engine.Last}
		with := func(change func(w *engine.Work)) []engine.Work {
			w := good
			change(&w)
			return []engine.Work{{Seq: other.id, Tokens: prompt(2, 2)}, w}
		}
		for name, work := range map[string][]engine.Work{
			"no work at all":                nil,
			"a sequence that is closed":     with(func(w *engine.Work) { w.Seq = closed.id }),
			"a sequence that never was":     with(func(w *engine.Work) { w.Seq = math.MaxUint32 }),
			"one sequence twice":            {good, good},
			"no tokens":                     with(func(w *engine.Work) { w.Tokens = nil }),
			"a token below the vocabulary":  with(func(w *engine.Work) { w.Tokens = []int32{1, -1} }),
			"a token beyond the vocabulary": with(func(w *engine.Work) { w.Tokens = []int32{1, 49152} }),
			"an unknown want":               with(func(w *engine.Work) { w.Want = 3 }),
			"more tokens than a step takes": with(func(w *engine.Work) { w.Tokens = prompt(1, 7) }),
			"one item over the step's size": {{Seq: s.id, Tokens: prompt(1, 9)}},
			"more work than sequences":      {good, good, good, good},
		} {
			if st, err := b.e.Step(work); errs.KindOf(err) != errs.Invalid || st != nil {
				t.Errorf("%s: Step = %v, %v, want Invalid", name, st, err)
			}
		}
		fresh := newBench(t, m, o, 8)
		f := fresh.open(1, 2)
		want := fresh.step(engine.Work{Seq: f.id, Tokens: prompt(1, 2), Want: engine.Last}).Results[0].LogitDigests
		if d := cmp.Diff(want, b.step(good).Results[0].LogitDigests); d != "" {
			t.Errorf("after invalid steps the sequence differs:\n%s", d)
		}
	})
}

func TestOpenSeqRefusals(t *testing.T) {
	m := tinymodel.Load(t, tinymodel.Options{})
	b := newBench(t, m, engine.Options{Backend: layout.Ref, MaxSeqs: 1}, 4)
	pages, tags := b.grant(1, 2)
	nobody := []pool.Tag{tags[0], pool.MakeTag(pool.Nobody, 5)}
	digest := &pagesum.Digest{1}
	for name, c := range map[string]struct {
		verified uint32
		pages    []uint32
		tags     []pool.Tag
		start    *pagesum.Digest
	}{
		"no pages":                          {0, nil, nil, nil},
		"more pages than tags":              {0, pages, tags[:1], nil},
		"a page beyond the pool":            {0, []uint32{0, 4}, tags, nil},
		"a page twice":                      {0, []uint32{1, 1}, tags, nil},
		"more pages than the pool has":      {0, make([]uint32, 5), make([]pool.Tag, 5), nil},
		"a page granted to nobody":          {0, pages, nobody, nil},
		"more verified rows than pages":     {129, pages, tags, digest},
		"verified rows that overflow":       {math.MaxUint32, pages, tags, digest},
		"a partial page without its digest": {65, pages, tags, nil},
	} {
		if _, err := b.p.OpenSeq(c.verified, c.pages, c.tags, c.start); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: OpenSeq = %v, want Invalid", name, err)
		}
	}
	if _, err := b.p.OpenSeq(128, pages, tags, nil); err != nil {
		t.Errorf("full verified pages: OpenSeq = %v", err)
	}
	if _, err := b.p.OpenSeq(0, pages, tags, nil); errs.KindOf(err) != errs.Exhausted {
		t.Errorf("one sequence too many: OpenSeq = %v, want Exhausted", err)
	}
}

func TestSequencesDieWithTheirPool(t *testing.T) {
	m := tinymodel.Load(t, tinymodel.Options{})
	b := newBench(t, m, engine.Options{Backend: layout.Ref}, 4)
	s := b.open(1, 1)
	second, err := b.e.Attach(b.mem)
	if err != nil {
		t.Fatalf("second Attach: %v", err)
	}
	pages, tags := b.grant(2, 1)
	lives, err := second.OpenSeq(0, pages, tags, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.p.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	if _, err := b.e.Step([]engine.Work{{Seq: s.id, Tokens: prompt(1, 1)}}); errs.KindOf(err) != errs.Invalid {
		t.Errorf("a step over a closed pool = %v, want Invalid", err)
	}
	if err := b.e.CloseSeq(s.id); errs.KindOf(err) != errs.Invalid {
		t.Errorf("CloseSeq of a dead sequence = %v, want Invalid", err)
	}
	if _, err := b.p.OpenSeq(0, s.pages, s.tags, nil); errs.KindOf(err) != errs.Invalid {
		t.Errorf("OpenSeq on a closed pool = %v, want Invalid", err)
	}
	if err := b.p.Close(); errs.KindOf(err) != errs.Invalid {
		t.Errorf("second Close = %v, want Invalid", err)
	}
	if st := b.step(engine.Work{Seq: lives, Tokens: prompt(1, 1), Want: engine.Last}); st.Results[0].Faults != 0 {
		t.Errorf("the other pool's sequence has faults %v", st.Faults)
	}
}

// An id of a closed sequence must not name the next one in its place.
func TestIDsAreNotReusedSoon(t *testing.T) {
	m := tinymodel.Load(t, tinymodel.Options{})
	b := newBench(t, m, engine.Options{Backend: layout.Ref, MaxSeqs: 1}, 4)
	pages, tags := b.grant(1, 1)
	seen := map[engine.SeqID]bool{}
	for range 1000 {
		id, err := b.p.OpenSeq(0, pages, tags, nil)
		if err != nil || seen[id] {
			t.Fatalf("OpenSeq = %d, %v, seen before: %v", id, err, seen[id])
		}
		seen[id] = true
		if err := b.e.CloseSeq(id); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAClosedEngine(t *testing.T) {
	m := tinymodel.Load(t, tinymodel.Options{})
	b := newBench(t, m, engine.Options{Backend: layout.Ref}, 4)
	s := b.open(1, 1)
	b.e.Close()
	b.e.Close()
	for name, err := range map[string]error{
		"Step":      second(b.e.Step([]engine.Work{{Seq: s.id, Tokens: prompt(1, 1)}})),
		"Attach":    second(b.e.Attach(b.mem)),
		"OpenSeq":   second(b.p.OpenSeq(0, s.pages, s.tags, nil)),
		"CloseSeq":  b.e.CloseSeq(s.id),
		"PoolClose": b.p.Close(),
	} {
		if errs.KindOf(err) != errs.Unavailable {
			t.Errorf("%s on a closed engine = %v, want Unavailable", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestAttachRefusesAnotherLayout(t *testing.T) {
	m := tinymodel.Load(t, tinymodel.Options{})
	ref := newBench(t, m, engine.Options{Backend: layout.Ref}, 2)
	f32 := newBench(t, m, engine.Options{Backend: layout.RefF32}, 2)
	if _, err := ref.e.Attach(f32.mem); errs.KindOf(err) != errs.Invalid {
		t.Errorf("Attach of a pool with larger pages = %v, want Invalid", err)
	}
}

func TestOpenRefusals(t *testing.T) {
	m := tinymodel.Load(t, tinymodel.Options{})
	for name, c := range map[string]struct {
		o    engine.Options
		word string
	}{
		"no back end":               {engine.Options{}, "back end"},
		"an unknown back end":       {engine.Options{Backend: "cuda"}, "cuda"},
		"a SIMD path of ref":        {engine.Options{Backend: layout.Ref, SIMD: "avx2"}, "avx2"},
		"an unknown SIMD path":      {engine.Options{Backend: layout.CPU, SIMD: "mmx"}, "mmx"},
		"negative threads":          {engine.Options{Backend: layout.Ref, Threads: -1}, "threads"},
		"too many sequences":        {engine.Options{Backend: layout.Ref, MaxSeqs: 1 << 20}, "sequences"},
		"too many tokens in a step": {engine.Options{Backend: layout.Ref, MaxTokens: 1 << 30}, "tokens"},
	} {
		_, err := engine.Open(m, c.o)
		if errs.KindOf(err) != errs.Invalid || !strings.Contains(err.Error(), c.word) {
			t.Errorf("%s: Open = %v, want Invalid with %q", name, err, c.word)
		}
	}
}

func TestWhatAnEngineSaysOfItself(t *testing.T) {
	eachBackend(t, func(t *testing.T, m *model.Model, o engine.Options) {
		b := newBench(t, m, o, 1)
		want, err := layout.Of(m.Config, o.Backend)
		if err != nil {
			t.Fatal(err)
		}
		if b.e.Layout() != want || b.e.NumericsClass() != layout.NumericsClass(o.Backend) || b.e.SIMD() != o.SIMD {
			t.Errorf("layout %+v, class %q, SIMD %q", b.e.Layout(), b.e.NumericsClass(), b.e.SIMD())
		}
		if b.e.Keys().Shape() != want.Shape() {
			t.Errorf("keys for %+v, want %+v", b.e.Keys().Shape(), want.Shape())
		}
	})
}

func TestAStepAllocatesNothing(t *testing.T) {
	m := tinymodel.Load(t, tinymodel.Options{})
	b := newBench(t, m, engine.Options{Backend: layout.Ref, Threads: 1}, 4)
	s := b.open(1, 4)
	work := []engine.Work{{Seq: s.id, Tokens: prompt(1, 1), Want: engine.Last}}
	step := func() {
		work[0].Pos = b.step(work...).Results[0].Length
	}
	step()
	if n := testing.AllocsPerRun(20, step); n > 0 {
		t.Errorf("%v allocations a step", n)
	}
}
