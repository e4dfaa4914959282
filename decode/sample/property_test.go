package sample

import (
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func logitRows() *rapid.Generator[[]float32] {
	// Few values, so that equals are common; and some rows of a wide range.
	value := rapid.OneOf(rapid.Float32Range(-30, 30), rapid.SampledFrom([]float32{-1, 0, 1, 2}))
	return rapid.SliceOfN(value, 1, 200)
}

func params(t *rapid.T, vocab int) Params {
	p := Params{
		Temperature: rapid.SampledFrom([]float32{0, 0.001, 0.7, 1, 2}).Draw(t, "temperature"),
		TopP:        rapid.SampledFrom([]float32{0, 0.1, 0.5, 0.95, 1}).Draw(t, "top_p"),
		TopK:        rapid.SampledFrom([]uint32{0, 1, 3, 40, 1 << 30}).Draw(t, "top_k"),
		MinP:        rapid.SampledFrom([]float32{0, 0.05, 0.9}).Draw(t, "min_p"),
		Frequency:   rapid.SampledFrom([]float32{0, 0.5, -1}).Draw(t, "frequency"),
		Presence:    rapid.SampledFrom([]float32{0, 1}).Draw(t, "presence"),
		Repetition:  rapid.SampledFrom([]float32{0, 1, 1.3}).Draw(t, "repetition"),
		Seed:        rapid.Uint64().Draw(t, "seed"),
	}
	if rapid.Bool().Draw(t, "biased") {
		p.Bias = map[int32]float32{rapid.Int32Range(0, int32(vocab-1)).Draw(t, "bias of"): rapid.Float32Range(-100, 100).Draw(t, "bias")}
	}
	return p
}

func answer(t *rapid.T, p Params, rows [][]float32) []int32 {
	s, err := New(p, len(rows[0]), nil)
	if err != nil {
		t.Fatal(err)
	}
	ids := make([]int32, len(rows))
	for i, l := range rows {
		ids[i] = s.Next(l, uint32(i)).ID
	}
	return ids
}

func sameRows(t *rapid.T) [][]float32 {
	l := logitRows().Draw(t, "logits")
	return slices.Repeat([][]float32{l}, 6)
}

func TestChoicesAreAFunctionOfTheirInputs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := sameRows(t)
		p := params(t, len(rows[0]))
		if d := cmp.Diff(answer(t, p, rows), answer(t, p, rows)); d != "" {
			t.Fatalf("%+v: two answers differ:\n%s", p, d)
		}
	})
}

func TestFiltersThatTakeNothingChangeNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := sameRows(t)
		p := Params{Temperature: rapid.Float32Range(0.3, 2).Draw(t, "temperature"), Seed: rapid.Uint64().Draw(t, "seed")}
		want := answer(t, p, rows)
		for _, same := range []Params{
			{TopK: uint32(len(rows[0]))}, {TopK: math.MaxUint32}, {TopP: 1}, {Repetition: 1}, {Bias: map[int32]float32{0: 0}},
		} {
			same.Temperature, same.Seed = p.Temperature, p.Seed
			if d := cmp.Diff(want, answer(t, same, rows)); d != "" {
				t.Fatalf("%+v changed the answer:\n%s", same, d)
			}
		}
	})
}

func TestTopKOfOneAndGreedyAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows := sameRows(t)
		p := params(t, len(rows[0]))
		p.Temperature, p.TopK = 0.8, 1
		greedy := p
		greedy.Temperature = 0
		if d := cmp.Diff(answer(t, greedy, rows), answer(t, p, rows)); d != "" {
			t.Fatalf("%+v: greedy and top_k 1 differ:\n%s", p, d)
		}
	})
}

// What the filters leave, by sorting everything: the definition against the partial selection.
func TestSurvivorsAreThoseOfTheDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := logitRows().Draw(t, "logits")
		p := params(t, len(l))
		p.Temperature = max(p.Temperature, 0.5)
		p.Bias, p.Repetition, p.Frequency, p.Presence = nil, 0, 0, 0
		s, err := New(p, len(l), nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 40 {
			u := (float64(i) + 0.5123) / 40
			if got, want := s.draw(l, u), define(l, p, u); got != want {
				t.Fatalf("%+v: draw(%v) = %d, want %d", p, u, got, want)
			}
		}
	})
}

func define(l []float32, p Params, u float64) int32 {
	all := make([]candidate, len(l))
	for i, v := range l {
		z := (float64(v) - float64(slices.Max(l))) / float64(p.Temperature)
		all[i] = candidate{id: int32(i), l: v}
		if z >= negligible {
			all[i].w = exp(z)
		}
	}
	slices.SortFunc(all, order)
	if p.TopK > 0 {
		all = all[:min(int(p.TopK), len(all))]
	}
	if p.TopP > 0 && p.TopP < 1 {
		total, sum := 0.0, 0.0
		for _, c := range all {
			total += c.w
		}
		for i, c := range all {
			if sum += c.w; sum >= float64(p.TopP)*total*(1-1e-12) {
				all = all[:i+1]
				break
			}
		}
	}
	all = slices.DeleteFunc(all, func(c candidate) bool { return c.w < float64(p.MinP) })
	slices.SortFunc(all, func(a, b candidate) int { return int(a.id - b.id) })
	return new(Sampler).walk(len(all), u, func(i int) (int32, float64) { return all[i].id, all[i].w })
}

func TestProbabilitiesSumToOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := rapid.SliceOfN(rapid.Float32Range(-50, 50), 1, MaxTop).Draw(t, "logits")
		s, err := New(Params{Logprobs: true, Top: len(l)}, len(l), nil)
		if err != nil {
			t.Fatal(err)
		}
		c := s.Next(l, 0)
		sum := 0.0
		for i, top := range c.Top {
			sum += math.Exp(float64(top.Logprob))
			if i > 0 && top.Logprob > c.Top[i-1].Logprob {
				t.Fatalf("alternatives rise: %v", c.Top)
			}
		}
		if len(c.Top) != len(l) || math.Abs(sum-1) > 1e-4 || c.Top[0].ID != c.ID || c.Top[0].Logprob != c.Logprob {
			t.Fatalf("choice %+v: %d alternatives of %d, sum %v", c, len(c.Top), len(l), sum)
		}
	})
}
