package sample

import (
	"cmp"
	"math"
	"slices"
)

// negligible is the scaled logit under which a token has weight 0: all such tokens of a vocabulary of 2^17 together have
// less than 10^-12 of the greatest one's weight.
const negligible = -40

type candidate struct {
	id int32
	l  float32
	w  float64
}

// order sorts the greatest first, lower ids first among equals.
func order(a, b candidate) int { return cmp.Or(cmp.Compare(b.l, a.l), cmp.Compare(a.id, b.id)) }

// draw chooses from adjusted logits with u in [0, 1).
func (s *Sampler) draw(l []float32, u float64) int32 {
	best := l[greatest(l)]
	weight := func(v float32) float64 {
		if z := (float64(v) - float64(best)) / float64(s.p.Temperature); z >= negligible {
			return math.Exp(z)
		}
		return 0
	}
	s.cand = s.cand[:0]
	if k := s.p.topK(len(l)); k > 0 {
		s.keepGreatest(l, k)
		for i := range s.cand {
			s.cand[i].w = weight(s.cand[i].l)
		}
	} else {
		for i, v := range l {
			if w := weight(v); w > 0 {
				s.cand = append(s.cand, candidate{int32(i), v, w})
			}
		}
	}
	if s.p.nucleus() {
		s.keepNucleus()
	}
	if m := float64(s.p.MinP); m > 0 { // the greatest weight is 1
		s.cand = slices.DeleteFunc(s.cand, func(c candidate) bool { return c.w < m })
	}
	if s.p.TopK > 0 || s.p.nucleus() {
		slices.SortFunc(s.cand, func(a, b candidate) int { return cmp.Compare(a.id, b.id) })
	}
	return walk(s.cand, u)
}

// keepNucleus cuts cand to the shortest run of the greatest whose weights reach TopP of all.
func (s *Sampler) keepNucleus() {
	total := 0.0
	for _, c := range s.cand {
		total += c.w
	}
	// All tokens lighter than rest/n together weigh less than rest, so none of them is needed to reach the share: only
	// the others are sorted.
	share := float64(s.p.TopP) * total
	floor := (total - share) / float64(len(s.cand)) * 0.999
	s.cand = slices.DeleteFunc(s.cand, func(c candidate) bool { return c.w < floor })
	slices.SortFunc(s.cand, order)
	sum := 0.0
	for i, c := range s.cand {
		if sum += c.w; sum >= share {
			s.cand = s.cand[:i+1]
			return
		}
	}
}

// keepGreatest makes cand the k greatest of l: a heap whose root is the least of them.
func (s *Sampler) keepGreatest(l []float32, k int) {
	h := s.cand[:0]
	for i, v := range l {
		c := candidate{id: int32(i), l: v}
		switch {
		case len(h) < k:
			h = append(h, c)
			for j := len(h) - 1; j > 0 && order(h[j], h[(j-1)/2]) > 0; j = (j - 1) / 2 {
				h[j], h[(j-1)/2] = h[(j-1)/2], h[j]
			}
		case v > h[0].l: // an equal one has a higher id than all that are there
			h[0] = c
			sift(h)
		}
	}
	s.cand = h
}

func sift(h []candidate) {
	for j := 0; ; {
		least := j
		for c := 2*j + 1; c <= 2*j+2 && c < len(h); c++ {
			if order(h[c], h[least]) > 0 {
				least = c
			}
		}
		if least == j {
			return
		}
		h[j], h[least] = h[least], h[j]
		j = least
	}
}

func walk(cand []candidate, u float64) int32 {
	total := 0.0
	for _, c := range cand {
		total += c.w
	}
	sum, last := 0.0, cand[0].id
	for _, c := range cand {
		if c.w == 0 {
			continue
		}
		last = c.id
		if sum += c.w; sum > u*total {
			return c.id
		}
	}
	return last
}

// logprobs fills c from raw logits: log-softmax, with the sum of exponentials in float64.
func (s *Sampler) logprobs(raw []float32, c *Choice) {
	best := float64(raw[greatest(raw)])
	sum := 0.0
	for _, v := range raw {
		sum += math.Exp(float64(v) - best)
	}
	lse := best + math.Log(sum)
	c.Logprob = float32(float64(raw[c.ID]) - lse)
	if s.p.Top == 0 {
		return
	}
	s.keepGreatest(raw, min(s.p.Top, len(raw)))
	slices.SortFunc(s.cand, order)
	for _, t := range s.cand {
		c.Top = append(c.Top, Top{t.id, float32(float64(t.l) - lse)})
	}
}
