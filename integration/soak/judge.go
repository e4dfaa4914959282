package soak

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"leasehold.dev/integration/scenario"
	"leasehold.dev/model/canary"
)

// What an answer came to.
type outcome int

const (
	whole     outcome = iota // right, to its end, with a receipt
	cancelled                // by its tenant
	refused                  // for want of room
	lost                     // "unavailable", close to a kill
	wrong                    // anything else
)

// answer is one request's end as its tenant saw it.
type answer struct {
	scenario.Answer
	err        error // of the transport
	hungUp     bool  // its tenant did
	start, end time.Time
}

// near says whether a span of time touches a kill.
type near func(start, end time.Time) bool

// judge says what came of a request. what is empty unless the outcome is wrong. right judges a text, whole or not.
func judge(a answer, right func(text string, whole bool) error, near near) (o outcome, what string) {
	if err := right(a.Text, a.Completed); err != nil {
		return wrong, err.Error()
	}
	switch {
	case a.Completed && a.Err == nil && a.err == nil:
		if a.Receipt == "" || a.Finish == "" {
			return wrong, fmt.Sprintf("a whole answer, with finish_reason %q and a receipt of %d bytes", a.Finish, len(a.Receipt))
		}
		return whole, ""
	case a.hungUp && a.Err == nil && (a.err == nil || errors.Is(a.err, context.Canceled)):
		return cancelled, ""
	case a.err != nil:
		return wrong, a.err.Error()
	case a.Err == nil:
		return wrong, "an end without [DONE] and without an error"
	case code(a.Err) == "rate_limit_exceeded" && a.Text == "":
		return refused, ""
	case code(a.Err) == "service_unavailable" && near(a.start, a.end):
		return lost, ""
	}
	return wrong, a.Err.String()
}

func code(e *scenario.APIError) string {
	if e.Code == nil {
		return ""
	}
	return *e.Code
}

// echoed judges by the canary's prompt. foreign counts other tenants' markers.
func echoed(e canary.Echo, foreign func(int)) func(string, bool) error {
	return func(text string, whole bool) error {
		v := canary.Judge(e, canary.Parse(text))
		foreign(v.Leaked())
		if v.Leaked() > 0 || v.Other > 0 || whole && !v.Exact() {
			return fmt.Errorf("canary prompt of %d tokens: %v", len(e.Tokens), v)
		}
		return nil
	}
}

// repeated judges by what the same question got when nothing else ran.
func repeated(want string) func(string, bool) error {
	return func(text string, whole bool) error {
		if whole && text != want || !strings.HasPrefix(want, text) {
			return fmt.Errorf("an answer of %d bytes (whole: %v) is not the one of %d bytes that the same question got before", len(text), whole, len(want))
		}
		return nil
	}
}

// calm is how long after a worker is back a request may still feel its loss.
const calm = time.Second

// kills are the times during which a worker was away.
type kills struct {
	mu    sync.Mutex
	spans []span
}

type span struct{ from, to time.Time } // to is zero until it is over

func (k *kills) begin(at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.spans = append(k.spans, span{from: at})
}

func (k *kills) end(at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.spans[len(k.spans)-1].to = at.Add(calm)
}

func (k *kills) near(start, end time.Time) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.spans {
		if s.from.Before(end) && (s.to.IsZero() || s.to.After(start)) {
			return true
		}
	}
	return false
}

// Report is what one mesh has seen.
type Report struct {
	Requests  int      `json:"requests"`
	Whole     int      `json:"whole"`
	Cancelled int      `json:"cancelled"`
	Refused   int      `json:"refused"`
	Lost      int      `json:"lost_with_a_worker"`
	Tokens    int      `json:"tokens"` // prompts and answers, of whole answers
	Foreign   int      `json:"foreign_markers"`
	Kills     int      `json:"kills"`
	Replays   int      `json:"replays"` // by the router's own audit
	Faults    int      `json:"unexplained_faults"`
	First     []string `json:"first_faults,omitempty"`

	mu sync.Mutex
}

// mostFaults is how many are kept in words.
const mostFaults = 20

func (r *Report) fault(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.Faults++; len(r.First) < mostFaults {
		r.First = append(r.First, fmt.Sprintf(format, args...))
	}
}

func (r *Report) killed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Kills++
}

func (r *Report) foreign(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Foreign += n
}

func (r *Report) count(o outcome, tokens int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Requests++
	switch o {
	case whole:
		r.Whole++
		r.Tokens += tokens
	case cancelled:
		r.Cancelled++
	case refused:
		r.Refused++
	case lost:
		r.Lost++
	}
}
