// Package witness looks at the reconciler over real processes.
package witness

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold.dev/cli/local"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/integration/scenario/stagetest"
)

func routerOf(st *scenario.Stage) string {
	for _, p := range st.Processes() {
		if strings.HasPrefix(p.Name, "router/") {
			return p.Name
		}
	}
	return ""
}

// TestRealBrokersRecordsAgree: split requests of several lengths over real processes are all reconciled, and nothing is found.
func TestRealBrokersRecordsAgree(t *testing.T) {
	st := stagetest.Open(t, func(*local.Config) {})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	defer http.DefaultClient.CloseIdleConnections()
	before := time.Now()
	for _, n := range []int{1, 40, 90} {
		body := map[string]any{"model": st.Loaded.Name, "messages": []map[string]string{{"role": "user", "content": scenario.Words(n)}}, "max_tokens": 3}
		if a, err := st.Post(ctx, "/v1/chat/completions", st.Key(), body, nil); err != nil || a.Err != nil {
			t.Fatalf("request of %d words: %v, %v", n, a.Err, err)
		}
	}
	router := routerOf(st)
	err := scenario.Until(ctx, func() error {
		_, text, err := st.Admin(ctx, router, "/metrics")
		if err != nil {
			return err
		}
		open := value(text, `leasehold_reconcile_open`)
		for _, property := range []string{"P3", "P4"} {
			if at := value(text, `leasehold_property_last_observed_seconds{detector="reconciler"`, `property="`+property+`"`); open != 0 || at < float64(before.Unix()) {
				return fmt.Errorf("%s was last looked at, at %f; %v are open", property, at, open)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	_, text, err := st.Admin(ctx, router, "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "leasehold_reconcile_findings") || strings.HasPrefix(line, `leasehold_boundary_incidents_total`) && !strings.HasSuffix(line, " 0\n") {
			t.Errorf("found %s", line)
		}
	}
	for _, broker := range []string{"broker-p", "broker-d"} {
		if at := value(text, `leasehold_reconcile_broker_last_heard_seconds{broker="`+broker+`"}`); at < float64(before.Unix()) {
			t.Errorf("%s was last heard at %f, the test began at %d", broker, at, before.Unix())
		}
		_, b, err := st.Admin(ctx, "kvbroker/"+broker, "/metrics")
		if err != nil || !strings.Contains(b, `leasehold_property_last_observed_seconds{detector="tag_fault",pair="",property="P2"}`) {
			t.Errorf("%s does not say when fault records were last read (%v)", broker, err)
		}
	}
}

// value is that of the first sample that begins so and holds the rest; -1 when there is none.
func value(text, begin string, rest ...string) float64 {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, begin) && !slices.ContainsFunc(rest, func(r string) bool { return !strings.Contains(line, r) }) {
			v := -1.0
			_, _ = fmt.Sscan(line[strings.LastIndex(line, " ")+1:], &v) // -1 stays when it is no number
			return v
		}
	}
	return -1
}
