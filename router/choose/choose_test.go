package choose_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/router/choose"
)

var model = choose.Model{Revision: "w", Tokenizer: "t", Promise: 4096}

func worker(id string, twist ...func(*choose.Worker)) choose.Worker {
	w := choose.Worker{ID: id, Broker: "b-" + id, Instance: "i-" + id, ModelRevision: "w", TokenizerRevision: "t", LayoutHash: "l", Numerics: "n",
		Limit: 2000, Promised: 0, Pages: 100, Free: 100, Local: true, GRPC: true, Up: true}
	for _, f := range twist {
		f(&w)
	}
	return w
}

func first(int) int { return 0 }

func TestMover(t *testing.T) {
	p := worker("p", func(p *choose.Worker) { p.Host, p.SHM, p.Fabric, p.UCX = "h-p", true, "f-p", true })
	for _, c := range []struct {
		why   string
		twist func(*choose.Worker)
		want  meshv1.Mover
	}{
		{"another broker", func(*choose.Worker) {}, meshv1.Mover_MOVER_GRPC},
		{"the same broker", func(d *choose.Worker) { d.Instance = "i-p" }, meshv1.Mover_MOVER_LOCAL},
		{"another broker of the host", func(d *choose.Worker) { d.Host, d.SHM = "h-p", true }, meshv1.Mover_MOVER_SHM},
		{"another broker of the host without shm", func(d *choose.Worker) { d.Host = "h-p" }, meshv1.Mover_MOVER_GRPC},
		{"another broker with shm on another host", func(d *choose.Worker) { d.Host, d.SHM = "h-q", true }, meshv1.Mover_MOVER_GRPC},
		{"another broker with shm on no known host", func(d *choose.Worker) { d.Host, d.SHM = "", true }, meshv1.Mover_MOVER_GRPC},
		{"another broker of the fabric", func(d *choose.Worker) { d.Fabric, d.UCX = "f-p", true }, meshv1.Mover_MOVER_UCX},
		{"another broker of the fabric and the host", func(d *choose.Worker) { d.Host, d.SHM, d.Fabric, d.UCX = "h-p", true, "f-p", true }, meshv1.Mover_MOVER_SHM},
		{"another broker of the fabric without ucx", func(d *choose.Worker) { d.Fabric = "f-p" }, meshv1.Mover_MOVER_GRPC},
		{"another broker with ucx on another fabric", func(d *choose.Worker) { d.Fabric, d.UCX = "f-q", true }, meshv1.Mover_MOVER_GRPC},
		{"another broker with ucx on no known fabric", func(d *choose.Worker) { d.UCX = true }, meshv1.Mover_MOVER_GRPC},
		{"the same broker without local", func(d *choose.Worker) { d.Instance, d.Local = "i-p", false }, 0},
		{"another broker without grpc", func(d *choose.Worker) { d.GRPC = false }, 0},
		{"other weights", func(d *choose.Worker) { d.ModelRevision = "w2" }, 0},
		{"another tokenizer", func(d *choose.Worker) { d.TokenizerRevision = "t2" }, 0},
		{"another layout", func(d *choose.Worker) { d.LayoutHash = "l2" }, 0},
		{"another numerics class", func(d *choose.Worker) { d.Numerics = "n2" }, 0},
	} {
		if got := choose.Mover(p, worker("d", c.twist)); got != c.want {
			t.Errorf("%s: %v, want %v", c.why, got, c.want)
		}
	}
}

func TestRoutes(t *testing.T) {
	down := func(w *choose.Worker) { w.Up = false }
	self := func(w *choose.Worker) { w.SelfPrefill = true }
	p, d := worker("p"), worker("d")
	for _, c := range []struct {
		why  string
		f    choose.Fleet
		r    choose.Request
		want string // route and pair, or the error's kind
	}{
		{"a pair", choose.Fleet{Prefill: []choose.Worker{p}, Decode: []choose.Worker{d}}, choose.Request{Tokens: 100, MaxNew: 5}, "split:grpc p d"},
		{"a pair at one broker", choose.Fleet{Prefill: []choose.Worker{p}, Decode: []choose.Worker{worker("d", func(w *choose.Worker) { w.Instance = "i-p" })}}, choose.Request{Tokens: 100, MaxNew: 5}, "split:local p d"},
		{"one token", choose.Fleet{Prefill: []choose.Worker{p}, Decode: []choose.Worker{d}}, choose.Request{Tokens: 1, MaxNew: 5}, "unsplit:single-token  d"},
		{"short, and decode may", choose.Fleet{Prefill: []choose.Worker{p}, Decode: []choose.Worker{worker("d", self)}}, choose.Request{Tokens: 64, MaxNew: 5, UnsplitBelow: 64}, "unsplit:short  d"},
		{"just not short", choose.Fleet{Prefill: []choose.Worker{p}, Decode: []choose.Worker{worker("d", self)}}, choose.Request{Tokens: 65, MaxNew: 5, UnsplitBelow: 64}, "split:grpc p d"},
		{"short, and decode may not", choose.Fleet{Prefill: []choose.Worker{p}, Decode: []choose.Worker{d}}, choose.Request{Tokens: 64, MaxNew: 5, UnsplitBelow: 64}, "split:grpc p d"},
		{"prefill is down, and decode may", choose.Fleet{Prefill: []choose.Worker{worker("p", down)}, Decode: []choose.Worker{worker("d", self)}}, choose.Request{Tokens: 100, MaxNew: 5}, "unsplit:no-prefill  d"},
		{"prefill is down, and decode may not", choose.Fleet{Prefill: []choose.Worker{worker("p", down)}, Decode: []choose.Worker{d}}, choose.Request{Tokens: 100, MaxNew: 5}, "unavailable"},
		{"decode is down", choose.Fleet{Prefill: []choose.Worker{p}, Decode: []choose.Worker{worker("d", down)}}, choose.Request{Tokens: 100, MaxNew: 5}, "unavailable"},
		{"nobody", choose.Fleet{}, choose.Request{Tokens: 100, MaxNew: 5}, "unavailable"},
		{"decode has other weights than the router", choose.Fleet{Prefill: []choose.Worker{p}, Decode: []choose.Worker{worker("d", func(w *choose.Worker) { w.ModelRevision = "w2" })}}, choose.Request{Tokens: 1, MaxNew: 5}, "unavailable"},
		{"the pair was lost", choose.Fleet{Prefill: []choose.Worker{p}, Decode: []choose.Worker{d}}, choose.Request{Tokens: 100, MaxNew: 5, Without: map[choose.Pair]bool{{"p", "d"}: true}}, "unavailable"},
		{"the pair was lost, and decode may", choose.Fleet{Prefill: []choose.Worker{p}, Decode: []choose.Worker{worker("d", self)}}, choose.Request{Tokens: 100, MaxNew: 5, Without: map[choose.Pair]bool{{"p", "d"}: true}}, "unavailable"},
		{"decode alone was lost, and there is another", choose.Fleet{Decode: []choose.Worker{worker("d", self), worker("d2", self)}}, choose.Request{Tokens: 100, MaxNew: 5, Without: map[choose.Pair]bool{{"", "d"}: true}}, "unsplit:no-prefill  d2"},
		{"the pair was lost, and there is another", choose.Fleet{Prefill: []choose.Worker{p, worker("p2")}, Decode: []choose.Worker{d}}, choose.Request{Tokens: 100, MaxNew: 5, Without: map[choose.Pair]bool{{"p", "d"}: true}}, "split:grpc p2 d"},
		{"only one pair of four", choose.Fleet{Prefill: []choose.Worker{p, worker("p2")}, Decode: []choose.Worker{d, worker("d2")}}, choose.Request{Tokens: 100, MaxNew: 5, Only: &choose.Pair{Prefill: "p2", Decode: "d2"}}, "split:grpc p2 d2"},
		{"only a pair, for a short prompt", choose.Fleet{Prefill: []choose.Worker{p}, Decode: []choose.Worker{worker("d", self)}}, choose.Request{Tokens: 64, MaxNew: 5, UnsplitBelow: 64, Only: &choose.Pair{Prefill: "p", Decode: "d"}}, "split:grpc p d"},
		{"only a pair whose prefill is down, and decode may", choose.Fleet{Prefill: []choose.Worker{worker("p", down), worker("p2")}, Decode: []choose.Worker{worker("d", self)}}, choose.Request{Tokens: 100, MaxNew: 5, Only: &choose.Pair{Prefill: "p", Decode: "d"}}, "unavailable"},
		{"only a pair that was lost", choose.Fleet{Prefill: []choose.Worker{p, worker("p2")}, Decode: []choose.Worker{d}}, choose.Request{Tokens: 100, MaxNew: 5, Only: &choose.Pair{Prefill: "p", Decode: "d"}, Without: map[choose.Pair]bool{{"p", "d"}: true}}, "unavailable"},
		{"only a worker that is not there", choose.Fleet{Prefill: []choose.Worker{p}, Decode: []choose.Worker{d}}, choose.Request{Tokens: 100, MaxNew: 5, Only: &choose.Pair{Prefill: "p", Decode: "x"}}, "unavailable"},
		{"only decode, which may", choose.Fleet{Prefill: []choose.Worker{p}, Decode: []choose.Worker{worker("d", self), worker("d2", self)}}, choose.Request{Tokens: 100, MaxNew: 5, Only: &choose.Pair{Decode: "d2"}}, "unsplit:no-prefill  d2"},
		{"only a pair that is too small", choose.Fleet{Prefill: []choose.Worker{p, worker("p2", func(w *choose.Worker) { w.Limit = 50 })}, Decode: []choose.Worker{d}}, choose.Request{Tokens: 100, MaxNew: 5, Only: &choose.Pair{Prefill: "p2", Decode: "d"}}, "limit"},
		{"too long", choose.Fleet{Prefill: []choose.Worker{p}, Decode: []choose.Worker{d}}, choose.Request{Tokens: 1900, MaxNew: 101}, "limit"},
	} {
		r, err := choose.Plan(c.f, model, c.r, first)
		got := fmt.Sprintf("%s %s %s", r.Why, r.Pair().Prefill, r.Pair().Decode)
		if err != nil {
			got = errs.KindOf(err).String()
		}
		if got != c.want {
			t.Errorf("%s: %q (%v), want %q", c.why, got, err, c.want)
		}
	}
}

// Row H1: P's limit and D's limit, and around each of them.
func TestLimits(t *testing.T) {
	f := choose.Fleet{Prefill: []choose.Worker{worker("p", func(w *choose.Worker) { w.Limit = 300 })}, Decode: []choose.Worker{worker("d", func(w *choose.Worker) { w.Limit = 900 })}}
	for _, c := range []struct {
		n, maxNew uint32
		ok        bool
	}{
		{299, 10, true}, {300, 10, true}, {301, 10, false},
		{300, 599, true}, {300, 600, true}, {300, 601, false},
		{299, 601, true}, {899, 1, false}, {1, 899, true}, {1, 900, false},
		{300, 1 << 31, false}, {1 << 31, 1 << 31, false},
	} {
		_, err := choose.Plan(f, model, choose.Request{Tokens: c.n, MaxNew: c.maxNew}, first)
		if (err == nil) != c.ok {
			t.Errorf("n %d, max_new %d: %v, want ok: %v", c.n, c.maxNew, err, c.ok)
		}
		if err != nil && (errs.KindOf(err) != errs.Limit || !strings.Contains(err.Error(), "900") || !strings.Contains(err.Error(), fmt.Sprint(c.n))) {
			t.Errorf("n %d, max_new %d: %v lacks a number", c.n, c.maxNew, err)
		}
	}
	if got := choose.Effective(f, model); got != 300 {
		t.Errorf("effective limit %d, want 300: what every half can hold", got)
	}
	f.Prefill[0].Up = false
	if got := choose.Effective(f, model); got != 0 {
		t.Errorf("effective limit %d without a prefill worker, want 0", got)
	}
	f.Decode[0].SelfPrefill = true
	if got := choose.Effective(f, model); got != 900 {
		t.Errorf("effective limit %d of decode alone, want 900", got)
	}
}

func TestAbsentMaxTokens(t *testing.T) {
	f := choose.Fleet{Prefill: []choose.Worker{worker("p")}, Decode: []choose.Worker{worker("d", func(w *choose.Worker) { w.Promised = 1500 })}}
	for n, want := range map[uint32]uint32{10: 1024, 476: 1024, 477: 1023, 1499: 1} {
		r, err := choose.Plan(f, model, choose.Request{Tokens: n, Default: 1024}, first)
		if err != nil || r.MaxNew != want {
			t.Errorf("n %d: max_new %d, %v; want %d", n, r.MaxNew, err, want)
		}
	}
	if _, err := choose.Plan(f, model, choose.Request{Tokens: 1500, Default: 1024}, first); errs.KindOf(err) != errs.Limit {
		t.Errorf("n 1500: %v, want Limit: it is never truncated", err)
	}
}

func TestARequestGoesToThePairThatHoldsIt(t *testing.T) {
	small := worker("d1", func(w *choose.Worker) { w.Limit = 100 })
	f := choose.Fleet{Prefill: []choose.Worker{worker("p")}, Decode: []choose.Worker{small, worker("d2")}}
	r, err := choose.Plan(f, model, choose.Request{Tokens: 500, MaxNew: 10}, first)
	if err != nil || r.Decode.ID != "d2" {
		t.Errorf("route to %q, %v; want d2", r.Decode.ID, err)
	}
	if got := choose.Effective(f, model); got != 100 {
		t.Errorf("effective limit %d, want 100", got)
	}
}

func TestTheOneWithMoreHeadRoomWins(t *testing.T) {
	busy := func(w *choose.Worker) { w.Queued, w.Free, w.Sequences = 5000, 10, 9 }
	f := choose.Fleet{Prefill: []choose.Worker{worker("p1", busy), worker("p2")}, Decode: []choose.Worker{worker("d1", busy), worker("d2")}}
	for i := range 2 { // two candidates are two of two: the better one is picked, whichever is drawn first
		r, err := choose.Plan(f, model, choose.Request{Tokens: 100, MaxNew: 10}, func(n int) int { return min(i, n-1) })
		if err != nil || r.Pair() != (choose.Pair{Prefill: "p2", Decode: "d2"}) {
			t.Errorf("draw %d: %v, %v; want p2, d2", i, r.Pair(), err)
		}
	}
}

func drawWorker(t *rapid.T, id string) choose.Worker {
	of := func(name string, s ...string) string { return rapid.SampledFrom(s).Draw(t, id+name) }
	return choose.Worker{ID: id, Broker: "b", Instance: of("i", "i1", "i2"), ModelRevision: of("w", "w", "w", "w2"), TokenizerRevision: of("t", "t", "t", "t2"),
		LayoutHash: of("l", "l", "l", "l2"), Numerics: of("n", "n", "n", "n2"), Limit: rapid.Uint32Range(0, 3000).Draw(t, id+"limit"),
		Promised: rapid.SampledFrom([]uint32{0, 500, 2000}).Draw(t, id+"promised"), Pages: 100, Free: rapid.Uint32Range(0, 100).Draw(t, id+"free"),
		Queued: rapid.Uint32Range(0, 9).Draw(t, id+"queued"), Local: rapid.Bool().Draw(t, id+"local"), GRPC: rapid.Bool().Draw(t, id+"grpc"),
		SelfPrefill: rapid.Bool().Draw(t, id+"self"), Up: rapid.IntRange(0, 3).Draw(t, id+"up") > 0, Open: rapid.Uint32Range(0, 3).Draw(t, id+"open")}
}

// Whatever the fleet, a route is allowed, and where an allowed one exists one is found.
func TestPlanProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f choose.Fleet
		for i := range rapid.IntRange(0, 4).Draw(t, "prefills") {
			f.Prefill = append(f.Prefill, drawWorker(t, fmt.Sprintf("p%d", i)))
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "decodes") {
			f.Decode = append(f.Decode, drawWorker(t, fmt.Sprintf("d%d", i)))
		}
		r := choose.Request{Tokens: rapid.Uint32Range(1, 3200).Draw(t, "n"), MaxNew: rapid.Uint32Range(0, 300).Draw(t, "max_new"), Default: 100,
			UnsplitBelow: rapid.SampledFrom([]uint32{0, 64, 4000}).Draw(t, "unsplit_below"), Without: map[choose.Pair]bool{{"p0", "d0"}: rapid.Bool().Draw(t, "without")}}
		route, err := choose.Plan(f, model, r, func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") })
		if err != nil {
			if k := errs.KindOf(err); k != errs.Limit && k != errs.Unavailable {
				t.Fatalf("kind %v", k)
			}
			if r.Tokens > 1 && r.MaxNew > 0 {
				for _, d := range f.Decode {
					for _, p := range f.Prefill {
						if allowed(p, d, r, r.MaxNew) && !r.Without[choose.Pair{Prefill: p.ID, Decode: d.ID}] && r.Tokens > r.UnsplitBelow {
							t.Fatalf("%v, and yet %s with %s is allowed", err, p.ID, d.ID)
						}
					}
				}
			}
			return
		}
		d := route.Decode
		if route.MaxNew == 0 || r.MaxNew > 0 && route.MaxNew != r.MaxNew || r.MaxNew == 0 && route.MaxNew > r.Default {
			t.Fatalf("max_new %d of %d", route.MaxNew, r.MaxNew)
		}
		if route.Prefill != nil {
			if p := *route.Prefill; !allowed(p, d, r, route.MaxNew) || r.Without[route.Pair()] || choose.Mover(p, d) != route.Mover || r.Tokens == 1 {
				t.Fatalf("route %+v is not allowed", route)
			}
			return
		}
		if !d.Up || d.ModelRevision != "w" || d.TokenizerRevision != "t" || route.Mover != meshv1.Mover_MOVER_NONE || r.Tokens > 1 && !d.SelfPrefill {
			t.Fatalf("route %+v is not allowed", route)
		}
	})
}

func allowed(p, d choose.Worker, r choose.Request, maxNew uint32) bool {
	total := min(d.Limit, model.Promise)
	if d.Promised > 0 {
		total = min(total, d.Promised)
	}
	return p.Up && d.Up && p.ModelRevision == "w" && p.TokenizerRevision == "t" && choose.Mover(p, d) != 0 &&
		r.Tokens <= p.Limit && r.Tokens+maxNew <= total
}

func TestStatusIsTakenOver(t *testing.T) {
	s := &meshv1.WorkerStatus{Id: "d", Broker: "b", BrokerInstance: []byte("i"), LayoutHash: []byte("l"), NumericsClass: "n", Ready: true, FreePages: 7,
		Movers: []meshv1.Mover{meshv1.Mover_MOVER_GRPC}}
	if w := choose.FromStatus(s); !w.Up || w.Free != 7 || !w.GRPC || w.Local {
		t.Errorf("worker %+v", w)
	}
	s.Broker = ""
	if w := choose.FromStatus(s); w.Up || w.Reason == "" {
		t.Errorf("a ready worker without a broker is taken: %+v", w)
	}
	if w := choose.FromStatus(nil); w.Up {
		t.Error("no status is taken as ready")
	}
}

func TestReadySaysWhyNot(t *testing.T) {
	d := worker("d")
	for want, f := range map[string]choose.Fleet{
		"decode":  {Prefill: []choose.Worker{worker("p")}},
		"prefill": {Decode: []choose.Worker{d}},
		"layout":  {Prefill: []choose.Worker{worker("p", func(w *choose.Worker) { w.LayoutHash = "l2" })}, Decode: []choose.Worker{d}},
	} {
		if ok, why := choose.Ready(f, model); ok || !strings.Contains(why, want) {
			t.Errorf("%v, %q; want a reason with %q", ok, why, want)
		}
	}
}
