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

// weights are those of the doc: of adjusted logits, the greatest of which is best.
type weights struct{ best, temperature float64 }

func (w weights) scaled(v float32) float64 { return (float64(v) - w.best) / w.temperature }

func (w weights) of(v float32) float64 {
	if z := w.scaled(v); z >= negligible {
		return exp(z)
	}
	return 0
}

// draw chooses from adjusted logits with u in [0, 1).
func (s *Sampler) draw(l []float32, u float64) int32 {
	w := weights{float64(l[greatest(l)]), float64(s.p.Temperature)}
	m := float64(s.p.MinP)
	s.cand = s.cand[:0]
	switch k := s.p.topK(len(l)); {
	case k > 0:
		s.keepGreatest(l, k)
		for i := range s.cand {
			s.cand[i].w = w.of(s.cand[i].l)
		}
		total := 0.0
		for _, c := range s.cand {
			total += c.w
		}
		s.keepNucleus(total)
	case s.p.nucleus():
		total := 0.0
		for _, v := range l {
			total += w.of(v)
		}
		// All tokens lighter than rest/n weigh less than rest together, so none of them is needed to reach the share.
		s.keepHeavier(l, w, (1-float64(s.p.TopP))*total/float64(len(l)))
		s.keepNucleus(total)
	case m > 0:
		s.keepHeavier(l, w, m)
	default:
		return s.walk(len(l), u, func(i int) (int32, float64) { return int32(i), w.of(l[i]) })
	}
	if m > 0 { // the greatest weight is 1
		s.cand = slices.DeleteFunc(s.cand, func(c candidate) bool { return c.w < m })
	}
	slices.SortFunc(s.cand, func(a, b candidate) int { return cmp.Compare(a.id, b.id) })
	return s.walk(len(s.cand), u, func(i int) (int32, float64) { return s.cand[i].id, s.cand[i].w })
}

// keepHeavier makes cand those of l whose weight is at least floor, and perhaps some that are hardly lighter. It takes
// one comparison for each of the others.
func (s *Sampler) keepHeavier(l []float32, w weights, floor float64) {
	least := math.Log(floor) - 1e-3
	for i, v := range l {
		if w.scaled(v) >= least {
			s.cand = append(s.cand, candidate{int32(i), v, w.of(v)})
		}
	}
}

// keepNucleus cuts cand to the shortest run of the greatest whose weights reach TopP of total.
func (s *Sampler) keepNucleus(total float64) {
	if !s.p.nucleus() {
		return
	}
	slices.SortFunc(s.cand, order)
	share, sum := float64(s.p.TopP)*total, 0.0
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

// run is the survivors of one block of ids.
type run struct {
	first int
	sum   float64
}

// block is how many ids are summed by themselves before their sum is added to the others.
const block = 1024

// walk chooses among n survivors in id order: the first whose running sum is over u times the whole sum. Sums are taken
// by blocks of ids, so that only the weights of one block are asked for twice, and added in one order, whoever survives.
func (s *Sampler) walk(n int, u float64, at func(int) (id int32, w float64)) (chosen int32) {
	s.runs = s.runs[:0]
	of := int32(-1) // the block that the last run is of
	for i := range n {
		id, w := at(i)
		if id/block != of {
			of = id / block
			s.runs = append(s.runs, run{first: i})
		}
		s.runs[len(s.runs)-1].sum += w
		if w > 0 {
			chosen = id // should rounding leave nobody: the last that has weight
		}
	}
	total := 0.0
	for _, r := range s.runs {
		total += r.sum
	}
	before := 0.0
	for _, r := range s.runs {
		if before+r.sum <= u*total {
			before += r.sum
			continue
		}
		sum := 0.0
		for i := r.first; ; i++ { // ends at the latest with r.sum
			id, w := at(i)
			if sum += w; before+sum > u*total {
				return id
			}
		}
	}
	return chosen
}

// logprobs fills c from raw logits: log-softmax, with the sum of exponentials in float64.
func (s *Sampler) logprobs(raw []float32, c *Choice) {
	w := weights{float64(raw[greatest(raw)]), 1}
	sum := 0.0
	for _, v := range raw {
		sum += w.of(v)
	}
	lse := w.best + math.Log(sum)
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
