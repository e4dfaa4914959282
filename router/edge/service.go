package edge

import (
	"context"
	"encoding/hex"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"leasehold.dev/mesh/audit"
	"leasehold.dev/model/chat"
	"leasehold.dev/protos/errs"
	openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"
	"leasehold.dev/protos/proof"
	"leasehold.dev/router/apierr"
	"leasehold.dev/router/choose"
	"leasehold.dev/router/flow"
	"leasehold.dev/router/keys"
	"leasehold.dev/router/meter"
	"leasehold.dev/router/prompt"
	"leasehold.dev/router/receipt"
	"leasehold.dev/router/record"
	"leasehold.dev/router/validate"
)

// Headers of answers, as gRPC metadata and over REST.
const (
	HeaderRequest = "x-request-id"
	HeaderRoute   = "x-leasehold-route"   // choose.Why of each choice, without repeats
	HeaderReceipt = "x-leasehold-receipt" // id of each choice's receipt, in order, with commas between
	// HeaderPair is "prefill/decode", or "/decode" for a route without prefill. A canary's request may have it, and goes
	// through that pair or fails; its answer says the pair that was taken. Any other tenant's request with it is refused.
	HeaderPair  = "x-leasehold-pair"
	headerRetry = "retry-after"
)

// Service is OpenAIService. All fields are set before it serves.
type Service struct {
	openaiv1.UnimplementedOpenAIServiceServer

	Keys        *keys.Ring
	Runner      *flow.Runner
	Prompt      *prompt.Encoder
	Vocab       uint32
	Special     func(id int32) bool // tokens that stand for no text
	Records     *record.Ring
	Meter       *meter.Meter
	Audit       *audit.Log // nil: none
	Log         *slog.Logger
	Created     time.Time // of the model
	Fingerprint string
	BodyTime    time.Duration // for a tenant to send a body; 0: [BodyTime]
	Receipts    *receipt.Issuer
	Again       Again                                    // nil: nothing is run again on request
	Finished    func(receipt.ID, []int32, *flow.Account) // hears of every choice that finished; nil: nobody does

	tenants counters
}

// ListModels needs a key and a ready pair.
func (s *Service) ListModels(ctx context.Context, _ *openaiv1.ListModelsRequest) (*openaiv1.ListModelsResponse, error) {
	if s.tenant(ctx) == nil {
		return nil, apierr.InvalidKey()
	}
	fleet := s.Runner.Fleet.Snapshot()
	limit := choose.Effective(fleet, s.Runner.Model)
	if limit == 0 {
		_, why := choose.Ready(fleet, s.Runner.Model)
		return nil, s.failed(ctx, errs.New(errs.Unavailable, "%s", why), "")
	}
	return &openaiv1.ListModelsResponse{Object: "list", Data: []*openaiv1.Model{{Id: s.Runner.ModelName, Object: "model",
		Created: uint32(s.Created.Unix()), OwnedBy: "leasehold", ContextLength: limit}}}, nil
}

// ChatCompletions serves /v1/chat/completions.
func (s *Service) ChatCompletions(r *openaiv1.ChatCompletionsRequest, out grpc.ServerStreamingServer[openaiv1.ChatCompletionsResponse]) error {
	c := s.begin(out, "chat.completions", r.GetStream())
	return c.serve(func() (*validate.Request, []int32, error) {
		return s.parseChat(r)
	}, func(v *validate.Request) sink {
		head := chatHead{c.id, uint32(time.Now().Unix()), s.Runner.ModelName, s.Fingerprint}
		if v.Stream {
			return &chatStream{chatHead: head, special: s.Special, logprobs: v.Sampling.Logprobs, usage: v.IncludeUsage, send: out.Send}
		}
		return newChatUnary(head, s.Special, v, out.Send)
	})
}

// Completions serves /v1/completions.
func (s *Service) Completions(r *openaiv1.CompletionsRequest, out grpc.ServerStreamingServer[openaiv1.CompletionsResponse]) error {
	c := s.begin(out, "completions", r.GetStream())
	return c.serve(func() (*validate.Request, []int32, error) {
		return s.parseText(r)
	}, func(v *validate.Request) sink {
		head := textHead{c.id, uint32(time.Now().Unix()), s.Runner.ModelName, s.Fingerprint}
		return newText(head, s.Special, v, out.Send)
	})
}

func (s *Service) parseChat(r *openaiv1.ChatCompletionsRequest) (*validate.Request, []int32, error) {
	v, err := validate.Chat(r, s.Vocab)
	if err != nil {
		return nil, nil, err
	}
	if v.Model != s.Runner.ModelName {
		return v, nil, apierr.NoModel(v.Model)
	}
	turns := make([]chat.Message, len(v.Messages))
	for i, m := range v.Messages {
		turns[i] = chat.Message(m)
	}
	ids, err := s.Prompt.Chat(turns)
	return v, ids, err
}

func (s *Service) parseText(r *openaiv1.CompletionsRequest) (*validate.Request, []int32, error) {
	v, err := validate.Completion(r, s.Vocab)
	if err != nil {
		return nil, nil, err
	}
	if v.Model != s.Runner.ModelName {
		return v, nil, apierr.NoModel(v.Model)
	}
	if v.PromptIDs != nil {
		return v, v.PromptIDs, nil
	}
	return v, s.Prompt.Text(v.Prompt), nil
}

func (s *Service) tenant(ctx context.Context) *keys.Tenant {
	md, _ := metadata.FromIncomingContext(ctx)
	if a := md.Get("authorization"); len(a) == 1 {
		return s.Keys.Authenticate(a[0])
	}
	return nil
}

// failed is err as the tenant sees it, with Retry-After where it helps.
func (s *Service) failed(ctx context.Context, err error, id string) error {
	e := apierr.From(err, id)
	if e.RetryAfter > 0 {
		// Fails only once the answer has begun, when the header has lost its use.
		_ = grpc.SetHeader(ctx, metadata.Pairs(headerRetry, strconv.Itoa(int(e.RetryAfter))))
	}
	return e
}

// call is one request of a tenant.
type call struct {
	s      *Service
	stream grpc.ServerStream
	id     string
	start  time.Time
	tenant *keys.Tenant // nil: no such key
	only   *choose.Pair // nil: any
	entry  *record.Entry
	first  time.Duration

	receipts []receipt.ID // of each choice, told before there are any
}

// begin makes a call and its record. A request without a key leaves no record, or anybody could push out those of
// tenants.
func (s *Service) begin(stream grpc.ServerStream, endpoint string, streams bool) *call {
	c := &call{s: s, stream: stream, id: hex.EncodeToString(proof.NewID()), start: time.Now(), tenant: s.tenant(stream.Context())}
	r := &record.Request{ID: c.id, Endpoint: endpoint, Stream: streams, Start: c.start, Outcome: record.Running, Model: s.Runner.ModelName}
	ring := s.Records
	if c.tenant == nil {
		ring = &record.Ring{}
	} else {
		r.Tenant = c.tenant.Name
	}
	c.entry = ring.Begin(r)
	s.Meter.Started()
	return c
}

// serve runs the request. parse validates and tokenises; open makes what writes the answer.
func (c *call) serve(parse func() (*validate.Request, []int32, error), open func(*validate.Request) sink) error {
	ctx := c.stream.Context()
	if err := c.stream.SetHeader(metadata.Pairs(HeaderRequest, c.id)); err != nil {
		return c.end(err)
	}
	tenant := c.tenant
	if tenant == nil {
		return c.end(apierr.InvalidKey())
	}
	if err := c.s.Audit.Healthy(ctx); err != nil { // what cannot be put on record is not answered
		return c.end(err)
	}
	leave, ok := c.s.tenants.enter(tenant.Name, tenant.MaxConcurrent)
	if !ok {
		return c.end(busy(tenant))
	}
	defer leave()
	var err error
	if c.only, err = c.steered(ctx); err != nil {
		return c.end(err)
	}
	v, ids, err := parse()
	if err == nil && len(ids) == 0 {
		err = apierr.Invalid("prompt", "Invalid 'prompt': it has no tokens, expected at least 1.")
	}
	if err != nil {
		return c.end(err)
	}
	c.entry.Update(func(r *record.Request) { r.PromptTokens, r.MaxNewTokens = uint32(len(ids)), v.MaxNew })
	return c.generate(ctx, tenant.Name, v, ids, open)
}

// steered is the pair that the request asks for, nil if it leaves that to us. Only a canary may ask.
func (c *call) steered(ctx context.Context) (*choose.Pair, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	asked := md.Get(HeaderPair)
	if len(asked) == 0 {
		return nil, nil
	}
	if !c.tenant.Canary {
		return nil, apierr.NotAllowed("The header '%s' is not allowed with this API key.", HeaderPair)
	}
	prefill, decode, ok := strings.Cut(asked[0], "/")
	if len(asked) > 1 || !ok || decode == "" || strings.Contains(decode, "/") {
		return nil, apierr.Invalid("", "The header '%s' must be given once, as PREFILL/DECODE or /DECODE.", HeaderPair)
	}
	return &choose.Pair{Prefill: prefill, Decode: decode}, nil
}

// end closes the record and makes the tenant's error.
func (c *call) end(err error) error {
	total := time.Since(c.start)
	if ctx := c.stream.Context(); err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // the tenant is gone; what failed then is an echo of that
	}
	outcome, text := outcomeOf(err)
	c.entry.Update(func(r *record.Request) {
		r.Outcome, r.Error = outcome, text
		r.TotalMS, r.FirstTokenMS = record.MS(total), record.MS(c.first)
	})
	done := c.entry.Copy()
	c.s.Meter.Ended(done.Endpoint, outcome, c.first, total)
	done.Log(c.s.Log)
	if c.tenant != nil { // anybody could fill a disk with requests without a key; no page is touched for them
		c.s.Audit.Append(done.Audit())
	}
	if err == nil {
		return nil
	}
	return c.s.failed(c.stream.Context(), err, c.id)
}

// outcomeOf is the record's word for err, and its text, in which nothing of the tenant's is.
func outcomeOf(err error) (outcome, text string) {
	if err == nil {
		return record.OK, ""
	}
	e, own := apierr.As(err)
	switch {
	case apierr.From(err, "").HTTP == apierr.StatusCancelled:
		return record.Cancelled, ""
	case own:
		return record.Refused, strconv.Itoa(e.HTTP) + " " + e.Code
	}
	return errs.KindOf(err).String(), err.Error()
}
