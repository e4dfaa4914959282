package tokenizer

import (
	"slices"
)

// specials finds special tokens in text. Lookup at a place costs one map access for each length that a special token
// with the same first byte has.
type specials struct {
	byText  map[string]int32
	control map[int32]bool
	lengths [256][]int // by first byte, longest first
}

func (s *specials) add(text []byte, id int32, control bool) {
	if len(text) == 0 {
		return
	}
	if s.byText == nil {
		s.byText, s.control = map[string]int32{}, map[int32]bool{}
	}
	if _, twice := s.byText[string(text)]; twice {
		return // the lower id stands
	}
	s.byText[string(text)] = id
	s.control[id] = control
	l := &s.lengths[text[0]]
	if at, found := slices.BinarySearchFunc(*l, len(text), func(a, b int) int { return b - a }); !found {
		*l = slices.Insert(*l, at, len(text))
	}
}

// next finds the first special token in text. If there is none, start and end are len(text).
func (s *specials) next(text string, control bool) (start, end int, id int32) {
	for i := 0; i < len(text); i++ {
		for _, n := range s.lengths[text[i]] {
			if n > len(text)-i {
				continue
			}
			if id, ok := s.byText[text[i:i+n]]; ok && (control || !s.control[id]) {
				return i, i + n, id
			}
		}
	}
	return len(text), len(text), 0
}
