package event

import (
	"encoding/json"

	"leasehold.dev/protos/errs"
)

// Page is one page of a pool, with the generation of its tag; 0: it has none that is known, being Nobody's.
type Page struct {
	Number     uint32
	Generation uint64
}

// Pages is a list of pages in order. In JSON it is a list of runs [first, last, generation]: the pages from first to last, up or
// down, whose generations are all 0 or go up by [GenerationStep] from generation.
type Pages []Page

// GenerationStep is how far the generations of two pages of one grant are apart.
const GenerationStep = 2

// maxPages bounds a list that is read.
const maxPages = 1 << 26

// Numbered are pages without generations.
func Numbered(numbers []uint32) Pages {
	out := make(Pages, len(numbers))
	for i, n := range numbers {
		out[i].Number = n
	}
	return out
}

type run [3]uint64

// MarshalJSON joins neighbours into runs.
func (p Pages) MarshalJSON() ([]byte, error) {
	runs := []run{}
	for i := 0; i < len(p); {
		j, way := i+1, int64(0)
		for ; j < len(p); j++ {
			d := int64(p[j].Number) - int64(p[j-1].Number)
			if d != 1 && d != -1 || way != 0 && d != way || !follows(p[j-1].Generation, p[j].Generation) {
				break
			}
			way = d
		}
		runs = append(runs, run{uint64(p[i].Number), uint64(p[j-1].Number), p[i].Generation})
		i = j
	}
	return json.Marshal(runs)
}

func follows(a, b uint64) bool {
	return a == 0 && b == 0 || a != 0 && b == a+GenerationStep
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (p *Pages) UnmarshalJSON(b []byte) error {
	var runs []run
	if err := json.Unmarshal(b, &runs); err != nil {
		return errs.New(errs.Invalid, "pages: %w", err)
	}
	total := uint64(0)
	for _, r := range runs {
		if r[0] >= maxPages || r[1] >= maxPages {
			return errs.New(errs.Invalid, "pages %d to %d, want less than %d", r[0], r[1], maxPages)
		}
		if total += max(r[0], r[1]) - min(r[0], r[1]) + 1; total > maxPages {
			return errs.New(errs.Invalid, "more than %d pages", maxPages)
		}
	}
	*p = make(Pages, 0, total)
	for _, r := range runs {
		n, g := r[0], r[2]
		for {
			*p = append(*p, Page{uint32(n), g})
			if n == r[1] {
				break
			}
			if g != 0 {
				g += GenerationStep
			}
			if n < r[1] {
				n++
			} else {
				n--
			}
		}
	}
	return nil
}
