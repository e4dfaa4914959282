package choose_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/router/choose"
)

func promising(id string, promised, derived uint32, twist ...func(*choose.Worker)) choose.Worker {
	return worker(id, append(twist, func(w *choose.Worker) { w.Promised, w.Limit = promised, derived })...)
}

func TestGaps(t *testing.T) {
	down := func(w *choose.Worker) { w.Up = false }
	alone := func(w *choose.Worker) { w.SelfPrefill = true }
	other := func(w *choose.Worker) { w.LayoutHash = "l2" }
	for _, c := range []struct {
		why     string
		p, d    []choose.Worker
		promise uint32
		want    string
		known   bool
	}{
		{"nobody: nothing is known", nil, nil, 1000, "", false},
		{"every promise just fits", []choose.Worker{promising("p", 1000, 1000)}, []choose.Worker{promising("d", 1000, 1000)}, 1000, "", true},
		{"prefill one above", []choose.Worker{promising("p", 1000, 999)}, []choose.Worker{promising("d", 1000, 1000)}, 999,
			"prefill worker p promises 1000 tokens, it derived 999", true},
		{"decode one above", []choose.Worker{promising("p", 1000, 1000)}, []choose.Worker{promising("d", 1001, 1000)}, 1000,
			"decode worker d promises 1001 tokens, it derived 1000", true},
		{"the router one above the pair", []choose.Worker{promising("p", 1000, 1000)}, []choose.Worker{promising("d", 2000, 2000)}, 1001,
			"the router promises 1001 tokens, the largest pair can hold 1000", true},
		{"the router at what the larger of two pairs holds", []choose.Worker{promising("p", 1000, 1000), promising("q", 1500, 1500)},
			[]choose.Worker{promising("d", 2000, 2000)}, 1500, "", true},
		{"a worker's lower promise binds the router", []choose.Worker{promising("p", 1000, 1000)}, []choose.Worker{promising("d", 500, 1000)}, 501,
			"the router promises 501 tokens, the largest pair can hold 500", true},
		{"a gap of a worker that is not ready shows", []choose.Worker{promising("p", 1000, 681, down), promising("q", 1000, 1000)},
			[]choose.Worker{promising("d", 1000, 1000)}, 1000, "prefill worker p promises 1000 tokens, it derived 681", true},
		{"a worker that said no limit", []choose.Worker{promising("p", 1000, 0, down), promising("q", 1000, 1000)},
			[]choose.Worker{promising("d", 1000, 1000)}, 1000, "", false},
		{"a worker that said no promise", []choose.Worker{promising("p", 0, 1000)}, []choose.Worker{promising("d", 1000, 1000)}, 1000, "", false},
		{"no pair fits together", []choose.Worker{promising("p", 1000, 1000, other)}, []choose.Worker{promising("d", 1000, 1000)}, 1000, "", false},
		{"decode alone", nil, []choose.Worker{promising("d", 800, 1000, alone)}, 801,
			"the router promises 801 tokens, the largest pair can hold 800", true},
	} {
		m := model
		m.Promise = c.promise
		gaps, known := choose.Gaps(choose.Fleet{Prefill: c.p, Decode: c.d}, m)
		var got []string
		for _, g := range gaps {
			got = append(got, fmt.Sprint(g))
		}
		if strings.Join(got, "; ") != c.want || known != c.known {
			t.Errorf("%s: %q, known %v; want %q, %v", c.why, got, known, c.want, c.known)
		}
	}
}

// What is admitted and what is promised come from one number.
func TestTheLargestIsAdmittedAndOneMoreIsNot(t *testing.T) {
	f := choose.Fleet{Prefill: []choose.Worker{promising("p", 300, 300), promising("q", 400, 400)}, Decode: []choose.Worker{promising("d", 350, 900)}}
	most := choose.Largest(f, model)
	if most != 350 {
		t.Fatalf("largest %d, want 350", most)
	}
	for n, ok := range map[uint32]bool{most - 2: true, most - 1: true, most: false} {
		if _, err := choose.Plan(f, model, choose.Request{Tokens: n, MaxNew: 1}, first); (err == nil) != ok {
			t.Errorf("n %d and one new token of %d: %v, want ok %v", n, most, err, ok)
		}
	}
	var pairs []uint32
	for _, p := range f.Prefill {
		pairs = append(pairs, choose.PairLimit(p, f.Decode[0], model))
	}
	if !slices.Equal(pairs, []uint32{300, 350}) || choose.Effective(f, model) != 300 {
		t.Errorf("pairs hold %v, effective %d; want [300 350] and the smaller", pairs, choose.Effective(f, model))
	}
}
