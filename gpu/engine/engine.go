//go:build cgo

package engine

// #cgo CXXFLAGS: -std=c++17 -O3 -Wall -Wextra -pthread
// #cgo LDFLAGS: -pthread -lm
// #include <stdlib.h>
// #include "engine.h"
import "C"

import (
	"runtime"
	"sync"
	"unsafe"

	"leasehold.dev/gpu/layout"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/model"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

// Engine is one model on one back end. Its methods may be called from any goroutine; steps run one at a time.
type Engine struct {
	opt    Options
	layout layout.Layout
	keys   *pagesum.Keys
	vocab  int

	mu    sync.Mutex
	ptr   *C.lh_engine // nil after Close
	packs *packed      // cpu only
	step  stepMemory

	// Out-parameters of C calls: here, not on the stack, where each would be an allocation.
	msg      [256]C.char
	id       C.uint32_t
	nDigests C.uint32_t
	nFaults  C.uint32_t
}

// Pool is a mapping attached to an engine. Its sequences end with it.
type Pool struct {
	e      *Engine
	id     C.uint32_t
	mapped *pool.Mapping
}

var simdNames = map[string]C.uint32_t{"": C.LH_SIMD_NONE, "avx2": C.LH_SIMD_AVX2, "avx512": C.LH_SIMD_AVX512}

// SIMDs are the paths of the cpu back end that this machine can run, the best last.
func SIMDs() []string {
	var have []string
	for _, name := range []string{"avx2", "avx512"} {
		if C.lh_simd()>>simdNames[name]&1 != 0 {
			have = append(have, name)
		}
	}
	return have
}

// Open makes an engine for m, which must stay open until the engine is closed: weights are used where m maps them.
// Unavailable: the machine lacks what the back end needs. Invalid: options or model do not fit.
func Open(m *model.Model, o Options) (*Engine, error) {
	o, err := o.withDefaults(runtime.GOMAXPROCS(0))
	if err != nil {
		return nil, err
	}
	simd, ok := simdNames[o.SIMD]
	if !ok {
		return nil, errs.New(errs.Invalid, "engine: SIMD path %q is none of avx2, avx512", o.SIMD)
	}
	l, err := layout.Of(m.Config, o.Backend)
	if err != nil {
		return nil, err
	}
	if o.SIMD == "" && o.Backend == layout.CPU {
		if have := SIMDs(); len(have) > 0 {
			o.SIMD = have[len(have)-1]
			simd = simdNames[o.SIMD]
		}
	}
	hash := l.Hash()
	e := &Engine{opt: o, layout: l, keys: pagesum.Expand(hash[:], m.Revision[:], l.Shape()), vocab: int(m.Config.Vocab)}
	desc, err := describe(m)
	if err != nil {
		return nil, err
	}
	defer desc.free()
	if err := e.open(m, desc, simd); err != nil {
		e.packs.close()
		return nil, err
	}
	return e, nil
}

func (e *Engine) open(m *model.Model, desc *description, simd C.uint32_t) error {
	opt := C.lh_options{
		backend: backendCode(e.layout), simd: simd, kv: C.uint32_t(e.layout.DType), threads: C.uint32_t(e.opt.Threads),
		max_tokens: C.uint32_t(e.opt.MaxTokens), max_seqs: C.uint32_t(e.opt.MaxSeqs), guards: 1,
	}
	if e.opt.GuardsOff {
		opt.guards = 0
	}
	if e.opt.Backend == layout.CPU {
		var err error
		if e.packs, err = pack(m, desc, e.opt); err != nil {
			return err
		}
		opt.packed, opt.packed_bytes = e.packs.base(), C.size_t(e.packs.bytes)
	}
	words := append(append([]uint32(nil), e.keys.Words()...), pagesum.LogitWords(e.vocab)...)
	opt.digest_keys, opt.digest_words = cArray[C.uint32_t](words), C.size_t(len(words))
	defer C.free(unsafe.Pointer(opt.digest_keys))
	return e.fault("open "+e.opt.Backend, C.lh_open(&opt, &desc.model, &e.ptr, &e.msg[0], C.int(len(e.msg))))
}

func backendCode(l layout.Layout) C.uint32_t {
	if l.Order == layout.Pair {
		return C.LH_BACKEND_CPU
	}
	return C.LH_BACKEND_REF
}

// cArray copies words to memory that C owns, since a struct that goes to C may not point at ours.
func cArray[T any](words []uint32) *T {
	p := C.malloc(C.size_t(4 * len(words)))
	copy(unsafe.Slice((*uint32)(p), len(words)), words)
	return (*T)(p)
}

// Layout of the pages that the engine reads and writes.
func (e *Engine) Layout() layout.Layout { return e.layout }

// NumericsClass of the engine's results.
func (e *Engine) NumericsClass() string { return layout.NumericsClass(e.opt.Backend) }

// SIMD path in use; empty for the reference.
func (e *Engine) SIMD() string { return e.opt.SIMD }

// Keys of the engine's page digests.
func (e *Engine) Keys() *pagesum.Keys { return e.keys }

// Close frees the engine, its pools' handles and its sequences. It waits for a running step and may be called twice.
func (e *Engine) Close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	C.lh_close(e.ptr)
	e.ptr = nil
	e.packs.close()
}

// Attach gives the engine a pool. m must stay mapped until the Pool or the Engine is closed.
func (e *Engine) Attach(m *pool.Mapping) (*Pool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ptr == nil {
		return nil, errClosed
	}
	rc := C.lh_pool_open(e.ptr, m.Base(), C.uint64_t(m.PageBytes()), C.uint32_t(m.Pages()), (*C.uint64_t)(m.Tags()),
		&e.id, &e.msg[0], C.int(len(e.msg)))
	if err := e.fault("attach pool", rc); err != nil {
		return nil, err
	}
	return &Pool{e: e, id: e.id, mapped: m}, nil
}

// Close ends the pool's sequences and detaches it. When it has returned, the engine does not touch the mapping. A second
// Close is Invalid.
func (p *Pool) Close() error {
	p.e.mu.Lock()
	defer p.e.mu.Unlock()
	if p.e.ptr == nil {
		return errClosed
	}
	if C.lh_pool_close(p.e.ptr, p.id) != C.LH_OK {
		return errs.New(errs.Invalid, "engine: close pool: it is closed")
	}
	return nil
}

// OpenSeq opens a sequence over pages granted with tags, whose first verified rows are written and checked. start is the
// digest of the rows in the last, partial page; nil when verified is a multiple of 64.
func (p *Pool) OpenSeq(verified uint32, pages []uint32, tags []pool.Tag, start *pagesum.Digest) (SeqID, error) {
	if len(pages) == 0 || len(pages) != len(tags) {
		return 0, errs.New(errs.Invalid, "engine: open sequence: %d pages, %d tags", len(pages), len(tags))
	}
	var lanes *[2]uint64
	if start != nil {
		l := start.Lanes()
		lanes = &l
	}
	e := p.e
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ptr == nil {
		return 0, errClosed
	}
	rc := C.lh_seq_open(e.ptr, p.id, C.uint32_t(verified), (*C.uint32_t)(&pages[0]), (*C.uint64_t)(unsafe.Pointer(&tags[0])),
		C.uint32_t(len(pages)), (*C.uint64_t)(unsafe.Pointer(lanes)), &e.id, &e.msg[0], C.int(len(e.msg)))
	return SeqID(e.id), e.fault("open sequence", rc)
}

// CloseSeq ends a sequence. Its pages are not touched after.
func (e *Engine) CloseSeq(s SeqID) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ptr == nil {
		return errClosed
	}
	if C.lh_seq_close(e.ptr, C.uint32_t(s)) != C.LH_OK {
		return errs.New(errs.Invalid, "engine: close sequence: no such sequence")
	}
	return nil
}

var errClosed = errs.New(errs.Unavailable, "engine: it is closed")

// GuardSeq turns the guards on for a sequence without rows, in an engine that was opened without them: what guards cost is
// measured on one engine's memory.
func (e *Engine) GuardSeq(s SeqID) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ptr == nil {
		return errClosed
	}
	if C.lh_seq_guard(e.ptr, C.uint32_t(s)) != C.LH_OK {
		return errs.New(errs.Invalid, "engine: guard sequence: no such sequence, or it has rows")
	}
	return nil
}

// fault is nil for LH_OK. The caller holds e.mu, or nobody else has e yet.
func (e *Engine) fault(op string, rc C.int) error {
	if rc == C.LH_OK {
		return nil
	}
	kind := errs.Internal
	switch rc {
	case C.LH_EINVAL:
		kind = errs.Invalid
	case C.LH_ENOMEM:
		kind = errs.Exhausted
	case C.LH_EUNSUPPORTED:
		kind = errs.Unavailable
	}
	return errs.New(kind, "engine: %s: %s", op, C.GoString(&e.msg[0]))
}
