// Package canary runs the canary over real processes.
package canary

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold.dev/cli"
	"leasehold.dev/cli/local"
	"leasehold.dev/cli/probe"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/integration/scenario/stagetest"
	"leasehold.dev/model/canary"
)

const limit = 4096

// fourPairs has two of each worker, at three brokers: pages move by grpc but for p-0 and d-0, which share one.
func fourPairs(c *local.Config) {
	c.Brokers = []local.Broker{{Name: "broker-a", Pages: 300}, {Name: "broker-b", Pages: 100}, {Name: "broker-c", Pages: 200}}
	c.Prefills = []local.Worker{{ID: "p-0", Broker: "broker-a"}, {ID: "p-1", Broker: "broker-b"}}
	c.Decodes = []local.Worker{{ID: "d-0", Broker: "broker-a"}, {ID: "d-1", Broker: "broker-c"}}
}

// allPairs has decode alone too: workers of this mesh compute prompts if nobody else does.
var allPairs = []string{"/d-0", "/d-1", "p-0/d-0", "p-0/d-1", "p-1/d-0", "p-1/d-1"}

// command is `leasehold canary` as an operator runs it.
func command(t *testing.T, st *scenario.Stage, key string, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := cli.Run(t.Context(), append([]string{"canary", "--url", st.URL(), "--key", key, "--registry", st.Registry, "--identity", st.CLIIdentity()}, args...), nil, &out)
	t.Logf("canary %v: %v\n%s", args, err, out.String())
	return out.String(), err
}

// TestTheGate: on a mesh that holds what it promises the gate opens; on the others it stays shut.
func TestTheGate(t *testing.T) {
	st := stagetest.OpenCanary(t, limit, fourPairs)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := scenario.Until(ctx, func() error { _, err := command(t, st, st.Mesh.Canary, "--pairs", "6"); return err }); err != nil {
		t.Fatalf("not all workers have come up: %v", err)
	}
	out, err := command(t, st, st.Mesh.Canary, "--gate", "--pairs", "6")
	if err != nil || strings.Contains(out, "FAILED") {
		t.Fatalf("the gate is shut: %v", err)
	}
	for _, pair := range allPairs {
		if n := strings.Count(out, "\n"+pair+" "); n != 4 {
			t.Errorf("%d rows of %s, want 4", n, pair)
		}
	}
	if out, err := command(t, st, st.Mesh.Canary, "--gate", "--promise", "5000"); err == nil || strings.Count(out, "FAILED") != 2*len(allPairs) {
		t.Errorf("the mesh is held to more than it holds, and %d rows failed: %v", strings.Count(out, "FAILED"), err)
	}
	if out, err := command(t, st, st.Key()); err == nil || strings.Count(out, "403 not_allowed") != 2*len(allPairs)+1 {
		t.Errorf("a tenant steers: %v", err)
	}
	if err := st.Process("decode/d-1").Kill(); err != nil {
		t.Fatal(err)
	}
	if out, err := command(t, st, st.Mesh.Canary, "--pair", "p-0/d-0", "--pair", "p-0/d-1"); err == nil || strings.Count(out, "FAILED") != 2 {
		t.Errorf("a pair has lost its decode worker: %v", err)
	}
}

// TestTwoTenantsAtOnce: each gets its own front, middle and end back, and nothing of the other's, whatever the length.
func TestTwoTenantsAtOnce(t *testing.T) {
	st := stagetest.OpenCanary(t, limit, nil)
	client, closeIdle := st.Probe(time.Minute)
	defer closeIdle()
	var wg sync.WaitGroup
	for tenant := range 2 {
		wg.Go(func() {
			for _, n := range []int{64, 65, 200, 640, 2000} {
				e, err := canary.New(tenant, n, uint64(n))
				if err != nil {
					t.Error(err)
					return
				}
				const pair = "prefill-0/decode-0"
				if r := probe.Judge(probe.Check{Name: "echo", Tokens: n, Want: probe.Echo}, e, pair, client.Ask(t.Context(), e, pair)); !r.OK {
					t.Errorf("tenant %d, %d tokens: %s", tenant, n, r.Got)
				}
			}
		})
	}
	wg.Wait()
}

// TestWordsOrNumbersOrChat: the three ways to give a prompt lead to one answer.
func TestWordsOrNumbersOrChat(t *testing.T) {
	st := stagetest.OpenCanary(t, limit, nil)
	e, err := canary.New(5, 333, 8)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path string
		body map[string]any
	}{
		{"/v1/completions", map[string]any{"prompt": canary.Text(e.Tokens)}},
		{"/v1/completions", map[string]any{"prompt": e.Tokens}},
		{"/v1/chat/completions", map[string]any{"messages": []map[string]string{{"role": "user", "content": canary.Text(e.Tokens)}}}},
	} {
		c.body["model"], c.body["max_tokens"], c.body["temperature"] = st.Loaded.Name, canary.Answer, 0
		a, err := st.Post(t.Context(), c.path, st.Key(), c.body, nil)
		if err != nil || a.Err != nil {
			t.Fatalf("%s: %v, %v", c.path, a.Err, err)
		}
		if got := canary.Parse(a.Text); !slices.Equal(got, e.Want) {
			t.Errorf("%s: %v", c.path, canary.Judge(e, got))
		}
	}
}
