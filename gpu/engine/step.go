//go:build cgo

package engine

// #include "engine.h"
import "C"

import (
	"unsafe"

	"leasehold.dev/gpu/layout"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

const faultsPerWork = 16

// stepMemory is what a step reads and writes; it grows to the largest step and is used again.
type stepMemory struct {
	out     Step
	rows    [][]float32      // Result.Logits are parts of it
	digests []pagesum.Digest // Result.LogitDigests are parts of it

	work    []C.lh_work
	tokens  []int32
	results []C.lh_result
	logits  []float32
	lanes   []uint64 // two for each logits row
	pages   []C.lh_page_digest
	faults  []C.lh_fault
}

// Step runs one step. An Invalid error leaves every sequence as it was; after any other they are closed. What a fault
// does is in the result of its sequence, and is no error.
func (e *Engine) Step(work []Work) (*Step, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ptr == nil {
		return nil, errClosed
	}
	m := &e.step
	rows, err := m.prepare(work, e.vocab)
	if err != nil {
		return nil, err
	}
	faultyStep()
	rc := C.lh_step(e.ptr, first(m.work), C.uint32_t(len(m.work)), (*C.int32_t)(first(m.tokens)), C.uint32_t(len(m.tokens)),
		first(m.results), (*C.float)(first(m.logits)), C.uint32_t(rows), (*C.uint64_t)(first(m.lanes)),
		first(m.pages), C.uint32_t(len(m.pages)), &e.nDigests, first(m.faults), C.uint32_t(len(m.faults)), &e.nFaults,
		&e.msg[0], C.int(len(e.msg)))
	if err := e.fault("step", rc); err != nil {
		return nil, err
	}
	m.collect(e.vocab, int(e.nDigests), int(e.nFaults))
	return &m.out, nil
}

// prepare copies the plan and makes room for what it asks for: rows of logits.
func (m *stepMemory) prepare(work []Work, vocab int) (rows int, err error) {
	if len(work) == 0 {
		return 0, errs.New(errs.Invalid, "engine: step: no work")
	}
	m.work, m.tokens = m.work[:0], m.tokens[:0]
	pages := 0
	for i, w := range work {
		if len(w.Tokens) == 0 || w.Want > All {
			return 0, errs.New(errs.Invalid, "engine: step: work %d has %d tokens, want %d", i, len(w.Tokens), w.Want)
		}
		m.work = append(m.work, C.lh_work{
			seq: C.uint32_t(w.Seq), pos: C.uint32_t(w.Pos), count: C.uint32_t(len(w.Tokens)), want: C.uint32_t(w.Want),
		})
		m.tokens = append(m.tokens, w.Tokens...)
		pages += len(w.Tokens)/layout.PageTokens + 2
		switch w.Want {
		case Last:
			rows++
		case All:
			rows += len(w.Tokens)
		}
	}
	m.results = room(m.results, len(work))
	m.logits = room(m.logits, rows*vocab)
	m.lanes = room(m.lanes, 2*rows)
	m.pages = room(m.pages, pages)
	m.faults = room(m.faults, len(work)*faultsPerWork)
	return rows, nil
}

func (m *stepMemory) collect(vocab, nPages, nFaults int) {
	m.rows, m.digests = m.rows[:0], m.digests[:0]
	for i := 0; i < len(m.lanes); i += 2 {
		m.rows = append(m.rows, m.logits[i/2*vocab:][:vocab:vocab])
		m.digests = append(m.digests, pagesum.FromLanes([2]uint64{m.lanes[i], m.lanes[i+1]}))
	}
	m.out.Results, m.out.Pages, m.out.Faults = m.out.Results[:0], m.out.Pages[:0], m.out.Faults[:0]
	for _, r := range m.results {
		a, b := r.logits, r.logits+r.n_logits
		m.out.Results = append(m.out.Results, Result{
			Length: uint32(r.length), Faults: uint32(r.faults), Bad: r.bad != 0, Logits: m.rows[a:b:b], LogitDigests: m.digests[a:b:b],
		})
	}
	for _, p := range m.pages[:nPages] {
		m.out.Pages = append(m.out.Pages, PageDigest{
			Seq: SeqID(p.seq), Place: uint32(p.place), Rows: uint32(p.rows),
			Digest: pagesum.FromLanes([2]uint64{uint64(p.digest[0]), uint64(p.digest[1])}),
		})
	}
	for _, f := range m.faults[:nFaults] {
		m.out.Faults = append(m.out.Faults, Fault{
			Kind: FaultKind(f.kind), Seq: SeqID(f.seq), Page: uint32(f.page), Want: uint64(f.want), Got: uint64(f.got),
		})
	}
}

// room is s with length n; its elements are whatever was there.
func room[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}

// first is where s begins; nil when it is empty.
func first[T any](s []T) *T { return unsafe.SliceData(s) }

func pageSum(l layout.Layout, page, copied []byte, rows uint32, k *pagesum.Keys) (pagesum.Digest, uint32, error) {
	var lanes [2]C.uint64_t
	var nonzero C.uint32_t
	words, blocked := k.Words(), k.Blocked()
	rc := C.lh_page_sum(backendCode(l), C.uint32_t(l.DType), C.uint32_t(l.Layers), C.uint32_t(l.KVHeads), C.uint32_t(l.HeadDim),
		unsafe.Pointer(&page[0]), unsafe.Pointer(first(copied)), C.uint32_t(rows), (*C.uint32_t)(&words[0]), C.size_t(len(words)),
		(*C.uint64_t)(&blocked[0]), &lanes[0], &nonzero)
	switch rc {
	case C.LH_OK:
		return pagesum.FromLanes([2]uint64{uint64(lanes[0]), uint64(lanes[1])}), uint32(nonzero), nil
	case C.LH_EUNSUPPORTED: // a shape that C does not have
		d, n := gatherSum(l, arrived(page, copied), rows, k)
		return d, n, nil
	}
	return pagesum.Digest{}, 0, errs.New(errs.Internal, "page sum: code %d", int(rc))
}
