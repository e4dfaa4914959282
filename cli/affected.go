package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"leasehold.dev/cli/history"
	"leasehold.dev/mesh/audit"
	"leasehold.dev/protos/errs"
)

type auditAffected struct {
	auditLogs
	From string `help:"Responses that ran at this time or later, as 2006-01-02T15:04:05Z." placeholder:"TIME"`
	To   string `help:"Responses that ran at this time or earlier." placeholder:"TIME"`
	Pair string `help:"Responses of this pair of workers; /D is D without prefill." placeholder:"P/D" xor:"what"`
	Page string `help:"Responses that used this page." placeholder:"BROKER:PAGE" xor:"what"`
}

// Run prints the responses, and fails when the logs were changed or leave something out: then there may be more.
func (c *auditAffected) Run(_ context.Context, s streams) error {
	q, err := c.query()
	if err != nil {
		return err
	}
	h := &history.History{}
	reports, broken := c.read(s, func(r *audit.Record, at audit.Place) error {
		if err := h.Add(r); err != nil {
			return errs.New(errs.Invalid, "%v: %v", at, err)
		}
		return nil
	})
	if reports == nil {
		return broken
	}
	responses := h.Affected(q)
	missing := 0
	tenants, open := map[string]bool{}, 0
	for _, r := range responses {
		printResponse(s, r)
		missing += len(r.Missing)
		exposed := false
		for _, b := range r.Before {
			tenants[b.Tenant] = true
			exposed = exposed || b.Uncleared > 0 || b.Late > 0
		}
		if exposed {
			open++
		}
	}
	s.sayf("%d responses; %d tenants had some of their pages before; %d responses had a page that was not cleared in between, or was written late",
		len(responses), len(tenants), open)
	return errors.Join(broken, incomplete(reports, missing))
}

// incomplete says what the list may lack.
func incomplete(reports []*audit.Report, missing int) error {
	var rotated, lost uint64
	for _, r := range reports {
		rotated, lost = rotated+r.Rotated, lost+r.Lost
	}
	if rotated == 0 && lost == 0 && missing == 0 {
		return nil
	}
	return errs.New(errs.NotFound, "the list may not be whole: %d records were removed by rotation, %d are lost, %d things are missing from the logs", rotated, lost, missing)
}

func (c *auditAffected) query() (q history.Query, err error) {
	for _, t := range []struct {
		flag, text string
		to         *time.Time
	}{{"--from", c.From, &q.From}, {"--to", c.To, &q.To}} {
		if t.text == "" {
			continue
		}
		if *t.to, err = time.Parse(time.RFC3339, t.text); err != nil {
			return q, errs.New(errs.Invalid, "%s: %q is not like 2006-01-02T15:04:05Z", t.flag, t.text)
		}
	}
	if !q.From.IsZero() && !q.To.IsZero() && q.To.Before(q.From) {
		return q, errs.New(errs.Invalid, "--to %s is before --from %s", c.To, c.From)
	}
	if q.Pair = c.Pair; q.Pair != "" && strings.Count(q.Pair, "/") != 1 {
		return q, errs.New(errs.Invalid, "--pair: %q is not like prefill-0/decode-0", c.Pair)
	}
	if c.Page == "" {
		return q, nil
	}
	broker, page, _ := strings.Cut(c.Page, ":")
	n, err := strconv.ParseUint(page, 10, 32)
	if err != nil || broker == "" {
		return q, errs.New(errs.Invalid, "--page: %q is not like broker-d:17", c.Page)
	}
	q.Broker, q.Page = broker, uint32(n)
	return q, nil
}

func printResponse(s streams, r history.Response) {
	s.sayf("%s  request %s  tenant %s  pair %s  %s", r.From.UTC().Format(time.RFC3339Nano), r.Request, r.Tenant, strings.Join(r.Pairs, ","), r.Outcome)
	for _, u := range r.Uses {
		s.sayf("    %d pages of broker %s (instance %.8s): %s", len(u.Pages), u.Broker, u.Instance, ranges(u.Pages))
	}
	for _, b := range r.Before {
		text := fmt.Sprintf("tenant %s had %d of them before (%s): %d cleared in between, %d NOT cleared", b.Tenant, b.Pages, strings.Join(b.Endings, ", "), b.Cleared, b.Uncleared)
		if b.Late > 0 {
			text += fmt.Sprintf(", %d WRITTEN LATE", b.Late)
		}
		s.sayf("    %s", text)
	}
	for _, m := range r.Missing {
		s.sayf("    missing: %s", m)
	}
}

// ranges is a short way to write numbers in order, such as 3-5,9.
func ranges(n []uint32) string {
	var out []string
	for i := 0; i < len(n); {
		j := i + 1
		for j < len(n) && n[j] == n[j-1]+1 {
			j++
		}
		if j == i+1 {
			out = append(out, fmt.Sprint(n[i]))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", n[i], n[j-1]))
		}
		i = j
	}
	return strings.Join(out, ",")
}
