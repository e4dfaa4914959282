//go:build cgo

package engine_test

import (
	"bytes"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/model"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

func allNaN(rows [][]float32) bool {
	for _, r := range rows {
		for _, x := range r {
			if !math.IsNaN(float64(x)) {
				return false
			}
		}
	}
	return len(rows) > 0
}

// poisoned checks all that a faulted work item must show.
func poisoned(t *testing.T, r engine.Result, length uint32) {
	t.Helper()
	if !allNaN(r.Logits) || !r.Bad {
		t.Errorf("logits are not NaN, or bad is %v", r.Bad)
	}
	if r.Length != length || r.Faults == 0 {
		t.Errorf("length %d with %d faults, want length %d and faults", r.Length, r.Faults, length)
	}
	for _, d := range r.LogitDigests {
		if !d.IsZero() {
			t.Errorf("poisoned logits have digest %v", d)
		}
	}
}

// One wrong sequence among good ones: the record says what, its output is poison, and the others do not notice.
func TestGuards(t *testing.T) {
	ids := prompt(20, 100)
	const at = 70 // the victim's length before the wrong step: its pages 0 and 1 are in use
	type scene struct {
		name  string
		wrong func(b *bench, s *seq, w *engine.Work)
		want  func(s *seq) engine.Fault
		stays bool // poisoned for good
	}
	stored := func(place int, change func(pool.Tag) pool.Tag) func(*bench, *seq, *engine.Work) {
		return func(b *bench, s *seq, _ *engine.Work) { b.owner.StoreTag(s.pages[place], change(s.tags[place])) }
	}
	another := func(t pool.Tag) pool.Tag { return pool.MakeTag(t.Slot()+1, t.Generation()) }
	later := func(t pool.Tag) pool.Tag { return pool.MakeTag(t.Slot(), t.Generation()+1) }
	sealed := func(t pool.Tag) pool.Tag { return t.WithSealed(true) }
	nobody := func(t pool.Tag) pool.Tag { return pool.MakeTag(pool.Nobody, t.Generation()+1) }
	tagFault := func(kind engine.FaultKind, place int, got func(pool.Tag) pool.Tag) func(*seq) engine.Fault {
		return func(s *seq) engine.Fault {
			return engine.Fault{Kind: kind, Seq: s.id, Page: s.pages[place], Want: uint64(s.tags[place]), Got: uint64(got(s.tags[place]))}
		}
	}
	scenes := []scene{
		{"a page to read belongs to another slot", stored(0, another), tagFault(engine.FaultRead, 0, another), true},
		{"a page to read has a later generation", stored(0, later), tagFault(engine.FaultRead, 0, later), true},
		{"a page to read is nobody's", stored(0, nobody), tagFault(engine.FaultRead, 0, nobody), true},
		{"the page to append to belongs to another slot", stored(1, another), tagFault(engine.FaultWrite, 1, another), true},
		{"the page to append to is nobody's", stored(1, nobody), tagFault(engine.FaultWrite, 1, nobody), true},
		{"the page to append to is sealed", stored(1, sealed), tagFault(engine.FaultWrite, 1, sealed), true},
		{"the plan's position is beyond the length",
			func(_ *bench, _ *seq, w *engine.Work) { w.Pos = at + 1 },
			func(s *seq) engine.Fault {
				return engine.Fault{Kind: engine.FaultLength, Seq: s.id, Page: at, Want: at + 1, Got: at}
			}, false},
		{"the plan's position is before the length",
			func(_ *bench, _ *seq, w *engine.Work) { w.Pos = 64 },
			func(s *seq) engine.Fault {
				return engine.Fault{Kind: engine.FaultLength, Seq: s.id, Page: at, Want: 64, Got: at}
			}, false},
		{"the plan's position is far beyond every page",
			func(_ *bench, _ *seq, w *engine.Work) { w.Pos = math.MaxUint32 },
			func(s *seq) engine.Fault {
				return engine.Fault{Kind: engine.FaultLength, Seq: s.id, Page: at, Want: math.MaxUint32, Got: at}
			}, false},
		{"the plan has more rows than the pages have room",
			func(_ *bench, _ *seq, w *engine.Work) { w.Tokens = prompt(1, 59) },
			func(s *seq) engine.Fault {
				return engine.Fault{Kind: engine.FaultPages, Seq: s.id, Page: 2, Want: at + 59, Got: 128}
			}, false},
	}
	eachBackend(t, func(t *testing.T, m *model.Model, o engine.Options) {
		quiet := newBench(t, m, o, 4)
		want := digests(quiet.feed(quiet.open(1, 2), ids, 50))
		for _, sc := range scenes {
			t.Run(sc.name, func(t *testing.T) {
				b := newBench(t, m, o, 8)
				good, victim := b.open(1, 2), b.open(2, 2)
				got := digests(b.feed(good, ids[:50], 50))
				b.feed(victim, ids[:at], at)
				before := append([]byte(nil), b.owner.Page(victim.pages[1])...)

				bad := engine.Work{Seq: victim.id, Pos: at, Tokens: ids[at : at+3], Want: engine.All}
				sc.wrong(b, victim, &bad)
				st := b.step(bad, engine.Work{Seq: good.id, Pos: 50, Tokens: ids[50:70], Want: engine.All})
				poisoned(t, st.Results[0], at)
				if d := cmp.Diff([]engine.Fault{sc.want(victim)}, st.Faults); d != "" {
					t.Errorf("fault records (-want +got):\n%s", d)
				}
				got = append(got, st.Results[1].LogitDigests...)
				for _, p := range st.Pages {
					if p.Seq == victim.id {
						t.Errorf("a digest of the faulted sequence's page: %+v", p)
					}
				}
				if sc.want(victim).Kind != engine.FaultRead && string(before) != string(b.owner.Page(victim.pages[1])) {
					t.Error("the page that was not ours has been written")
				}

				for i, page := range victim.pages { // all is well again, but for what was computed
					b.owner.StoreTag(page, victim.tags[i])
				}
				st = b.step(engine.Work{Seq: good.id, Pos: 70, Tokens: ids[70:], Want: engine.All},
					engine.Work{Seq: victim.id, Pos: at, Tokens: ids[at:], Want: engine.All})
				got = append(got, st.Results[0].LogitDigests...)
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("the good sequence differs from its run alone:\n%s", d)
				}
				if sc.stays {
					poisoned(t, st.Results[1], at)
					if d := cmp.Diff([]engine.Fault{sc.want(victim)}, st.Faults); d != "" {
						t.Errorf("later fault records (-want +got):\n%s", d)
					}
				} else if d := cmp.Diff(want[at:], st.Results[1].LogitDigests); d != "" {
					t.Errorf("after a wrong plan the sequence differs:\n%s", d)
				}
			})
		}
	})
}

func TestASealedPageCanBeRead(t *testing.T) {
	ids := prompt(21, 80)
	eachBackend(t, func(t *testing.T, m *model.Model, o engine.Options) {
		b := newBench(t, m, o, 4)
		s := b.open(1, 2)
		b.feed(s, ids[:64], 64)
		b.owner.StoreTag(s.pages[0], s.tags[0].WithSealed(true))
		b.feed(s, ids[64:], 16)
	})
}

// H14: pages that are our own but were never written are as wrong as foreign ones.
func TestALongerPlanOverOwnPages(t *testing.T) {
	eachBackend(t, func(t *testing.T, m *model.Model, o engine.Options) {
		b := newBench(t, m, o, 4)
		s := b.open(1, 3)
		b.feed(s, prompt(22, 10), 10)
		st := b.step(engine.Work{Seq: s.id, Pos: 128, Tokens: prompt(22, 1), Want: engine.Last})
		poisoned(t, st.Results[0], 10)
		if len(st.Faults) != 1 || st.Faults[0].Kind != engine.FaultLength {
			t.Errorf("faults %+v, want one of length", st.Faults)
		}
	})
}

// A value that is no number is not a fault of tags, and must not pass as an answer.
func TestNaNInAPageIsBad(t *testing.T) {
	eachBackend(t, func(t *testing.T, m *model.Model, o engine.Options) {
		b := newBench(t, m, o, 4)
		s := b.open(1, 1)
		b.feed(s, prompt(23, 5), 5)
		page := b.owner.Page(s.pages[0])
		nan := make([]byte, b.e.Layout().Shape().RowBytes())
		for i := range nan {
			nan[i] = 0xff
		}
		b.e.Layout().SetRow(page, nan, 2, 1, 1, 0)
		st := b.step(engine.Work{Seq: s.id, Pos: 5, Tokens: prompt(23, 1), Want: engine.Last})
		if r := st.Results[0]; !r.Bad || r.Faults != 0 || len(st.Faults) != 0 {
			t.Errorf("bad %v with %d faults, want bad and none", r.Bad, r.Faults)
		}
	})
}

// With guards off the same bits come out, nothing is noticed, and there are no digests to seal with.
func TestGuardsOff(t *testing.T) {
	ids := prompt(24, 70)
	eachBackend(t, func(t *testing.T, m *model.Model, o engine.Options) {
		on := newBench(t, m, o, 4)
		want := digests(on.feed(on.open(1, 2), ids, 70))
		o.GuardsOff = true
		off := newBench(t, m, o, 4)
		s := off.open(1, 2)
		off.owner.StoreTag(s.pages[0], pool.MakeTag(77, 1))
		st := off.step(engine.Work{Seq: s.id, Tokens: ids, Want: engine.All})
		if d := cmp.Diff(want, st.Results[0].LogitDigests); d != "" {
			t.Errorf("logits differ (-on +off):\n%s", d)
		}
		if len(st.Pages) != 0 || len(st.Faults) != 0 {
			t.Errorf("%d page digests and %d faults with guards off", len(st.Pages), len(st.Faults))
		}
		if _, err := off.p.OpenSeq(3, s.pages, s.tags, nil); err != nil {
			t.Errorf("OpenSeq inside a page without its digest: %v", err)
		}
	})
}

// In an engine without guards a sequence can have them: a wrong tag under it is seen, its pages have digests, and the other
// sequence of the step has neither.
func TestGuardSeq(t *testing.T) {
	ids := prompt(26, 70)
	eachBackend(t, func(t *testing.T, m *model.Model, o engine.Options) {
		o.GuardsOff = true
		b := newBench(t, m, o, 8)
		on, off := b.open(1, 2), b.open(2, 2)
		if err := b.e.GuardSeq(on.id); err != nil {
			t.Fatal(err)
		}
		st := b.step(engine.Work{Seq: off.id, Tokens: ids, Want: engine.Last}, engine.Work{Seq: on.id, Tokens: ids, Want: engine.Last})
		if len(st.Pages) != 2 || st.Pages[0].Seq != on.id || st.Pages[1].Seq != on.id || len(st.Faults) != 0 {
			t.Fatalf("digests of %+v, faults %+v; want those of the guarded sequence's two pages", st.Pages, st.Faults)
		}
		if err := b.e.GuardSeq(off.id); errs.KindOf(err) != errs.Invalid {
			t.Errorf("a sequence that has rows: %v, want invalid", err)
		}
		for _, s := range []*seq{on, off} {
			b.owner.StoreTag(s.pages[0], pool.MakeTag(77, 1))
		}
		st = b.step(engine.Work{Seq: off.id, Pos: 70, Tokens: ids[:1], Want: engine.Last}, engine.Work{Seq: on.id, Pos: 70, Tokens: ids[:1], Want: engine.Last})
		if st.Results[0].Faults != 0 {
			t.Errorf("%d faults of the sequence without guards", st.Results[0].Faults)
		}
		poisoned(t, st.Results[1], 70)
	})
	if err := (&engine.Engine{}).GuardSeq(1); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("a closed engine: %v, want unavailable", err)
	}
}

// A page that is sealed after all of a step's rows are in it, and before the step ends: only the look at the end can see that.
// It is the cpu back end's; ref looks after each layer's rows.
func TestAPageThatIsTakenAfterItsLastRowIsSeen(t *testing.T) {
	ids := prompt(27, 64)
	eachCPU(t, func(t *testing.T, m *model.Model, o engine.Options) {
		b := newBench(t, m, o, 21)
		done := b.open(1, 1)
		b.feed(done, ids, 64)
		written := b.owner.Page(done.pages[0])
		seen := 0
		for range 20 {
			s := b.open(1, 1)
			over := make(chan struct{})
			sealed := make(chan bool)
			go func() {
				for !bytes.Equal(b.owner.Page(s.pages[0]), written) {
					select {
					case <-over:
						sealed <- false
						return
					default:
					}
				}
				b.owner.StoreTag(s.pages[0], s.tags[0].WithSealed(true))
				sealed <- true
			}()
			st := b.step(engine.Work{Seq: s.id, Tokens: ids, Want: engine.All})
			close(over)
			if <-sealed && st.Results[0].Faults > 0 {
				seen++
				poisoned(t, st.Results[0], 0)
				if len(st.Faults) != 1 || st.Faults[0].Kind != engine.FaultWrite {
					t.Errorf("faults %+v, want one of writing", st.Faults)
				}
			}
			if err := b.e.CloseSeq(s.id); err != nil {
				t.Fatal(err)
			}
		}
		if seen == 0 {
			t.Error("a page was sealed after its last row in each of 20 steps, and no check saw it")
		}
	})
}

// Tags change under running steps: whatever a step says, either it is right or it is poison.
func TestTagsThatChangeDuringSteps(t *testing.T) {
	ids := prompt(25, 64)
	eachBackend(t, func(t *testing.T, m *model.Model, o engine.Options) {
		quiet := newBench(t, m, o, 2)
		want := digests(quiet.feed(quiet.open(1, 1), ids, 64))
		b := newBench(t, m, o, 40)
		faulted := 0
		for range 20 {
			s := b.open(1, 1)
			stop, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				for i := uint64(0); ; i++ {
					select {
					case <-stop:
						return
					default:
						b.owner.StoreTag(s.pages[0], s.tags[0]+pool.Tag(i/4096%2))
					}
				}
			}()
			st := b.step(engine.Work{Seq: s.id, Tokens: ids, Want: engine.All})
			close(stop)
			<-done
			if st.Results[0].Faults > 0 {
				faulted++
				poisoned(t, st.Results[0], 0)
				continue
			}
			if d := cmp.Diff(want, append([]pagesum.Digest(nil), st.Results[0].LogitDigests...)); d != "" {
				t.Errorf("no fault, and other logits:\n%s", d)
			}
		}
		if faulted == 0 {
			t.Error("tags changed during 20 steps, and no check saw it")
		}
	})
}

// A page is another's, with that one's rows in it, for a part of a step: until some moment, or from some moment on. What was
// read meanwhile goes nowhere: the step faults, or its logits are those of the page's own rows. Each of a chunk's two looks
// alone would miss one of the two. The page is the chunk's first in the one case and its last in the other, which is when the
// look that counts is farthest away.
func TestWhatWasReadWhileAPageWasAnothersGoesNowhere(t *testing.T) {
	const held, tries = 448, 1000 // seven pages and the open one: a chunk
	ids := prompt(28, held+16)
	eachCPU(t, func(t *testing.T, m *model.Model, o engine.Options) {
		o.Threads = 1 // the owner needs a core
		b := newBench(t, m, o, 16)
		mine, other := b.open(1, 8), b.open(2, 8)
		b.feed(mine, ids[:held], 64)
		b.feed(other, prompt(29, held), 64)
		rows := [2][]byte{bytes.Clone(b.owner.Page(mine.pages[0])), bytes.Clone(b.owner.Page(mine.pages[6]))}
		mineIs := func(k int) {
			copy(b.owner.Page(mine.pages[6*k]), rows[k])
			b.owner.StoreTag(mine.pages[6*k], mine.tags[6*k])
		}
		othersIs := func(k int) {
			b.owner.StoreTag(mine.pages[6*k], pool.MakeTag(3, mine.tags[6*k].Generation()+1))
			copy(b.owner.Page(mine.pages[6*k]), b.owner.Page(other.pages[6*k]))
		}
		// run steps over what is held and n rows more; change happens after a while.
		run := func(n int, after time.Duration, change func()) ([]pagesum.Digest, uint32, time.Duration) {
			id, err := b.p.OpenSeq(held, mine.pages, mine.tags, nil)
			if err != nil {
				t.Fatal(err)
			}
			changed := make(chan struct{})
			began := time.Now()
			go func() {
				defer close(changed)
				for time.Since(began) < after {
				}
				change()
			}()
			st := b.step(engine.Work{Seq: id, Pos: held, Tokens: ids[held : held+n], Want: engine.Last})
			took := time.Since(began)
			<-changed
			digests := slices.Clone(st.Results[0].LogitDigests)
			if err := b.e.CloseSeq(id); err != nil {
				t.Fatal(err)
			}
			return digests, st.Results[0].Faults, took
		}
		for _, n := range []int{1, 16} { // a row by itself, and a group
			want, _, took := run(n, 0, func() {})
			faulted, equal := 0, 0
			for i := range tries {
				k, before, change := 1, mineIs, othersIs
				if i%2 == 0 {
					k, before, change = 0, othersIs, mineIs
				}
				before(k)
				got, faults, _ := run(n, took*time.Duration(i)/tries, func() { change(k) })
				mineIs(k)
				if faults > 0 {
					faulted++
				} else if equal++; !slices.Equal(got, want) {
					t.Fatalf("%d rows, page %d: no fault, and logits of another's page", n, 6*k)
				}
			}
			if faulted == 0 || equal == 0 {
				t.Errorf("%d rows: %d steps faulted and %d did not, want some of each", n, faulted, equal)
			}
		}
	})
}
