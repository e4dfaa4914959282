// Package tenants runs many tenants at once over one mesh.
package tenants

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"leasehold.dev/cli/local"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/integration/scenario/stagetest"
)

func ask(i int) map[string]any {
	return map[string]any{
		"messages":   []map[string]string{{"role": "user", "content": fmt.Sprintf("Request %d of mine: %s", i, scenario.Words(20+i*17))}},
		"max_tokens": 12, "temperature": []float64{0, 0.8}[i%2], "seed": i, "stream": i%3 == 0,
	}
}

// TestSixteenAtOnce: 16 requests of 4 tenants at once give what each gives alone.
func TestSixteenAtOnce(t *testing.T) {
	const requests, tenants = 16, 4
	st := stagetest.Open(t, func(c *local.Config) {
		c.Tenants = map[string]string{}
		for i := range tenants {
			c.Tenants[fmt.Sprint("tenant-", i)] = local.NewKey()
		}
	})
	run := func(i int) (scenario.Answer, error) {
		body := ask(i)
		body["model"] = st.Loaded.Name
		return st.Post(t.Context(), "/v1/chat/completions", st.Tenants[fmt.Sprint("tenant-", i%tenants)], body, nil)
	}
	var alone [requests]scenario.Answer
	for i := range requests {
		a, err := run(i)
		if err != nil || a.Err != nil || a.Text == "" {
			t.Fatalf("request %d alone: %+v, %v, %v", i, a, a.Err, err)
		}
		alone[i] = a
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	different := 0
	for i := range requests {
		wg.Go(func() {
			a, err := run(i)
			for err == nil && a.Err != nil && a.Err.Status == 429 { // a full queue is no fault here: come again
				time.Sleep(100 * time.Millisecond)
				a, err = run(i)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil || a.Err != nil {
				t.Errorf("request %d among others: %v, %v", i, a.Err, err)
			} else if a.Text != alone[i].Text || a.Finish != alone[i].Finish || a.Usage["completion_tokens"] != alone[i].Usage["completion_tokens"] {
				different++
				t.Errorf("request %d: %q among others, %q alone", i, a.Text, alone[i].Text)
			}
		})
	}
	wg.Wait()
	if err := st.Baseline(t.Context(), "broker-p", "broker-d"); err != nil {
		t.Error(err)
	}
}

// TestSameClientRequestID is T5: a request id is the client's word, and names nothing of ours.
func TestSameClientRequestID(t *testing.T) {
	st := stagetest.Open(t, nil)
	var wg sync.WaitGroup
	var got [2]scenario.Answer
	var errs [2]error
	for i := range 2 {
		wg.Go(func() {
			body := ask(i)
			body["model"], body["metadata"] = st.Loaded.Name, map[string]string{"request_id": "same"}
			got[i], errs[i] = st.Post(t.Context(), "/v1/chat/completions", st.Key(), body, nil)
		})
	}
	wg.Wait()
	for i := range 2 {
		body := ask(i)
		body["model"] = st.Loaded.Name
		alone, err := st.Post(t.Context(), "/v1/chat/completions", st.Key(), body, nil)
		if err != nil || errs[i] != nil || alone.Err != nil || got[i].Err != nil || got[i].Text != alone.Text {
			t.Errorf("request %d: %q (%v, %v), alone %q (%v, %v)", i, got[i].Text, got[i].Err, errs[i], alone.Text, alone.Err, err)
		}
	}
}
