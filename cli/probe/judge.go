package probe

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"leasehold.dev/model/canary"
)

// Answer is what came back for one request. Err is set when nothing did.
type Answer struct {
	Err        error
	Status     int
	Code       string // OpenAI's, of an error
	Message    string // of an error
	Text       string
	Prompt     int // usage
	Completion int
	Pair       string // that the router says it took
	Route      string
	Took       time.Duration
}

// Row is one line of a round's table.
type Row struct {
	Pair    string
	Check   Check
	OK      bool
	Told    bool   // the answer says whether the property holds; false: there was none to judge
	Got     string // in a few words
	Took    time.Duration
	Verdict canary.Verdict // of what was served; zero when nothing was
}

// Judge compares the answer to e, which was asked through pair, with what c wants.
func Judge(c Check, e canary.Echo, pair string, a Answer) Row {
	r := Row{Pair: pair, Check: c, Took: a.Took}
	switch {
	case a.Err != nil:
		r.Got = "no answer: " + a.Err.Error()
		return r
	case a.Status == http.StatusOK:
		r.Told = true
		r.Verdict = canary.Judge(e, canary.Parse(a.Text))
		r.Got = served(c, e, pair, a, r.Verdict)
		r.OK = r.Got == "echo"
		return r
	}
	r.Got = fmt.Sprintf("%d %s", a.Status, a.Code)
	switch c.Want {
	case Limit:
		r.Told = a.Status < http.StatusInternalServerError && a.Status != http.StatusTooManyRequests
		r.OK = a.Status == http.StatusBadRequest && a.Code == "context_length_exceeded"
		if r.OK && !strings.Contains(a.Message, strconv.Itoa(c.Tokens)) {
			r.OK, r.Got = false, r.Got+", without the numbers"
		}
	case NoPair:
		r.Told, r.OK = true, a.Status == http.StatusServiceUnavailable
	}
	return r
}

// served is "echo" for an answer that is right in everything, and else what is wrong with it.
func served(c Check, e canary.Echo, pair string, a Answer, v canary.Verdict) string {
	switch {
	case c.Want != Echo:
		return "SERVED, and must not be"
	case a.Pair != pair:
		return fmt.Sprintf("through pair %q", a.Pair)
	case strings.HasPrefix(pair, "/") == strings.HasPrefix(a.Route, "split:"):
		return fmt.Sprintf("by route %q", a.Route)
	case !v.Exact():
		return v.String()
	case a.Prompt != len(e.Tokens) || a.Completion != canary.Answer:
		return fmt.Sprintf("usage %d + %d", a.Prompt, a.Completion)
	}
	return "echo"
}
