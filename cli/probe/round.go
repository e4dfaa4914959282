package probe

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"leasehold.dev/model/canary"
)

// Rounds asks round after round. Each prompt is in the words of another tenant's range than the one before, so that a page
// that was left over from it would show as foreign. It is used by one goroutine.
type Rounds struct {
	Ask func(ctx context.Context, e canary.Echo, pair string) Answer // see Client
	// Range is the tenant range, in [0, canary.Tenants), of the next prompt.
	Range int
}

// Run asks pair for all checks, one after another, until ctx ends.
func (r *Rounds) Run(ctx context.Context, pair string, checks []Check) ([]Row, error) {
	var rows []Row
	for _, c := range checks {
		e, err := canary.New(r.Range, c.Tokens, seed())
		if err != nil {
			return rows, err
		}
		r.Range = (r.Range + 1) % canary.Tenants
		rows = append(rows, Judge(c, e, pair, r.Ask(ctx, e, pair)))
		if ctx.Err() != nil {
			return rows, context.Cause(ctx)
		}
	}
	return rows, nil
}

// seed is new for each prompt: an answer that was kept from an earlier one is wrong.
func seed() uint64 {
	var b [8]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return binary.LittleEndian.Uint64(b[:])
}

// Failed counts the rows that are not as they must be.
func Failed(rows []Row) (n int) {
	for _, r := range rows {
		if !r.OK {
			n++
		}
	}
	return n
}

// Print writes a round's table.
func Print(out io.Writer, rows []Row) error {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	fmt.Fprintln(w, "PAIR\tCHECK\tLENGTH\tEXPECTED\tGOT\tTIME\tOWN\tFOREIGN\t")
	for _, r := range rows {
		mark := ""
		if !r.OK {
			mark = "FAILED"
		}
		own, foreign := "-", "-"
		if r.Told && r.Check.Want == Echo || r.Verdict.Leaked() > 0 {
			own, foreign = fmt.Sprintf("%d/%d", r.Verdict.Own, canary.Answer), others(r.Verdict)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%s\n", r.Pair, r.Check.Name, r.Check.Tokens+canary.Answer, r.Check.Want, r.Got,
			r.Took.Round(time.Millisecond), own, foreign, mark)
	}
	return w.Flush()
}

// others is how many tokens are foreign, and of which ranges.
func others(v canary.Verdict) string {
	var of []string
	for _, t := range v.Of() {
		of = append(of, strconv.Itoa(t))
	}
	if len(of) == 0 {
		return "0"
	}
	return fmt.Sprintf("%d of tenant %s", v.Leaked(), strings.Join(of, ", "))
}
