package catalogue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"leasehold.dev/cli/local"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/model/canary"
	"leasehold.dev/protos/fault"
)

// crowdTime is how long the sixteen tenants of T1 go on; the soak does it for hours.
const crowdTime = 20 * time.Second

func crowdMesh(c *local.Config) {
	c.Tenants = map[string]string{"demo": local.NewKey()}
	for i := range canary.Tenants {
		c.Tenants[crowdName(i)] = local.NewKey()
	}
	c.Promise = 40 * 64
	for i := range c.Brokers {
		c.Brokers[i].Pages = 40
	}
}

func crowdName(i int) string { return fmt.Sprintf("tenant-%02d", i) }

// t1 has 16 tenants at once, each with its own markers, pools nearly full, and random cancels.
func t1(ctx context.Context, m *Mesh) error {
	ctx, cancel := context.WithTimeout(ctx, crowdTime+20*time.Second)
	defer cancel()
	end := time.Now().Add(crowdTime)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var wrong error
	count := map[string]int{}
	for tenant := range canary.Tenants {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(7, uint64(tenant)))
			for time.Now().Before(end) {
				word, err := m.oneOfMany(ctx, tenant, rng)
				mu.Lock()
				count[word]++
				wrong = errors.Join(wrong, err)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	if count["exact"] < 5*canary.Tenants {
		wrong = errors.Join(wrong, fmt.Errorf("only %d exact answers: %v", count["exact"], count))
	}
	if err := errors.Join(wrong, m.settled(ctx)); err != nil {
		return err
	}
	return m.noIncident(ctx)
}

// oneOfMany is one request of a tenant in a crowd; the word says how it ended.
func (m *Mesh) oneOfMany(ctx context.Context, tenant int, rng *rand.Rand) (string, error) {
	e, err := canary.New(tenant, 60+rng.IntN(700), rng.Uint64())
	if err != nil {
		return "", err
	}
	one, cancel := context.WithCancel(ctx)
	defer cancel()
	cancels := rng.IntN(3) == 0
	if cancels {
		t := time.AfterFunc(time.Duration(rng.IntN(60))*time.Millisecond, cancel)
		defer t.Stop()
	}
	a, err := m.Post(one, "/v1/completions", m.Tenants[crowdName(tenant)], body(m, e), nil)
	got := canary.Parse(a.Text)
	v := canary.Judge(e, got)
	switch {
	case v.Leaked() > 0:
		return "foreign", fmt.Errorf("tenant %d got tokens of %v: %v", tenant, v.Of(), v)
	case v.Other > 0:
		return "other", fmt.Errorf("tenant %d: %v", tenant, v)
	case err != nil && cancels && ctx.Err() == nil:
		return "cancelled", nil
	case err != nil:
		return "failed", err
	case a.Err != nil && (a.Err.Status == http.StatusTooManyRequests || a.Err.Status == http.StatusServiceUnavailable):
		select {
		case <-time.After(20 * time.Millisecond): // it is told to come again
		case <-ctx.Done():
		}
		return "full", nil
	case a.Err != nil:
		return "error", fmt.Errorf("tenant %d: %v", tenant, a.Err)
	case !v.Exact():
		return "short", fmt.Errorf("tenant %d: %v", tenant, v)
	}
	return "exact", nil
}

// noIncident looks at every broker's count of what must not be.
func (m *Mesh) noIncident(ctx context.Context) error {
	for _, b := range m.Brokers {
		for _, kind := range []string{"late_write", "transfer", "source", "fault"} {
			n, err := m.metric(ctx, "kvbroker/"+b.Name, fmt.Sprintf("leasehold_broker_incidents_total{kind=%q}", kind))
			if err != nil || n > 0 {
				return fmt.Errorf("broker %s has %v incidents of kind %s, %w", b.Name, n, kind, orNil(err))
			}
		}
	}
	return nil
}

// requestIDs are the ids that the router knows requests by.
func (m *Mesh) requestIDs(ctx context.Context) ([]string, error) {
	_, text, err := m.Admin(ctx, router, "/debug/requests")
	if err != nil {
		return nil, err
	}
	var doc struct {
		Requests []struct {
			ID      string `json:"id"`
			Choices []struct {
				Admission string `json:"admission_id"`
			} `json:"choices"`
		} `json:"requests"`
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		return nil, err
	}
	var ids []string
	for _, r := range doc.Requests {
		ids = append(ids, r.ID)
		for _, c := range r.Choices {
			ids = append(ids, c.Admission)
		}
	}
	return ids, nil
}

// ownReceipt checks that tenant 1 can read its receipt.
func (m *Mesh) ownReceipt(ctx context.Context, id string) error {
	code, err := m.rest(ctx, "GET", "/v1/receipts/"+id, "Bearer "+m.Tenants["other"], nil)
	if err != nil || code != http.StatusOK {
		return fmt.Errorf("the owner's receipt: status %d, %w", code, orNil(err))
	}
	return nil
}

// t3: tenant A tries to cancel and to read what is B's, by the ids of B's running request and of its receipt, and by their
// beginnings.
func t3(ctx context.Context, m *Mesh) error {
	first, err := m.ask(ctx, m.echo(1, m.Tokens))
	if err != nil || first.Err != nil || first.ReceiptID == "" {
		return fmt.Errorf("the other tenant's first request: %v, receipt %q, %w", first.Err, first.ReceiptID, orNil(err))
	}
	if err := m.ownReceipt(ctx, first.ReceiptID); err != nil {
		return err
	}
	if err := m.Arm(decode, fault.RunnerStep, "hold times=1"); err != nil {
		return err
	}
	e := m.echo(1, m.Tokens)
	type result struct {
		a   scenario.Answer
		err error
	}
	done := make(chan result, 1)
	before, err := m.Tally(decode)
	if err != nil {
		return err
	}
	go func() {
		a, err := m.ask(ctx, e)
		done <- result{a, err}
	}()
	if err := m.Fired(ctx, decode, fault.RunnerStep, before.Fired[fault.RunnerStep]+1); err != nil {
		return err
	}
	ids, err := m.requestIDs(ctx)
	if err != nil || len(ids) < 2 {
		return fmt.Errorf("the router shows %d ids, %w", len(ids), orNil(err))
	}
	for _, id := range append(ids, first.ReceiptID) {
		for _, as := range []string{id, id[:len(id)/2]} {
			for _, try := range []struct{ method, path string }{
				{"DELETE", "/v1/completions/" + as}, {"POST", "/v1/completions/" + as + "/cancel"}, {"POST", "/v1/responses/" + as + "/cancel"},
				{"GET", "/v1/completions/" + as}, {"GET", "/v1/receipts/" + as}, {"POST", "/v1/receipts/" + as + "/report"},
			} {
				code, err := m.rest(ctx, try.method, try.path, "Bearer "+m.Tenants["demo"], []byte("{}"))
				if err != nil || code != http.StatusNotFound && code != http.StatusMethodNotAllowed {
					return fmt.Errorf("%s %s of the other tenant: status %d, %w", try.method, try.path, code, orNil(err))
				}
			}
		}
	}
	if err := m.Disarm(decode, fault.RunnerStep); err != nil {
		return err
	}
	r := <-done
	if v := canary.Judge(e, canary.Parse(r.a.Text)); r.err != nil || r.a.Err != nil || !v.Exact() {
		return fmt.Errorf("the other tenant: %v, %v, %w", v, r.a.Err, orNil(r.err))
	}
	return errors.Join(m.ownReceipt(ctx, first.ReceiptID), m.settled(ctx))
}

// t4: what a tenant says of salts, tenants, transfers and addresses is refused as a field, and ignored as a header.
func t4(ctx context.Context, m *Mesh) error {
	for _, field := range []string{"tenant", "cache_salt", "kv_transfer_params", "admission_id", "transfer_id", "prefill", "decode", "bootstrap_host", "lease", "nonce"} {
		b := body(m, m.echo(0, m.Tokens))
		b[field] = "other"
		raw, err := json.Marshal(b)
		if err != nil {
			return err
		}
		if code, err := m.rest(ctx, "POST", "/v1/completions", "Bearer "+m.Key(), raw); err != nil || code != http.StatusBadRequest {
			return fmt.Errorf("field %s: status %d, %w, want 400", field, code, orNil(err))
		}
	}
	if err := m.Arm(decode, fault.RunnerStep, "hold times=1"); err != nil {
		return err
	}
	before, err := m.Tally(decode)
	if err != nil {
		return err
	}
	e := m.echo(0, m.Tokens)
	raw, err := json.Marshal(body(m, e))
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL()+"/v1/completions", bytes.NewReader(raw))
	if err != nil {
		return err
	}
	for k, v := range map[string]string{"Authorization": "Bearer " + m.Key(), "X-Tenant": "other", "X-Leasehold-Tenant": "other",
		"Grpc-Metadata-Tenant": "other", "Grpc-Metadata-Authorization": "Bearer " + m.Tenants["other"], "X-Leasehold-Decode": "127.0.0.1:1", "X-Cache-Salt": "other"} {
		req.Header.Set(k, v)
	}
	done := make(chan error, 1)
	go func() {
		res, err := http.DefaultClient.Do(req)
		if err == nil && res.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %d", res.StatusCode)
		}
		if res != nil {
			err = errors.Join(err, res.Body.Close())
		}
		done <- err
	}()
	if err := m.Fired(ctx, decode, fault.RunnerStep, before.Fired[fault.RunnerStep]+1); err != nil {
		return err
	}
	d, err := m.Describe(ctx, m.D)
	if err != nil {
		return err
	}
	for _, l := range d.Leases {
		if l.Tenant != "demo" {
			return fmt.Errorf("a lease is of tenant %q", l.Tenant)
		}
	}
	if len(d.Leases) == 0 {
		return errors.New("no lease")
	}
	return errors.Join(m.Disarm(decode, fault.RunnerStep), <-done, m.settled(ctx))
}

// t5: two requests with one client request id are two.
func t5(ctx context.Context, m *Mesh) error {
	var wg sync.WaitGroup
	var all [2]error
	for i := range 2 {
		e := m.echo(i, m.Tokens)
		wg.Go(func() { // Post sends the same X-Request-Id each time
			a, err := m.ask(ctx, e)
			if v := canary.Judge(e, canary.Parse(a.Text)); err != nil || a.Err != nil || !v.Exact() {
				all[i] = fmt.Errorf("tenant %d: %v, %v, %w", i, v, a.Err, orNil(err))
			}
		})
	}
	wg.Wait()
	return errors.Join(all[0], all[1], m.settled(ctx))
}

// t6: one tenant floods; the other keeps its share, the flooder is told when to come again.
func t6(ctx context.Context, m *Mesh) error {
	if err := errors.Join(m.Arm(prefill, fault.RunnerStep, "delay for=5ms"), m.Arm(decode, fault.RunnerStep, "delay for=5ms")); err != nil {
		return err
	}
	flood, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	var mu sync.Mutex
	told, untold := 0, 0
	for i := range 48 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(3, uint64(i)))
			for flood.Err() == nil {
				e, err := canary.New(0, 300, rng.Uint64())
				if err != nil {
					return
				}
				a, err := m.Post(flood, "/v1/completions", m.Tenants["demo"], body(m, e), nil)
				mu.Lock()
				if err == nil && a.Err != nil && a.Err.Status == http.StatusTooManyRequests {
					if told++; a.Err.RetryAfter == "" {
						untold++
					}
				}
				mu.Unlock()
			}
		})
	}
	err := until(ctx, 15*time.Second, func() error {
		mu.Lock()
		defer mu.Unlock()
		if told == 0 {
			return errors.New("the flooder is not refused yet")
		}
		return nil
	})
	var worst time.Duration
	for i := 0; i < 10 && err == nil; i++ {
		e := m.echo(1, 200)
		start := time.Now()
		var a scenario.Answer
		a, err = m.ask(ctx, e)
		if v := canary.Judge(e, canary.Parse(a.Text)); err != nil || a.Err != nil || !v.Exact() {
			err = fmt.Errorf("the other tenant's request %d: %v, %v, %w", i, v, a.Err, orNil(err))
		}
		worst = max(worst, time.Since(start))
	}
	stop()
	wg.Wait()
	if untold > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d refusals have no Retry-After", untold, told))
	}
	if worst > 5*time.Second {
		err = errors.Join(err, fmt.Errorf("the other tenant waited for up to %v", worst))
	}
	return errors.Join(err, m.Calm(), m.settled(ctx))
}

func tenantCases() []Case {
	both := Movers()
	return []Case{
		{Row: "T1", Name: "sixteen tenants at once, pools nearly full, random cancels", Movers: both, Own: true, Mesh: crowdMesh, Run: t1},
		{Row: "T3", Name: "a tenant cancels and reads by another's ids", Movers: both, Run: t3},
		{Row: "T4", Name: "a tenant sends salts, tenants, transfer ids and addresses", Movers: both, Run: t4},
		{Row: "T5", Name: "two requests with one client request id", Movers: both, Run: t5},
		{Row: "T6", Name: "one tenant floods", Movers: both, Own: true, Run: t6, Mesh: func(c *local.Config) {
			c.Prefills[0].Args = append(c.Prefills[0].Args, "-queue", "16")
			c.Decodes[0].Args = append(c.Decodes[0].Args, "-queue", "16")
		}},
	}
}
