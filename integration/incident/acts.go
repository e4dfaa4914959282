package incident

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"leasehold.dev/cli/probe"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/protos/fault"
)

// Run plays the three acts at 1/scale and returns the table, which it also prints by say. The error says what was not as
// it must be.
func Run(ctx context.Context, s scenario.Setup, scale int, out func(string, ...any)) ([]Row, error) {
	z, err := sizeOf(scale)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "leasehold-incident")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if s, err = s.Canary(dir, uint32(z.promise)); err != nil {
		return nil, err
	}
	var rows []Row
	for _, act := range []func(context.Context, scenario.Setup, size, func(string, ...any)) ([]Row, error){promised, lowered, played} {
		more, err := act(ctx, s, z, out)
		rows = append(rows, more...)
		if err != nil {
			return rows, err
		}
	}
	var b strings.Builder
	err = table(&b, rows)
	out("%s", b.String())
	for _, r := range rows {
		if r.Wrong != "" {
			err = errors.Join(err, fmt.Errorf("guards %s, prompt of %d tokens: %s", r.Guards, r.Length, r.Wrong))
		}
	}
	return rows, err
}

// promised is act 1: every guard on, and the promise of the incident. The mesh starts with prefill's limit off, since it
// would not get ready at all.
func promised(ctx context.Context, s scenario.Setup, z size, say func(string, ...any)) ([]Row, error) {
	say("act 1: every guard on, prefill promises %d tokens and holds %d", z.promise, z.limit)
	st, err := open(ctx, s, z, z.promise, false, say, "off "+string(fault.LimitPrefill))
	if err != nil {
		return nil, err
	}
	defer st.Close()
	if err := st.Guards(); err != nil {
		return nil, err
	}
	r := Row{Guards: "on", Length: z.promise, Expected: notUp}
	wait, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("30 s are over"))
	defer cancel()
	err = scenario.Until(wait, func() error {
		_, text, err := st.Admin(wait, prefill0, "/readyz")
		if err != nil {
			return err
		}
		if strings.Contains(text, `"ready":true`) || !strings.Contains(text, fmt.Sprint(z.limit)) || !strings.Contains(text, fmt.Sprint(z.promise)) {
			return fmt.Errorf("prefill's /readyz does not say %d and %d: %s", z.limit, z.promise, text)
		}
		return nil
	})
	if err != nil {
		r.Wrong = err.Error()
		return []Row{r}, nil
	}
	r.Got, r.Status, r.Spoke = notUp, http.StatusServiceUnavailable, []string{"prefill's readiness, with both numbers"}
	return []Row{r}, nil
}

// lowered is act 2: every guard on, and prefill promises what it holds.
func lowered(ctx context.Context, s scenario.Setup, z size, say func(string, ...any)) ([]Row, error) {
	say("act 2: every guard on, prefill promises the %d tokens that it holds", z.limit)
	st, err := open(ctx, s, z, z.limit, false, say)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	if err := st.fillPool(ctx); err != nil {
		return nil, err
	}
	var want []Row
	for _, n := range z.served {
		want = append(want, Row{Guards: "on", Length: n, Expected: echo})
	}
	for _, n := range z.refused {
		want = append(want, Row{Guards: "on", Length: n, Expected: refuse})
	}
	return st.all(ctx, want)
}

// played is act 3: the guards off, and the refusal that borrows the path of a success.
func played(ctx context.Context, s scenario.Setup, z size, say func(string, ...any)) ([]Row, error) {
	say("act 3: every guard off, prefill promises %d tokens and holds %d", z.promise, z.limit)
	off := []string{"off"}
	for _, g := range fault.Guards() {
		off = append(off, string(g))
	}
	st, err := open(ctx, s, z, z.promise, true, say, strings.Join(off, " "))
	if err != nil {
		return nil, err
	}
	defer st.Close()
	if err := st.fillPool(ctx); err != nil {
		return nil, err
	}
	old, err := st.Alarms(ctx)
	if err != nil {
		return nil, err
	}
	if err := st.Arm(prefill0, fault.PrefillAdmit, "truncate"); err != nil {
		return nil, err
	}
	rows, err := st.all(ctx, []Row{{Guards: "off", Length: z.wrong, Expected: foreign}})
	if err != nil {
		return rows, err
	}
	probed, err := st.probed(ctx)
	if err != nil {
		return rows, err
	}
	needed := []string{"reconciler"}
	if z.scale > 1 {
		needed = append(needed, "replay")
	}
	rows[0].Spoke, err = st.detectors(ctx, old, needed)
	if err != nil {
		rows[0].Wrong = err.Error()
	}
	return append(rows, probed), nil
}

// probed is what the canary's gate finds at one token over what prefill holds.
func (s *stage) probed(ctx context.Context) (Row, error) {
	r := Row{Guards: "off", Length: s.limit + 1, Expected: "canary red"}
	e, err := s.echo(asker, r.Length)
	if err != nil {
		return r, err
	}
	client, idle := s.Probe(10 * time.Minute)
	defer idle()
	pair := "prefill-0/decode-0"
	got := probe.Judge(probe.Check{Name: "limit+1", Tokens: r.Length, Want: probe.Limit}, e, pair, client.Ask(ctx, e, pair))
	r.Got, r.Took, r.Own, r.Foreign = got.Got, got.Took, got.Verdict.Own, got.Verdict.Leaked()
	if r.Status = http.StatusOK; got.OK || !got.Told {
		r.Status, r.Wrong = 0, "the canary is not red: "+got.Got
	}
	r.Spoke = []string{"canary"}
	return r, nil
}

// detectors waits until the needed ones are red, and lists all that are.
func (s *stage) detectors(ctx context.Context, old map[string]float64, needed []string) (red []string, err error) {
	wait, cancel := context.WithTimeoutCause(ctx, time.Minute, errors.New("a minute is over"))
	defer cancel()
	err = scenario.Until(wait, func() error {
		now, err := s.Alarms(wait)
		if err != nil {
			return err
		}
		red = scenario.Rose(old, now)
		for _, d := range needed {
			if !slices.ContainsFunc(red, func(name string) bool { return strings.Contains(name, d) }) {
				return fmt.Errorf("detector %s is silent; red are %v", d, red)
			}
		}
		return nil
	})
	return red, err
}

func (s *stage) all(ctx context.Context, want []Row) ([]Row, error) {
	var rows []Row
	for _, r := range want {
		r, err := s.ask(ctx, r)
		if err != nil {
			return rows, err
		}
		s.say("guards %s, prompt of %d tokens: %s in %s, %d own and %d foreign markers", r.Guards, r.Length, r.Got, r.Took.Round(time.Millisecond), r.Own, r.Foreign)
		rows = append(rows, r)
	}
	return rows, nil
}
