package decode

import (
	"strings"
	"unicode/utf8"

	"leasehold.dev/protos/errs"
)

// Bounds of what a request may ask to stop at.
const (
	maxStops    = 16
	maxStopSize = 1 << 10
)

func checkStops(stops []string) error {
	if len(stops) > maxStops {
		return errs.New(errs.Invalid, "stop has %d strings, at most %d may be given", len(stops), maxStops)
	}
	for i, s := range stops {
		if s == "" || len(s) > maxStopSize || !utf8.ValidString(s) {
			return errs.New(errs.Invalid, "stop string %d has %d bytes, want 1 to %d of valid UTF-8", i, len(s), maxStopSize)
		}
	}
	return nil
}

// stops lets text through up to the first stop string, and holds back what may be the start of one.
type stops struct {
	list []string
	held string
}

// push adds text and returns what is safe to show; hit says that a stop string is complete, and that what follows the
// shown text is cut away.
func (s *stops) push(text string) (show string, hit bool) {
	if len(s.list) == 0 {
		return text, false
	}
	all := s.held + text
	cut := len(all)
	for _, stop := range s.list {
		if i := strings.Index(all[:min(len(all), cut+len(stop))], stop); i >= 0 && i < cut {
			cut, hit = i, true
		}
	}
	if hit {
		s.held = ""
		return all[:cut], true
	}
	keep := 0
	for _, stop := range s.list {
		keep = max(keep, overlap(all, stop))
	}
	s.held = all[len(all)-keep:]
	return all[:len(all)-keep], false
}

// rest ends the text: what was held back is no stop string.
func (s *stops) rest() string {
	held := s.held
	s.held = ""
	return held
}

// overlap is the length of the longest end of text that is a beginning of stop, and not all of it.
func overlap(text, stop string) int {
	for n := min(len(text), len(stop)-1); n > 0; n-- {
		if strings.HasSuffix(text, stop[:n]) {
			return n
		}
	}
	return 0
}
