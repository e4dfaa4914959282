package sample

import (
	"math"
	"testing"

	"leasehold.dev/protos/errs"
)

func nan32() float32 { return float32(math.NaN()) }

func TestCheckNamesTheWrongParameter(t *testing.T) {
	for _, tt := range []struct {
		name string
		p    Params
		want string // the error, or ""
	}{
		{"nothing asked for", Params{}, ""},
		{"everything at its bound", Params{Temperature: 100, TopP: 1, MinP: 1, Frequency: -100, Presence: 100, Repetition: 0.01,
			Bias: map[int32]float32{9: -1000}, Logprobs: true, Top: 20, TopK: math.MaxUint32}, ""},
		{"a negative temperature", Params{Temperature: -0.5}, "temperature is -0.5, want 0 to 100"},
		{"a temperature that is no number", Params{Temperature: nan32()}, "temperature is NaN, want 0 to 100"},
		{"an endless temperature", Params{Temperature: float32(math.Inf(1))}, "temperature is +Inf, want 0 to 100"},
		{"top_p over 1", Params{TopP: 1.5}, "top_p is 1.5, want 0 to 1"},
		{"negative min_p", Params{MinP: -1}, "min_p is -1, want 0 to 1"},
		{"a repetition penalty that divides by nothing", Params{Repetition: 1e-9}, "repetition_penalty is 1e-09, want 0.01 to 100"},
		{"a frequency penalty over its bound", Params{Frequency: 101}, "frequency_penalty is 101, want -100 to 100"},
		{"a presence penalty that is no number", Params{Presence: nan32()}, "presence_penalty is NaN, want -100 to 100"},
		{"too many alternatives", Params{Logprobs: true, Top: 21}, "top_logprobs is 21 with logprobs true, want 0 to 20, and logprobs for more than 0"},
		{"alternatives without logprobs", Params{Top: 1}, "top_logprobs is 1 with logprobs false, want 0 to 20, and logprobs for more than 0"},
		{"a bias past the vocabulary", Params{Bias: map[int32]float32{10: 1}}, "logit_bias names token 10, the vocabulary has 10"},
		{"a bias of a negative token", Params{Bias: map[int32]float32{-1: 1}}, "logit_bias names token -1, the vocabulary has 10"},
		{"a bias that is no number", Params{Bias: map[int32]float32{3: nan32()}}, "logit_bias of token 3 is NaN, want -1000 to 1000"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.p.Check(10)
			if tt.want == "" {
				if err != nil {
					t.Errorf("Check = %v, want accepted", err)
				}
				return
			}
			if err == nil || err.Error() != tt.want || errs.KindOf(err) != errs.Invalid {
				t.Errorf("Check = %v, want invalid: %s", err, tt.want)
			}
		})
	}
}

func TestGreedy(t *testing.T) {
	for _, tt := range []struct {
		name   string
		p      Params
		prompt []int32
		said   []int32 // chosen before, by a row that leaves nothing else
		logits []float32
		want   int32
	}{
		{name: "the greatest", logits: []float32{1, 3, 2}, want: 1},
		{name: "the lowest id among equals", logits: []float32{1, 3, 3}, want: 1},
		{name: "all are negative", logits: []float32{-5, -3, -4}, want: 1},
		{name: "a bias lifts a token", p: Params{Bias: map[int32]float32{0: 2.5}}, logits: []float32{1, 3, 2}, want: 0},
		{name: "a bias sinks a token", p: Params{Bias: map[int32]float32{1: -100}}, logits: []float32{1, 3, 2}, want: 2},
		{name: "repetition divides a positive logit of the prompt", p: Params{Repetition: 2}, prompt: []int32{1}, logits: []float32{1, 3, 2}, want: 2},
		{name: "repetition multiplies a negative logit of the prompt", p: Params{Repetition: 2}, prompt: []int32{1}, logits: []float32{-9, -3, -4}, want: 2},
		{name: "repetition counts what was said", p: Params{Repetition: 2}, said: []int32{1}, logits: []float32{1, 3, 2}, want: 2},
		{name: "presence counts once", p: Params{Presence: 0.6}, said: []int32{1, 1}, logits: []float32{1, 3, 2}, want: 1},
		{name: "frequency counts each", p: Params{Frequency: 0.6}, said: []int32{1, 1}, logits: []float32{1, 3, 2}, want: 2},
		{name: "frequency ignores the prompt", p: Params{Frequency: 2}, prompt: []int32{1}, logits: []float32{1, 3, 2}, want: 1},
		{name: "bias comes before repetition", p: Params{Repetition: 10, Bias: map[int32]float32{1: 100}}, prompt: []int32{1},
			logits: []float32{1, -50, 2}, want: 1}, // (-50+100)/10 = 5; the other way it would be -400
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, err := New(tt.p, len(tt.logits), tt.prompt)
			if err != nil {
				t.Fatal(err)
			}
			for i, id := range tt.said {
				only := []float32{-900, -900, -900}
				only[id] = 900
				if got := s.Next(only, uint32(i)).ID; got != id {
					t.Fatalf("setup chose %d, want %d", got, id)
				}
			}
			before := append([]float32(nil), tt.logits...)
			if got := s.Next(tt.logits, 7).ID; got != tt.want {
				t.Errorf("Next(%v) = %d, want %d", tt.logits, got, tt.want)
			}
			for i := range before {
				if tt.logits[i] != before[i] {
					t.Errorf("logits[%d] was changed to %v", i, tt.logits[i])
				}
			}
		})
	}
}

// With weights 1/2, 1/4, 1/8, 1/16, 1/16 the survivors of each filter can be read off the draws.
func TestFiltersLeave(t *testing.T) {
	ln := func(p float64) float32 { return float32(math.Log(p)) }
	logits := []float32{ln(1. / 16), ln(1. / 4), ln(1. / 2), ln(1. / 8), ln(1. / 16)}
	for _, tt := range []struct {
		name string
		p    Params
		want []int32
	}{
		{"everything", Params{}, []int32{0, 1, 2, 3, 4}},
		{"the greatest two", Params{TopK: 2}, []int32{1, 2}},
		{"the lower id of two equals", Params{TopK: 4}, []int32{0, 1, 2, 3}},
		{"more than there are", Params{TopK: 50}, []int32{0, 1, 2, 3, 4}},
		{"half by one", Params{TopP: 0.45}, []int32{2}},
		{"a little over half by two", Params{TopP: 0.6}, []int32{1, 2}},
		{"nearly all, cut between equals", Params{TopP: 0.93}, []int32{0, 1, 2, 3}},
		{"a quarter of the greatest and more", Params{MinP: 0.24}, []int32{1, 2, 3}},
		{"only the greatest", Params{MinP: 1}, []int32{2}},
		{"top_p of what top_k left", Params{TopK: 2, TopP: 0.66}, []int32{2}},
		{"min_p beside top_k", Params{TopK: 4, MinP: 0.4}, []int32{1, 2}},
		{"a low temperature", Params{Temperature: 0.01}, []int32{2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := tt.p
			if p.Temperature == 0 {
				p.Temperature = 1
			}
			s, err := New(p, len(logits), nil)
			if err != nil {
				t.Fatal(err)
			}
			seen := map[int32]bool{}
			for pos := range uint32(2000) {
				seen[s.Next(logits, pos).ID] = true
			}
			for id := range int32(len(logits)) {
				want := false
				for _, w := range tt.want {
					want = want || w == id
				}
				if seen[id] != want {
					t.Errorf("token %d drawn: %v, want %v", id, seen[id], want)
				}
			}
		})
	}
}

func TestDrawsFollowTheWeights(t *testing.T) {
	logits := []float32{0, float32(math.Log(2)), float32(math.Log(5))} // 1/8, 2/8, 5/8
	s, err := New(Params{Temperature: 1, Seed: 11}, 3, nil)
	if err != nil {
		t.Fatal(err)
	}
	const n = 40000
	var got [3]float64
	for pos := range uint32(n) {
		got[s.Next(logits, pos).ID]++
	}
	for i, want := range []float64{n / 8, n / 4, n * 5 / 8} {
		if d := math.Abs(got[i] - want); d > 5*math.Sqrt(want) {
			t.Errorf("token %d was drawn %v times of %d, want %v", i, got[i], n, want)
		}
	}
}

func TestLogprobs(t *testing.T) {
	logits := []float32{0, float32(math.Log(2)), float32(math.Log(5)), float32(math.Log(2))}
	s, err := New(Params{Logprobs: true, Top: 3, Bias: map[int32]float32{0: 50}}, 4, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := s.Next(logits, 3)
	near := func(what string, got float32, p float64) {
		t.Helper()
		if math.Abs(float64(got)-math.Log(p)) > 1e-6 {
			t.Errorf("logprob of %s is %v, want log %v", what, got, p)
		}
	}
	if c.ID != 0 {
		t.Fatalf("chose %d, want the biased 0", c.ID)
	}
	near("the choice, by raw logits", c.Logprob, 0.1)
	if len(c.Top) != 3 || c.Top[0].ID != 2 || c.Top[1].ID != 1 || c.Top[2].ID != 3 {
		t.Fatalf("alternatives are %v, want 2, 1, 3: greatest first, lower ids first", c.Top)
	}
	near("the best", c.Top[0].Logprob, 0.5)
	near("an equal", c.Top[2].Logprob, 0.2)
}

func TestGreedyDoesNotAllocate(t *testing.T) {
	logits := make([]float32, 49152)
	logits[40000] = 1
	s, err := New(Params{}, len(logits), []int32{1, 2})
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(20, func() { s.Next(logits, 9) }); n != 0 {
		t.Errorf("a greedy choice allocates %v times", n)
	}
}

func TestNewRefusesAPromptOutsideTheVocabulary(t *testing.T) {
	for _, id := range []int32{-1, 10} {
		if _, err := New(Params{Repetition: 2}, 10, []int32{id}); errs.KindOf(err) != errs.Invalid {
			t.Errorf("New with token %d = %v, want invalid", id, err)
		}
	}
}

func BenchmarkNext(b *testing.B) {
	logits := make([]float32, 49152)
	for i := range logits {
		logits[i] = float32(8 * math.Sqrt(-2*math.Log(1-Uniform(5, uint32(i)))) * math.Cos(2*math.Pi*Uniform(6, uint32(i))) / 2)
	}
	for _, bb := range []struct {
		name string
		p    Params
	}{
		{"greedy", Params{}}, {"temperature", Params{Temperature: 1}}, {"top_k", Params{Temperature: 1, TopK: 40}},
		{"top_p", Params{Temperature: 1, TopP: 0.95}}, {"min_p", Params{Temperature: 1, MinP: 0.05}},
		{"logprobs", Params{Logprobs: true, Top: 5}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			s, err := New(bb.p, len(logits), nil)
			if err != nil {
				b.Fatal(err)
			}
			for i := 0; b.Loop(); i++ {
				s.Next(logits, uint32(i))
			}
		})
	}
}
