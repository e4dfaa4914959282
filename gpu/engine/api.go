package engine

import (
	"leasehold.dev/gpu/layout"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

// Options of an engine. Zero values give the defaults.
type Options struct {
	Backend   string // layout.CPU, layout.Ref or layout.RefF32
	SIMD      string // cpu only: "avx2" or "avx512"; "" is the best that the machine has
	Threads   int    // default GOMAXPROCS
	MaxTokens int    // most rows of one step; default 512
	MaxSeqs   int    // most open sequences; default 64
	GuardsOff bool   // no tag checks and no page digests
	CacheDir  string // where packed weights are kept; "" packs into memory at each Open
}

func (o Options) withDefaults(procs int) (Options, error) {
	for _, d := range []struct {
		name      string
		v         *int
		def, most int
	}{
		{"threads", &o.Threads, procs, 1 << 10}, {"max tokens", &o.MaxTokens, 512, 1 << 20}, {"max sequences", &o.MaxSeqs, 64, 1 << 16},
	} {
		if *d.v == 0 {
			*d.v = d.def
		}
		if *d.v < 1 || *d.v > d.most {
			return o, errs.New(errs.Invalid, "engine: %s is %d, want 1 to %d", d.name, *d.v, d.most)
		}
	}
	switch {
	case layout.NumericsClass(o.Backend) == "":
		return o, errs.New(errs.Invalid, "engine: back end %q is none of %s, %s, %s", o.Backend, layout.CPU, layout.Ref, layout.RefF32)
	case o.SIMD != "" && o.Backend != layout.CPU:
		return o, errs.New(errs.Invalid, "engine: back end %s has no SIMD path %q", o.Backend, o.SIMD)
	}
	return o, nil
}

// SeqID names an open sequence. Ids are not reused soon; a closed one is refused.
type SeqID uint32

// Want says which of a work item's rows give logits.
type Want uint32

// Wants.
const (
	None Want = iota
	Last
	All
)

// Work is one sequence's part of a step: Tokens are appended at Pos, which must be the sequence's length.
type Work struct {
	Seq    SeqID
	Pos    uint32
	Tokens []int32
	Want   Want
}

// Step is what a step gave. It is the engine's memory, and good until the next Step or Close.
type Step struct {
	Results []Result // one for each Work, in order
	Pages   []PageDigest
	Faults  []Fault
}

// Result of one work item.
type Result struct {
	Length       uint32           // rows appended to the sequence so far, counted by the engine
	Faults       uint32           // records of this sequence in this step; if any, its logits are NaN and nothing was appended
	Logits       [][]float32      // a row for each wanted token
	LogitDigests []pagesum.Digest // of the rows
	Bad          bool             // NaN or Inf among the logits
}

// PageDigest is the running digest of a page that this step appended to.
type PageDigest struct {
	Seq         SeqID
	Place, Rows uint32 // which page of the sequence; rows in it so far
	Digest      pagesum.Digest
}

// FaultKind says what a guard found.
type FaultKind uint32

// Fault kinds.
const (
	FaultRead   FaultKind = iota + 1 // a page to read has another tag than was granted
	FaultWrite                       // a page to append to has another tag, or is sealed
	FaultLength                      // the plan's position is not the engine's length
	FaultPages                       // the sequence's pages have no room for the plan's rows
)

var faultNames = [...]string{"unknown", "read", "write", "length", "pages"}

// String is the kind's name in metrics and logs.
func (k FaultKind) String() string {
	if int(k) < len(faultNames) {
		return faultNames[k]
	}
	return faultNames[0]
}

// Fault is one record. READ and WRITE: Page in the pool, tags wanted and found. LENGTH: Page is the engine's length, Want
// the plan's position. PAGES: Page is the number of pages, Want the rows needed, Got the rows there is room for.
type Fault struct {
	Kind      FaultKind
	Seq       SeqID
	Page      uint32
	Want, Got uint64
}
