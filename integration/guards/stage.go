package guards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"leasehold.dev/cli/local"
	"leasehold.dev/integration/driver"
	"leasehold.dev/integration/faultkit"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/model/canary"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
)

// Tenants of the stage: the one that asks, and the one whose markers must not come out.
const (
	asker = iota
	other
)

var names = []string{"asker", "other"}

// prefillPages is prefill's pool: 1,536 tokens, below the promise.
const (
	prefillPages = 24
	decodePages  = 80
	promise      = 2048
	honest       = 300  // tokens that every half holds
	tooLong      = 1700 // tokens that decode holds, and prefill does not
)

type stage struct {
	*faultkit.Stage
	seed   uint64
	before map[string]int // passings of decode/token in each decode worker, before the attack
}

// tokens is how many times a decode worker had handed over tokens before the attack.
func (s *stage) tokens(decode string) int { return s.before[decode] }

// mesh is one whose prefill pool holds less than is promised. Its prefill worker gets ready only while its own limit
// is turned off, which the start file does.
func mesh(limits bool) func(*local.Config) {
	return func(c *local.Config) {
		c.Promise = promise
		c.Tenants = map[string]string{names[asker]: local.NewKey(), names[other]: local.NewKey()}
		c.Router = []string{"-retry-ratio", "0", "-first-token-timeout", "20s"}
		c.Brokers = []local.Broker{{Name: "broker-p", Pages: 64}, {Name: "broker-d", Pages: decodePages}}
		if limits {
			c.Brokers[0].Pages = prefillPages
		}
		for i := range c.Brokers { // the check at the grant is a detector of its own, and would hide the guard behind it
			c.Brokers[i].Args = []string{"-check-share=0"}
		}
		one := []string{"-self-prefill=-1"}
		c.Decodes = []local.Worker{{ID: "decode-0", Broker: "broker-d", Args: one}, {ID: "decode-1", Broker: "broker-d", Args: one}}
		wide := []string{"-chunk", "512"} // an honest prompt is one step
		c.Prefills = []local.Worker{{ID: "prefill-0", Broker: "broker-p", Args: wide}, {ID: "prefill-1", Broker: "broker-p", Args: wide}}
		if limits { // the router must have no choice
			c.Decodes, c.Prefills = c.Decodes[:1], c.Prefills[:1]
		}
	}
}

func open(ctx context.Context, s scenario.Setup, limits bool) (*stage, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("30 s are over")) // of the start alone
	defer cancel()
	st, err := faultkit.Open(ctx, s, mesh(limits), "off "+string(fault.LimitPrefill))
	if err != nil {
		return nil, err
	}
	return &stage{Stage: st}, nil
}

func (s *stage) echo(tenant, tokens int) canary.Echo {
	s.seed++
	e, err := canary.New(tenant, tokens, s.seed)
	if err != nil {
		panic(err) // a bug of the attack
	}
	return e
}

func (s *stage) request(e canary.Echo, p, d string) driver.Request {
	return driver.Request{Tenant: names[e.Tenant], IDs: e.Tokens, MaxNew: canary.Answer, Prefill: p, Decode: d,
		Sampling: &decodev1.Sampling{IgnoreEos: true}}
}

// fill leaves the other tenant's markers all over decode's pool: short prompts, all alive at once, each a page of its own,
// and each the same, so that his chain outweighs what else lies there.
func (s *stage) fill(ctx context.Context) error {
	n := decodePages / 2
	if err := s.Arm(decode0, fault.DecodeOwned, "hold"); err != nil {
		return err
	}
	fired, err := s.tallied(decode0, fault.DecodeOwned)
	if err != nil {
		return err
	}
	e := s.echo(other, 60)
	var all []*running
	for i := range n {
		r := s.request(e, "prefill-0", "decode-0")
		r.MaxNew = 4
		all = append(all, s.start(ctx, r))
		if err = s.Fired(ctx, decode0, fault.DecodeOwned, fired+i+1); err != nil {
			break
		}
	}
	err = errors.Join(err, s.Disarm(decode0, fault.DecodeOwned))
	for _, r := range all {
		<-r.done
		err = errors.Join(err, r.err)
		r.stop()
	}
	return errors.Join(err, s.settled(ctx))
}

// fillOnly fills the pool with every guard on but prefill's limit, so that pages are cleared behind it, and then sets the
// guards again.
func (s *stage) fillOnly(ctx context.Context, off []fault.Guard) error {
	return errors.Join(s.Guards(fault.LimitPrefill), s.ready(ctx), s.fill(ctx), s.Guards(off...))
}

// ready waits until the router has a pair.
func (s *stage) ready(ctx context.Context) error {
	return s.Ready(within(ctx, 10*time.Second))
}

func (s *stage) settled(ctx context.Context) error {
	wait, cancel := context.WithTimeoutCause(ctx, 10*time.Second, errors.New("10 s are over"))
	defer cancel()
	for _, b := range s.Brokers {
		err := scenario.Until(wait, func() error {
			d, err := s.Describe(wait, b.Name)
			if err == nil && (len(d.Leases) > 0 || d.Pool.Free+d.Pool.Zeroing != d.Pool.Pages) {
				err = fmt.Errorf("broker %s: pool %v, leases %v", b.Name, d.Pool, d.Leases)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Seen is what came of an attack.
type Seen struct {
	Own, Foreign int    // markers in the answer
	Ended        string // the error, if any
	Red          []string
}

// ask sends an echo to the router as a tenant does.
func (s *stage) ask(ctx context.Context, e canary.Echo, maxNew int) (Seen, error) {
	b := map[string]any{"model": s.Loaded.Name, "prompt": e.Tokens, "max_tokens": maxNew, "temperature": 0, "stream": true} // what has gone out by an error is out
	a, err := s.Post(ctx, "/v1/completions", s.Tenants[names[e.Tenant]], b, nil)
	if err != nil {
		return Seen{}, err
	}
	out := judge(e, canary.Parse(a.Text))
	if a.Err != nil {
		out.Ended = s.why(ctx, a.Err)
	}
	return out, nil
}

func judge(e canary.Echo, got []int32) Seen {
	if len(got) > canary.Answer { // more was asked for than an echo is long
		got = got[:canary.Answer]
	}
	v := canary.Judge(e, got)
	return Seen{Own: v.Own, Foreign: v.Leaked()}
}

// why is what the router's record says of the last request: tenants are told less.
func (s *stage) why(ctx context.Context, told *scenario.APIError) string {
	_, text, err := s.Admin(ctx, "router/router-0", "/debug/requests")
	var doc struct {
		Requests []struct {
			Error   string `json:"error"`
			Choices []struct {
				Error string `json:"error"`
			} `json:"choices"`
		} `json:"requests"`
	}
	if err == nil {
		err = json.Unmarshal([]byte(text), &doc)
	}
	if err != nil || len(doc.Requests) == 0 {
		return told.Message
	}
	r := doc.Requests[0]
	for _, c := range r.Choices {
		if c.Error != "" {
			return c.Error
		}
	}
	if r.Error != "" {
		return r.Error
	}
	return told.Message
}

// ended is the word for how a driver's request ended.
func ended(err error) string {
	if err == nil {
		return ""
	}
	return errs.KindOf(err).String() + ": " + err.Error()
}

// writeModel makes the canary model.
func writeModel(dir string) (string, error) {
	data, err := canary.File(4096)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "canary.gguf")
	return path, os.WriteFile(path, data, 0o600)
}
