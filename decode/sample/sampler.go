package sample

import "leasehold.dev/protos/errs"

// Sampler chooses the tokens of one sequence. It is not safe for concurrent use.
type Sampler struct {
	p      Params
	vocab  int
	seen   map[int32]struct{} // of prompt and answer; kept only for a repetition penalty
	counts map[int32]float32  // of the answer; kept only for a frequency or presence penalty
	row    []float32          // adjusted logits
	cand   []candidate
	runs   []run
}

// Choice is what was chosen at a position. Logprobs are of the raw logits, and there only when asked for.
type Choice struct {
	ID      int32
	Logprob float32
	Top     []Top // greatest first
}

// Top is one alternative.
type Top struct {
	ID      int32
	Logprob float32
}

// New makes the sampler of a sequence with this prompt; parameters that Check refuses are its error.
func New(p Params, vocab int, prompt []int32) (*Sampler, error) {
	if err := p.Check(vocab); err != nil {
		return nil, err
	}
	s := &Sampler{p: p, vocab: vocab}
	if p.repeats() {
		s.seen = make(map[int32]struct{}, len(prompt))
		for _, id := range prompt {
			if id < 0 || int(id) >= vocab {
				return nil, errs.New(errs.Invalid, "prompt has token %d, the vocabulary has %d", id, vocab)
			}
			s.seen[id] = struct{}{}
		}
	}
	if p.counts() {
		s.counts = map[int32]float32{}
	}
	return s, nil
}

// Next chooses the token at position pos from the logits of the position before, and remembers it for the penalties.
// logits has one finite value for each token of the vocabulary and is not changed.
func (s *Sampler) Next(logits []float32, pos uint32) Choice {
	l := s.adjust(logits)
	var c Choice
	if s.p.Temperature == 0 {
		c.ID = greatest(l)
	} else {
		c.ID = s.draw(l, Uniform(s.p.Seed, pos))
	}
	if s.seen != nil {
		s.seen[c.ID] = struct{}{}
	}
	if s.counts != nil {
		s.counts[c.ID]++
	}
	if s.p.Logprobs {
		s.logprobs(logits, &c)
	}
	return c
}

// adjust applies bias and penalties. Without any it returns logits themselves.
func (s *Sampler) adjust(logits []float32) []float32 {
	if !s.p.adjusts() {
		return logits
	}
	s.row = append(s.row[:0], logits...)
	for id, b := range s.p.Bias {
		s.row[id] += b
	}
	for id := range s.seen {
		if v := s.row[id]; v > 0 {
			s.row[id] = v / s.p.Repetition
		} else {
			s.row[id] = v * s.p.Repetition
		}
	}
	for id, n := range s.counts {
		s.row[id] -= s.p.Frequency*n + s.p.Presence
	}
	return s.row
}

// greatest is the id of the greatest value, the lowest among equals.
func greatest(l []float32) int32 {
	best := 0
	for i, v := range l {
		if v > l[best] {
			best = i
		}
	}
	return int32(best)
}
