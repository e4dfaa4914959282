package bar

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"leasehold.dev/cli/local"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/protos/receipt"
	"leasehold.dev/router/replay"
)

const (
	replayed      = 200 // answers, each run again
	replayClients = 4
	replayTime    = 15 * time.Minute
)

// replayWords are the lengths of the load, in words of about one token; the template adds about 30.
var replayWords = [...]int{1, 12, 35, 64, 90, 128, 180, 260, 33, 400, 20, 700, 5, 150, 97, 1500, 40, 220, 75, 10}

type replayRun struct {
	*scenario.Stage
	keys receipt.Keys

	mu     sync.Mutex
	claims map[string]*receipt.Claims // by id
}

// runReplay sends a mixed load through a mesh whose router samples everything, and then holds each replay that the router
// did against the receipt that the tenant got: the same digests, by another decode worker.
func runReplay(ctx context.Context, e *Env) (r Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, replayTime)
	defer cancel()
	st, err := scenario.Open(ctx, e.setup(), replayMesh)
	if err != nil {
		return Result{}, err
	}
	defer func() {
		if end := st.Close(); err == nil {
			err = end
		}
	}()
	run := &replayRun{Stage: st, claims: map[string]*receipt.Claims{}}
	if err := run.fetchKeys(ctx); err != nil {
		return Result{}, err
	}
	began := time.Now()
	if err := run.load(ctx); err != nil {
		return Result{}, err
	}
	e.sayf("replay: %d answers in %.0f s, %d receipts verify", replayed, time.Since(began).Seconds(), len(run.claims))
	var seen []replay.Seen
	err = scenario.Until(ctx, func() (err error) {
		if seen, err = run.seen(ctx); err == nil && len(seen) < replayed {
			err = fmt.Errorf("%d of %d were run again", len(seen), replayed)
		}
		return err
	})
	figures := run.compare(e, seen)
	figures["seconds_answers_and_replays"] = time.Since(began).Round(time.Second).Seconds()
	met := err == nil && len(run.claims) == replayed
	for _, all := range []string{"equal_tokens", "equal_logits", "elsewhere", "unsplit"} {
		met = met && figures[all] == replayed
	}
	return Result{Met: met, Figures: figures}, err
}

// replayMesh has two decode workers on pools of their own, and four tenants.
func replayMesh(c *local.Config) {
	c.Brokers = append(c.Brokers, local.Broker{Name: "broker-e", Pages: 288})
	c.Decodes = append(c.Decodes, local.Worker{ID: "decode-1", Broker: "broker-e"})
	c.Router = append(c.Router, "-replay-share=1", "-replay-budget=1")
	for i := range replayClients {
		c.Tenants[fmt.Sprintf("tenant-%d", i)] = local.NewKey()
	}
}

func (r *replayRun) fetchKeys(ctx context.Context) error {
	b, err := httpGet(ctx, r.URL()+"/.well-known/jwks.json")
	if err != nil {
		return err
	}
	r.keys, err = receipt.ParseKeys(b)
	return err
}

// load sends the answers, several at once; each client is a tenant.
func (r *replayRun) load(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for tenant := range replayClients {
		wg.Go(func() {
			for i := tenant; i < replayed; i += replayClients {
				if err := r.one(ctx, i, fmt.Sprintf("tenant-%d", tenant)); err != nil {
					cancel(fmt.Errorf("answer %d: %w", i, err))
					return
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// one is an answer: of two greedy, of two seeded; of two whole, of two streamed.
func (r *replayRun) one(ctx context.Context, i int, tenant string) error {
	body := map[string]any{"model": r.Loaded.Name, "max_tokens": 6 + i%13, "stream": i%4 >= 2, "temperature": 0,
		"messages": []map[string]string{{"role": "user", "content": fmt.Sprintf("%d. %s", i, scenario.Words(replayWords[i%len(replayWords)]))}}}
	if i%2 == 1 {
		body["temperature"], body["top_p"], body["seed"] = 0.9, 0.95, i
	}
	if i%5 == 0 {
		body["stop"], body["frequency_penalty"] = []string{"zebra"}, 0.5
	}
	a, err := r.Post(ctx, "/v1/chat/completions", r.Tenants[tenant], body, nil)
	if err != nil {
		return err
	}
	if a.Err != nil || !a.Completed {
		return fmt.Errorf("%v", a.Err)
	}
	c, err := r.keys.Verify(a.Receipt)
	if err != nil {
		return err
	}
	if c.Tenant != tenant {
		return fmt.Errorf("the receipt is of %s, not of %s", c.Tenant, tenant)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.claims[hex.EncodeToString(c.ID)] = c
	return nil
}

// seen is what the router's audit has done.
func (r *replayRun) seen(ctx context.Context) ([]replay.Seen, error) {
	a, err := r.Process("router/router-0").Addr(ctx)
	if err != nil {
		return nil, err
	}
	b, err := httpGet(ctx, "http://"+a.Admin+"/debug/replays")
	if err != nil {
		return nil, err
	}
	var doc struct{ Replays []replay.Seen }
	return doc.Replays, json.Unmarshal(b, &doc)
}

// compare takes nothing from the audit's own judgement: the digests of the replay against those of the signed receipt.
func (r *replayRun) compare(e *Env, seen []replay.Seen) map[string]any {
	tokens, logits, elsewhere, unsplit, greedy, seeded := 0, 0, 0, 0, 0, 0
	shortest, longest, total := uint32(0), uint32(0), uint64(0)
	tenants := map[string]bool{}
	once := map[string]bool{}
	for _, s := range seen {
		c := r.claims[s.Receipt]
		if c == nil || once[s.Receipt] {
			e.sayf("replay: %s is no receipt of this load, or was run again twice", s.Receipt)
			continue
		}
		once[s.Receipt], tenants[c.Tenant] = true, true
		if s.Output == hex.EncodeToString(c.OutputDigest) && s.New == c.Tokens.Completion {
			tokens++
		}
		if s.Logits == hex.EncodeToString(c.LogitDigest) {
			logits++
		}
		if s.Elsewhere != "" && s.Elsewhere != c.Workers.Decode {
			elsewhere++
		}
		if c.Split() && s.Rows == 0 {
			unsplit++
		}
		if c.Sampling.Temperature == 0 {
			greedy++
		} else {
			seeded++
		}
		if shortest == 0 || c.Tokens.Prompt < shortest {
			shortest = c.Tokens.Prompt
		}
		longest, total = max(longest, c.Tokens.Prompt), total+uint64(c.Tokens.Prompt)+uint64(c.Tokens.Completion)
		if s.Result != replay.Equal {
			e.sayf("replay: %s by %s, again by %s: %s", s.Receipt, s.Pair, s.Elsewhere, s.Result)
		}
	}
	return map[string]any{"replays": len(seen), "equal_tokens": tokens, "equal_logits": logits, "elsewhere": elsewhere, "unsplit": unsplit, "greedy": greedy,
		"seeded": seeded, "tenants": len(tenants), "shortest_prompt": shortest, "longest_prompt": longest, "tokens": total}
}

func httpGet(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: status %d", url, res.StatusCode)
	}
	return b, err
}
