// Package control takes the control plane away, or makes it lie.
package control

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"leasehold.dev/cli/local"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/integration/scenario/stagetest"
	"leasehold.dev/mesh/registry/consul/consultest"
)

// endless is a bias against the end token, so that an answer has the length that was asked for.
var endless = map[string]any{"logit_bias": map[string]int{"2": -100}}

func answered(t *testing.T, st *scenario.Stage, when string) {
	t.Helper()
	a, err := st.Chat(t.Context(), scenario.Ask{Content: "Say hello.", MaxTokens: 4, Extra: endless}, nil)
	if err != nil || a.Err != nil || a.Usage["completion_tokens"] != 4 {
		t.Errorf("%s: %+v, %v, %v, want an answer of 4 tokens", when, a, a.Err, err)
	}
}

// TestConsulAway kills Consul in the middle of a stream: the stream and new requests are unharmed, a worker that dies
// meanwhile is noticed without Consul, and after its return the mesh is as before.
func TestConsulAway(t *testing.T) {
	consul := consultest.Start(t)
	st := stagetest.Open(t, func(c *local.Config) { c.Registry = consul.URL() })
	n := 0
	a, err := st.Chat(t.Context(), scenario.Ask{Content: "Tell me about hills.", MaxTokens: 80, Stream: true, Extra: endless}, func(scenario.Answer) {
		if n++; n == 5 {
			consul.Kill()
		}
	})
	if err != nil || a.Err != nil || !a.Completed || a.Finish != "length" || n < 5 {
		t.Errorf("the stream in whose middle Consul died: %+v, %v, %v", a, a.Err, err)
	}
	for i := range 3 {
		answered(t, st, fmt.Sprintf("request %d without Consul", i))
	}
	still, stop := context.WithTimeout(t.Context(), 8*time.Second) // longer than any TTL
	defer stop()
	for i := 0; still.Err() == nil; i++ {
		answered(t, st, fmt.Sprintf("request %d of the wait without Consul", i))
	}
	consul.Restart()
	answered(t, st, "after Consul's return")
	if err := st.Baseline(t.Context(), "broker-p", "broker-d"); err != nil {
		t.Error(err)
	}
}

// TestStaleCatalogue is C4's other half: prefill-0 is gone and still listed. Requests go through the other pair.
func TestStaleCatalogue(t *testing.T) {
	consul := consultest.Start(t)
	st := stagetest.Open(t, func(c *local.Config) {
		c.Registry = consul.URL()
		c.Brokers = append(c.Brokers, local.Broker{Name: "broker-q", Pages: 160})
		c.Prefills = append(c.Prefills, local.Worker{ID: "prefill-1", Broker: "broker-q"})
		c.Decodes[0].Args = []string{"-self-prefill=-1"}
	})
	if err := st.AllUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	consul.Kill() // from now on the catalogue cannot learn that a worker is gone
	if err := st.Process("prefill/prefill-0").Kill(); err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		answered(t, st, fmt.Sprintf("request %d with a dead worker in the catalogue", i))
	}
	soon, cancel := context.WithTimeoutCause(t.Context(), 30*time.Second, errors.New("30 s are over"))
	defer cancel()
	if err := st.Baseline(soon, "broker-p", "broker-d", "broker-q"); err != nil {
		t.Error(err)
	}
}
