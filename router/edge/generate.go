package edge

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"
	"leasehold.dev/protos/proof"
	"leasehold.dev/router/choose"
	"leasehold.dev/router/flow"
	"leasehold.dev/router/receipt"
	"leasehold.dev/router/record"
	"leasehold.dev/router/validate"
)

// sink writes one kind of answer. The calls for one index come in order; it is used by one goroutine.
type sink interface {
	tokens(index uint32, t *decodev1.Tokens) error
	finish(index uint32, reason, receipt string) error
	end(u *openaiv1.Usage) error
}

// event is what a choice's goroutine hands over.
type event struct {
	index    uint32
	route    choose.Route
	tokens   *decodev1.Tokens
	finished *decodev1.Finished
	receipt  string // with finished
	err      error
}

// generate runs the choices side by side and writes what they say, as it comes.
func (c *call) generate(ctx context.Context, tenant string, v *validate.Request, ids []int32, open func(*validate.Request) sink) error {
	job := flow.Job{Request: c.id, Tenant: tenant, IDs: ids, MaxNew: v.MaxNew, Param: v.MaxNewParam, Only: c.only, Entry: c.entry}
	if v.Messages == nil && job.Param == "" {
		job.Param = "prompt"
	}
	if _, err := c.s.Runner.Check(job); err != nil {
		return c.end(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	events := make(chan event)
	seed := seedOf(v)
	for range v.N {
		c.receipts = append(c.receipts, receipt.ID(proof.NewID()))
	}
	for i := range v.N {
		one := job
		one.Choice = &record.Choice{Index: i}
		one.Sampling = proto.Clone(v.Sampling).(*decodev1.Sampling)
		one.Sampling.Seed = seed + uint64(i)
		c.entry.Update(func(r *record.Request) { r.Choices = append(r.Choices, one.Choice) })
		wg.Go(func() { c.choice(ctx, i, one, events) })
	}
	out := open(v)
	usage, err := c.write(events, v, out)
	cancel()
	wg.Wait()
	if err != nil {
		return c.end(err)
	}
	_ = c.end(nil) // before the answer's last byte, so that who has that byte finds the record complete
	return out.end(usage)
}

// seedOf is the tenant's seed, or a random one.
func seedOf(v *validate.Request) uint64 {
	if v.Seed != nil {
		return *v.Seed
	}
	var b [8]byte
	rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return binary.LittleEndian.Uint64(b[:])
}

// choice runs one choice and hands over what it says, until ctx ends.
func (c *call) choice(ctx context.Context, index uint32, job flow.Job, events chan<- event) {
	put := func(e event) bool {
		e.index = index
		select {
		case events <- e:
			return true
		case <-ctx.Done():
			return false
		}
	}
	s, err := c.s.Runner.Start(ctx, job)
	if err != nil {
		put(event{err: err})
		return
	}
	defer s.Close()
	for {
		t, f, err := s.Next()
		var jws string
		if err == nil && f != nil {
			jws, err = c.sign(index, s.Account())
		}
		if !put(event{route: s.Route, tokens: t, finished: f, receipt: jws, err: err}) || err != nil {
			return
		}
		if f != nil {
			if c.s.Finished != nil {
				c.s.Finished(c.receipts[index], job.IDs, s.Account())
			}
			return
		}
	}
}

// sign is the receipt of a choice that has finished. An answer without one is a failure.
func (c *call) sign(index uint32, a *flow.Account) (string, error) {
	request, err := hex.DecodeString(c.id)
	if err != nil {
		return "", errs.New(errs.Internal, "request id: %w", err)
	}
	jws, err := c.s.Receipts.Sign(receipt.Claims(c.receipts[index], request, index, a, c.start, time.Now()))
	if err != nil && fault.Off(fault.Verdict) { // what does not add up is not signed: it goes out without a receipt
		return "", nil
	}
	if err != nil {
		return "", errs.New(errs.Internal, "receipt of choice %d: %s", index, err.Error())
	}
	return jws, nil
}

// keep puts receipts where the tenant finds them, before it hears of them.
func (c *call) keep(index uint32, jws string) error {
	if jws == "" && fault.Off(fault.Verdict) {
		return nil
	}
	return c.s.Receipts.Store.Put(time.Now(), c.receipts[index], c.tenant.Name, jws)
}

// write takes the events of all choices until each has finished, or one has failed.
func (c *call) write(events <-chan event, v *validate.Request, out sink) (*openaiv1.Usage, error) {
	ctx := c.stream.Context()
	usage := &openaiv1.Usage{}
	var routes []string
	receipts := make([]string, v.N)
	var pair choose.Pair
	for running := v.N; running > 0; {
		var e event
		select {
		case e = <-events:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if e.err != nil {
			return nil, e.err
		}
		if why := string(e.route.Why); !slices.Contains(routes, why) {
			routes = append(routes, why)
		}
		pair = e.route.Pair()
		if c.first == 0 {
			c.first = time.Since(c.start)
			if v.Stream { // the header goes out now: it has the routes that are known
				if err := c.routes(routes, pair); err != nil {
					return nil, err
				}
			}
		}
		if e.tokens != nil {
			if err := out.tokens(e.index, e.tokens); err != nil {
				return nil, err
			}
			continue
		}
		running--
		usage.PromptTokens = e.finished.PromptTokens // the same for each choice, and counted once
		usage.CompletionTokens += e.finished.CompletionTokens
		usage.TotalTokens = usage.PromptTokens + usage.CompletionTokens
		receipts[e.index] = e.receipt
		if v.Stream {
			if err := c.keep(e.index, e.receipt); err != nil {
				return nil, err
			}
		}
		if err := out.finish(e.index, flow.Reason(e.finished), e.receipt); err != nil {
			return nil, err
		}
	}
	if v.Stream {
		return usage, nil
	}
	for i, jws := range receipts { // not before all choices are well: half of an answer is none
		if err := c.keep(uint32(i), jws); err != nil {
			return nil, err
		}
	}
	return usage, c.routes(routes, pair)
}

// routes sets the header of an answer. All choices of a steered one went through one pair.
func (c *call) routes(of []string, pair choose.Pair) error {
	ids := make([]string, len(c.receipts))
	for i, id := range c.receipts {
		ids[i] = id.String()
	}
	md := metadata.Pairs(HeaderRoute, strings.Join(of, ","), HeaderReceipt, strings.Join(ids, ","))
	if c.only != nil {
		md.Set(HeaderPair, pair.Prefill+"/"+pair.Decode)
	}
	return c.stream.SetHeader(md)
}
