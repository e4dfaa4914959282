package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"leasehold.dev/cli/local"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/model/canary"
)

const (
	tenants   = canary.Tenants
	questions = 3  // of each tenant to the real model
	words     = 24 // tokens of an answer of the real model
	atRest    = 30 * time.Second
	backAgain = 20 * time.Second // a started worker
)

func tenant(i int) string { return fmt.Sprintf("tenant-%02d", i) }

// question is one request and the judge of its answer.
type question struct {
	path   string
	body   map[string]any
	right  func(string, bool) error
	tokens int // of the prompt; 0: the usage tells
}

// mesh is one running mesh under load.
type mesh struct {
	*scenario.Stage
	name     string
	victims  []string
	question func(*rand.Rand, int) (question, error)
	report   *Report
	kills    kills
	alarms   map[string]float64
}

// open starts two pairs on four pools of so many pages.
func open(ctx context.Context, s scenario.Setup, name, audit string, promise, pages int) (*mesh, error) {
	m := &mesh{name: name, report: &Report{}}
	st, err := scenario.Open(ctx, s, func(c *local.Config) {
		c.Audit, c.Promise = audit, promise
		c.Tenants = map[string]string{}
		for i := range tenants {
			c.Tenants[tenant(i)] = local.NewKey()
		}
		c.Router = []string{"-replay-share", "0.05", "-replay-budget", "0.05"}
		c.Brokers, c.Prefills, c.Decodes = nil, nil, nil
		for i := range 2 {
			p, d := fmt.Sprintf("broker-p%d", i), fmt.Sprintf("broker-d%d", i)
			c.Brokers = append(c.Brokers, local.Broker{Name: p, Pages: pages}, local.Broker{Name: d, Pages: pages})
			c.Prefills = append(c.Prefills, local.Worker{ID: fmt.Sprintf("prefill-%d", i), Broker: p})
			c.Decodes = append(c.Decodes, local.Worker{ID: fmt.Sprintf("decode-%d", i), Broker: d})
		}
	})
	if err != nil {
		return nil, err
	}
	m.Stage = st
	for i := range 2 {
		m.victims = append(m.victims, fmt.Sprintf("prefill/prefill-%d", i), fmt.Sprintf("decode/decode-%d", i))
	}
	if err := m.AllUp(ctx); err != nil {
		return nil, errors.Join(err, st.Close())
	}
	m.alarms, err = m.Alarms(ctx)
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return m, nil
}

// askEchoes makes the questions prompts of the canary.
func (m *mesh) askEchoes(longest int) {
	m.question = func(rng *rand.Rand, i int) (question, error) {
		e, err := canary.New(i, canary.MinPrompt+rng.IntN(1+rng.IntN(longest-canary.MinPrompt)), rng.Uint64())
		return question{path: "/v1/completions", right: echoed(e, m.report.foreign), tokens: len(e.Tokens),
			body: map[string]any{"model": m.Loaded.Name, "prompt": canary.Text(e.Tokens), "max_tokens": canary.Answer, "temperature": 0}}, err
	}
}

// askAgain makes the questions those that each tenant has asked once before, one at a time, with nothing else running.
func (m *mesh) askAgain(ctx context.Context) error {
	var all [tenants][]question
	for i := range tenants {
		for j := range questions {
			q := question{path: "/v1/chat/completions", body: map[string]any{"model": m.Loaded.Name, "max_tokens": words, "temperature": j % 2, "seed": i,
				"messages": []map[string]string{{"role": "user", "content": fmt.Sprintf("I am %s. %sTell me about it.", tenant(i), scenario.Words(1+(i*questions+j)*5))}}}}
			a, err := m.Post(ctx, q.path, m.Tenants[tenant(i)], q.body, nil)
			if err != nil {
				return err
			}
			if a.Err != nil || !a.Completed || a.Text == "" {
				return fmt.Errorf("the first answer to %s, question %d: %v", tenant(i), j, a.Err)
			}
			q.right = repeated(a.Text)
			all[i] = append(all[i], q)
		}
	}
	m.question = func(rng *rand.Rand, i int) (question, error) { return all[i][rng.IntN(questions)], nil }
	return nil
}

// load has every tenant ask one question after the other until ctx ends.
func (m *mesh) load(ctx context.Context, seed uint64) {
	var wg sync.WaitGroup
	for i := range tenants {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for ctx.Err() == nil {
				if o := m.one(rng, i); o == refused || o == lost {
					pause(ctx, time.Duration(100+rng.IntN(400))*time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
}

// pause is false when ctx ends it.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// one asks and judges. What has begun is let come to its end: a soak cancels as tenants do, not by ending.
func (m *mesh) one(rng *rand.Rand, i int) outcome {
	q, err := m.question(rng, i)
	if err != nil {
		m.report.fault("%s: %v", m.name, err)
		return wrong
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	body := map[string]any{"stream": rng.IntN(2) == 0}
	for k, v := range q.body {
		body[k] = v
	}
	if body["stream"] == true {
		body["stream_options"] = map[string]bool{"include_usage": true}
	}
	a := answer{start: time.Now()}
	var hungUp atomic.Bool
	hangUp := func() { hungUp.Store(true); cancel() }
	contents, last := 0, 1<<30
	switch rng.IntN(8) {
	case 0: // after a few tokens
		last = 1 + rng.IntN(8)
	case 1: // at any time
		t := time.AfterFunc(time.Duration(rng.IntN(400))*time.Millisecond, hangUp)
		defer t.Stop()
	}
	a.Answer, a.err = m.Post(ctx, q.path, m.Tenants[tenant(i)], body, func(scenario.Answer) {
		if contents++; contents == last {
			hangUp()
		}
	})
	a.hungUp, a.end = hungUp.Load(), time.Now()
	o, what := judge(a, q.right, m.kills.near)
	if o == wrong {
		m.report.fault("%s, %s at %s: %s", m.name, tenant(i), a.start.Format(time.TimeOnly), what)
	}
	m.report.count(o, a.Usage["total_tokens"])
	return o
}

// kill kills a worker in every interval and starts it again, until ctx ends.
func (m *mesh) kill(ctx context.Context, every time.Duration, rng *rand.Rand) error {
	for {
		if !pause(ctx, every) {
			return nil
		}
		victim := m.victims[rng.IntN(len(m.victims))]
		if err := m.heed(context.WithoutCancel(ctx)); err != nil { // what it counted is gone with it
			return err
		}
		if err := m.replace(context.WithoutCancel(ctx), victim, time.Duration(rng.IntN(1000))*time.Millisecond); err != nil {
			return fmt.Errorf("%s: %w", victim, err)
		}
	}
}

func (m *mesh) replace(ctx context.Context, victim string, away time.Duration) error {
	p := m.Process(victim)
	m.kills.begin(time.Now())
	defer func() { m.kills.end(time.Now()) }()
	if err := p.Kill(); err != nil {
		return err
	}
	m.report.killed()
	pause(ctx, away)
	if err := p.Start(); err != nil {
		return err
	}
	wait, cancel := context.WithTimeoutCause(ctx, backAgain, fmt.Errorf("%v are over", backAgain))
	defer cancel()
	if _, err := p.Addr(wait); err != nil {
		return err
	}
	for name := range m.alarms { // it counts from nothing again
		if strings.HasPrefix(name, victim+" ") {
			delete(m.alarms, name)
		}
	}
	return m.AllUp(wait)
}

// heed makes a fault of every alarm that has spoken since it was called last.
func (m *mesh) heed(ctx context.Context) error {
	now, err := m.Alarms(ctx)
	if err != nil {
		return err
	}
	for _, red := range scenario.Rose(m.alarms, now) {
		if strings.Contains(red, "leasehold_worker_faults") { // a cancel explains them; the broker knows which it does not, and says so
			continue
		}
		m.report.fault("%s: %s rose from %v to %v", m.name, red, m.alarms[red], now[red])
	}
	m.alarms = now
	return nil
}

// rest waits until nothing is in use, and takes the last alarms.
func (m *mesh) rest(ctx context.Context) error {
	http.DefaultClient.CloseIdleConnections()
	wait, cancel := context.WithTimeoutCause(ctx, atRest, fmt.Errorf("%v are over", atRest))
	defer cancel()
	for _, b := range m.Brokers {
		if err := m.Baseline(wait, b.Name); err != nil {
			m.report.fault("%s at rest: %v", m.name, err)
		}
	}
	got, err := m.Samples(ctx, "router/router-0")
	if err != nil {
		return err
	}
	for name, n := range got {
		if strings.HasPrefix(name, "leasehold_router_replays_total") {
			m.report.Replays += int(n)
		}
	}
	return m.heed(ctx)
}
