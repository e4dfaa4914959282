// Package handoff breaks what passes between prefill and decode.
package handoff

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"leasehold.dev/cli/local"
	"leasehold.dev/integration/driver"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/integration/scenario/stagetest"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// smallPrefill is a mesh whose prefill pool holds half of decode's: 192 tokens against 384.
func smallPrefill(c *local.Config) {
	c.Promise = 384
	c.Brokers = []local.Broker{{Name: "broker-p", Pages: 3}, {Name: "broker-d", Pages: 6}}
	c.Prefills[0].Args = []string{"-promise", "192"}
}

func ids(n int) []int32 {
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(1000 + (i*37)%4000)
	}
	return out
}

// movers are those between two brokers, by the name that a broker's -movers has.
var movers = map[string]meshv1.Mover{"grpc": meshv1.Mover_MOVER_GRPC, "shm": meshv1.Mover_MOVER_SHM}

// open is stagetest.Open of a mesh whose brokers have one mover.
func open(t *testing.T, mover string, change func(*local.Config)) *scenario.Stage {
	t.Helper()
	st := stagetest.Open(t, func(c *local.Config) {
		if change != nil {
			change(c)
		}
		for i, b := range c.Brokers {
			c.Brokers[i].Args = append([]string{"-movers", mover}, b.Args...)
		}
	})
	st.Driver.Mover = movers[mover]
	return st
}

// onEach runs a test on each mover.
func onEach(t *testing.T, change func(*local.Config), test func(*testing.T, *scenario.Stage)) {
	for mover := range movers {
		t.Run(mover, func(t *testing.T) { test(t, open(t, mover, change)) })
	}
}

// TestH1 asks at, below and above each half's limit.
func TestH1(t *testing.T) { onEach(t, smallPrefill, h1) }

func h1(t *testing.T, st *scenario.Stage) {
	for _, tt := range []struct {
		prompt, maxNew int
		limit          int // 0: answered
	}{
		{191, 8, 0},
		{192, 8, 0},
		{193, 8, 192},
		{300, 8, 192},
		{383, 1, 192},
		{180, 203, 0},
		{180, 204, 0},
		{180, 205, 384},
		{500, 8, 192},
	} {
		t.Run(fmt.Sprintf("%d tokens and %d new", tt.prompt, tt.maxNew), func(t *testing.T) {
			body := map[string]any{"model": st.Loaded.Name, "prompt": ids(tt.prompt), "max_tokens": tt.maxNew, "logit_bias": map[string]int{"2": -100}, "temperature": 0}
			a, err := st.Post(t.Context(), "/v1/completions", st.Key(), body, nil)
			if err != nil {
				t.Fatal(err)
			}
			if tt.limit == 0 {
				if a.Err != nil || a.Usage["prompt_tokens"] != tt.prompt || a.Usage["completion_tokens"] != tt.maxNew {
					t.Errorf("answered %+v, %v, want %d tokens for %d", a, a.Err, tt.maxNew, tt.prompt)
				}
				baseline(t, st) // its pages are being cleared still
				return
			}
			asked := fmt.Sprint(tt.prompt)
			if a.Err == nil || a.Err.Status != 400 || !strings.Contains(a.Err.Message, fmt.Sprint(tt.limit)) || !strings.Contains(a.Err.Message, asked) {
				t.Errorf("answered %+v, %v, want 400 with %d and %s", a, a.Err, tt.limit, asked)
			}
			for _, b := range st.Brokers {
				if d, err := st.Describe(t.Context(), b.Name); err != nil || d.Pool.Free != d.Pool.Pages {
					t.Errorf("broker %s after the refusal: %v, %v, want no page in use", b.Name, d.GetPool(), err)
				}
			}
		})
	}
	baseline(t, st)
}

// TestH2 admits behind the router's back what decode can hold and prefill cannot.
func TestH2(t *testing.T) { onEach(t, smallPrefill, h2) }

func h2(t *testing.T, st *scenario.Stage) {
	start := time.Now()
	out, err := st.Driver.Run(t.Context(), driver.Request{Tenant: "demo", IDs: ids(300), MaxNew: 8, Prefill: "prefill-0", Decode: "decode-0"})
	if errs.KindOf(err) != errs.Limit || !strings.Contains(err.Error(), "300") || !strings.Contains(err.Error(), "192") {
		t.Errorf("decode ended with %v, want prefill's refusal with 300 and 192", err)
	}
	if d := time.Since(start); d > time.Second {
		t.Errorf("decode ended after %v, want within a second", d)
	}
	if out.Admitted == nil || len(out.Tokens) > 0 || out.Decode != nil {
		t.Errorf("admitted %v, %d tokens, verdict %v, want admitted and nothing more", out.Admitted, len(out.Tokens), out.Decode)
	}
	baseline(t, st)
}

func baseline(t *testing.T, st *scenario.Stage) {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), 10*time.Second, errors.New("10 s are over"))
	defer cancel()
	for _, b := range st.Brokers {
		if err := st.Baseline(ctx, b.Name); err != nil {
			t.Error(err)
		}
	}
}

// TestL8: the client goes away between prefill's end and decode's start. Both leases end at once, not by timeout.
func TestL8(t *testing.T) { onEach(t, nil, l8) }

func l8(t *testing.T, st *scenario.Stage) {
	for i := range 10 { // at ten places around that moment
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := st.Driver.Run(ctx, driver.Request{Tenant: "demo", IDs: ids(200 + 60*i), MaxNew: 400, Prefill: "prefill-0", Decode: "decode-0"})
			done <- err
		}()
		err := scenario.Until(t.Context(), func() error {
			d, err := st.Describe(t.Context(), "broker-d")
			if err != nil {
				return err
			}
			if d.Pool.Staged+d.Pool.Verifying+d.Pool.Owned == 0 {
				return errors.New("no page has arrived")
			}
			return nil
		})
		cancel()
		if err := errors.Join(err, <-done); !errors.Is(err, context.Canceled) {
			t.Fatalf("the cancelled run ended with %v", err)
		}
		wait, stop := context.WithTimeoutCause(t.Context(), 2*time.Second, errors.New("2 s are over"))
		for _, b := range st.Brokers {
			if err := st.Baseline(wait, b.Name); err != nil {
				t.Errorf("try %d: %v", i, err)
			}
		}
		stop()
	}
}
