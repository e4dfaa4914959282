// Package single runs an engine by itself, in this process, on a pool of its own: what a request gives when nothing is
// split, moved or shared. Bars and scenario tests compare meshes with it.
package single

import (
	"errors"
	"fmt"
	"slices"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/model"
	"leasehold.dev/protos/pagesum"
)

// Runner is one engine on one pool. It is not safe for concurrent use.
type Runner struct {
	Engine *engine.Engine
	pool   *pool.Pool
	mapped *pool.Mapping
	handle *engine.Pool
	free   []uint32
	gen    uint64
}

// Open makes an engine of m and a pool of pages for it.
func Open(m *model.Model, o engine.Options, pages uint32) (*Runner, error) {
	e, err := engine.Open(m, o)
	if err != nil {
		return nil, err
	}
	r := &Runner{Engine: e, gen: 1}
	if err := r.attach(e.Layout(), pages); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

func (r *Runner) attach(l layout.Layout, pages uint32) (err error) {
	if r.pool, err = pool.New(pages, l.PageBytes()); err != nil {
		return err
	}
	poolFile, tagFile := r.pool.Files()
	if r.mapped, err = pool.Map(poolFile, tagFile, pages, l.PageBytes()); err != nil {
		return err
	}
	for i := range pages {
		r.free = append(r.free, i)
	}
	r.handle, err = r.Engine.Attach(r.mapped)
	return err
}

// Close gives everything back.
func (r *Runner) Close() error {
	var all []error
	if r.handle != nil {
		all = append(all, r.handle.Close())
	}
	if r.Engine != nil {
		r.Engine.Close()
	}
	if r.mapped != nil {
		all = append(all, r.mapped.Close())
	}
	if r.pool != nil {
		all = append(all, r.pool.Close())
	}
	return errors.Join(all...)
}

// Seq is one sequence of a Runner.
type Seq struct {
	ID    engine.SeqID
	r     *Runner
	pages []uint32
	n     uint32 // rows fed
	twin  bool   // the pages are another's
}

// Open starts a sequence that may grow to rows, on zeroed pages.
func (r *Runner) Open(rows int) (*Seq, error) {
	n := (rows + layout.PageTokens - 1) / layout.PageTokens
	if n > len(r.free) {
		return nil, fmt.Errorf("single: %d pages wanted, %d free", n, len(r.free))
	}
	s := &Seq{r: r, pages: slices.Clone(r.free[:n])}
	r.free = r.free[n:]
	tags := make([]pool.Tag, n)
	for i, p := range s.pages {
		r.gen++
		tags[i] = pool.MakeTag(1, r.gen)
		r.pool.Zero(p)
		r.pool.StoreTag(p, tags[i])
	}
	id, err := r.handle.OpenSeq(0, s.pages, tags, nil)
	s.ID = id
	return s, err
}

// Twin is another sequence on the same pages. Both are to be fed the same: each writes what the other has written. It is closed
// before s.
func (s *Seq) Twin() (*Seq, error) {
	tags := make([]pool.Tag, len(s.pages))
	for i, p := range s.pages {
		tags[i] = s.r.pool.LoadTag(p)
	}
	id, err := s.r.handle.OpenSeq(0, s.pages, tags, nil)
	return &Seq{ID: id, r: s.r, pages: s.pages, twin: true}, err
}

// Close ends the sequence and frees its pages.
func (s *Seq) Close() error {
	err := s.r.Engine.CloseSeq(s.ID)
	if s.twin {
		return err
	}
	for _, p := range s.pages {
		s.r.pool.StoreTag(p, 0)
	}
	s.r.free = append(s.r.free, s.pages...)
	return err
}

// Out is what the last token of a Feed gave. Logits are a copy.
type Out struct {
	Logits []float32
	Digest pagesum.Digest
}

// Feed appends tokens in chunks and returns the logits that follow the last.
func (s *Seq) Feed(tokens []int32, chunk int) (Out, error) {
	for len(tokens) > 0 {
		k := min(chunk, len(tokens))
		want := engine.None
		if k == len(tokens) {
			want = engine.Last
		}
		st, err := s.r.Engine.Step([]engine.Work{{Seq: s.ID, Pos: s.n, Tokens: tokens[:k], Want: want}})
		if err != nil {
			return Out{}, err
		}
		res := st.Results[0]
		if res.Faults > 0 || res.Bad {
			return Out{}, fmt.Errorf("single: %d faults, bad logits %v at row %d: %+v", res.Faults, res.Bad, s.n, st.Faults)
		}
		s.n, tokens = s.n+uint32(k), tokens[k:]
		if len(tokens) == 0 {
			return Out{slices.Clone(res.Logits[0]), res.LogitDigests[0]}, nil
		}
	}
	return Out{}, errors.New("single: nothing to feed")
}

// Top is the id of the largest logit, the lowest id on a tie.
func Top(logits []float32) int32 {
	best := 0
	for i, v := range logits {
		if v > logits[best] {
			best = i
		}
	}
	return int32(best)
}
