package edge_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"leasehold.dev/protos/errs"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"
	"leasehold.dev/router/edge"
	"leasehold.dev/router/scripted"
)

type decodeScript = scripted.Decode

// open starts a chat request and returns once the header is here.
func (w *world) open(ctx context.Context, body string) *http.Response {
	w.t.Helper()
	req, err := http.NewRequestWithContext(ctx, "POST", w.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer ka")
	res, err := client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	return res
}

func TestHeadersSayRequestAndRoute(t *testing.T) {
	w := newWorld(t)
	w.pair()
	for _, stream := range []string{"false", "true"} {
		res, _ := w.post("/v1/chat/completions", `{"model":"`+name+`","messages":[{"role":"user","content":"Hi"}],"n":2,"stream":`+stream+`}`)
		if id := res.Header.Get("X-Request-Id"); len(id) != 32 || w.records.Last(1)[0].ID != id {
			t.Errorf("stream %s: x-request-id %q, record %q", stream, id, w.records.Last(1)[0].ID)
		}
		if r := res.Header.Get("X-Leasehold-Route"); r != "split:grpc" {
			t.Errorf("stream %s: x-leasehold-route %q", stream, r)
		}
		for k := range res.Header {
			if strings.HasPrefix(k, "Grpc-") {
				t.Errorf("header %s came through", k)
			}
		}
	}
}

func TestSeveralChoices(t *testing.T) {
	w := newWorld(t)
	_, d := w.pair()
	seeds := make(chan uint64, 8)
	d.Tokens = func(s *decodev1.Sampling, i int, text string) *decodev1.Tokens {
		if i == 0 {
			seeds <- s.Seed
		}
		return &decodev1.Tokens{Text: fmt.Sprintf("%d%s", s.Seed, text), Tokens: []*decodev1.TokenInfo{{Id: int32(100 + i)}}}
	}
	body := `{"model":"` + name + `","messages":[{"role":"user","content":"Hi"}],"n":3,"seed":40,"stream":%v,"stream_options":%s}`
	_, sse := w.post("/v1/chat/completions", fmt.Sprintf(body, true, `{"include_usage":true}`))
	for i := range 3 {
		var role, finish int
		var text string
		for line := range strings.SplitSeq(sse, "\n\n") {
			if strings.Contains(line, fmt.Sprintf(`"index":%d,`, i)) {
				role += strings.Count(line, `"role":"assistant"`)
				finish += strings.Count(line, `"finish_reason":"stop"`)
				if _, s, ok := strings.Cut(line, `"delta":{"content":"`); ok {
					s, _, _ = strings.Cut(s, `"`)
					text += s
				}
			}
		}
		if want := fmt.Sprintf("%[1]dThe%[1]d sky%[1]d is%[1]d blue", 40+i); text != want || role != 1 || finish != 1 {
			t.Errorf("choice %d: %q, %d roles, %d finish reasons; want %q, 1 and 1", i, text, role, finish, want)
		}
	}
	if !strings.Contains(sse, `"completion_tokens":12,`) || !strings.HasSuffix(sse, "data: [DONE]\n\n") {
		t.Errorf("no sum of 12 completion tokens or no end in %q", sse[max(0, len(sse)-300):])
	}
	r := w.records.Last(1)[0]
	if ids := []string{r.Choices[0].AdmissionID, r.Choices[1].AdmissionID, r.Choices[2].AdmissionID}; ids[0] == ids[1] || ids[1] == ids[2] {
		t.Errorf("admissions %v are not independent", ids)
	}
	var got []uint64
	for range 3 {
		got = append(got, <-seeds)
	}
	if slices.Sort(got); !slices.Equal(got, []uint64{40, 41, 42}) {
		t.Errorf("seeds %v", got)
	}
	_, full := w.post("/v1/chat/completions", strings.Replace(fmt.Sprintf(body, false, "null"), `"n":3`, `"n":2`, 1))
	if !strings.Contains(full, `"content":"40The40 sky40 is40 blue"`) || !strings.Contains(full, `"content":"41The41 sky41 is41 blue"`) {
		t.Errorf("unary: %s", full)
	}
}

func TestOneChoiceThatFailsEndsAll(t *testing.T) {
	w := newWorld(t)
	p, d := w.pair()
	d.Step = func(ctx context.Context, a *meshv1.Admission, i int) error {
		if i == 2 && w.records.Last(1)[0].Choices[1].AdmissionID == fmt.Sprintf("%x", a.Id) {
			return errs.New(errs.Unavailable, "gone")
		}
		if i == 3 {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	_, sse := w.post("/v1/chat/completions", `{"model":"`+name+`","messages":[{"role":"user","content":"Hi"}],"n":2,"stream":true}`)
	if strings.Contains(sse, "[DONE]") || strings.Contains(sse, `"finish_reason":"`) || !strings.Contains(sse, `data: {"error":{`) {
		t.Errorf("stream %q", sse)
	}
	w.eventually("no call is left", func() bool { return p.Live.Load() == 0 && d.Live.Load() == 0 })
}

func TestAClientThatGoesAwayEndsBothHalves(t *testing.T) {
	for _, when := range []string{"before the first token", "after it"} {
		t.Run(when, func(t *testing.T) {
			w := newWorld(t)
			p, d := w.pair()
			hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
			entered := make(chan struct{}, 1)
			if when == "after it" {
				d.Step = func(ctx context.Context, _ *meshv1.Admission, i int) error {
					if i == 1 {
						return hang(ctx)
					}
					return nil
				}
			} else {
				p.Do = func(ctx context.Context, _ *meshv1.Admission) error { entered <- struct{}{}; return hang(ctx) }
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			body := `{"model":"` + name + `","messages":[{"role":"user","content":"Hi"}],"stream":true}`
			if when == "after it" {
				res := w.open(ctx, body)
				if _, err := bufio.NewReader(res.Body).ReadString('\n'); err != nil {
					t.Fatal(err)
				}
				cancel()
				_ = res.Body.Close()
			} else {
				go func() { <-entered; cancel() }()
				req, _ := http.NewRequestWithContext(ctx, "POST", w.url+"/v1/chat/completions", strings.NewReader(body))
				req.Header.Set("Authorization", "Bearer ka")
				if res, err := client.Do(req); err == nil {
					_ = res.Body.Close()
					t.Fatal("the request was answered")
				}
			}
			w.eventually("no call is left", func() bool { return p.Live.Load() == 0 && d.Live.Load() == 0 })
			w.eventually("the record says cancelled", func() bool { return w.records.Last(1)[0].Outcome == "cancelled" })
		})
	}
}

func TestTheOfficialGoClient(t *testing.T) {
	w := newWorld(t)
	w.pair()
	c := openai.NewClient(option.WithBaseURL(w.url+"/v1"), option.WithAPIKey("ka"), option.WithMaxRetries(0), option.WithHTTPClient(client))
	ask := openai.ChatCompletionNewParams{Model: name, Messages: []openai.ChatCompletionMessageParamUnion{
		openai.SystemMessage("Be brief."), openai.UserMessage("Why is the sky blue?")}, Temperature: openai.Float(0), Seed: openai.Int(7),
		Stop: openai.ChatCompletionNewParamsStopUnion{OfStringArray: []string{"\n\n"}}, MaxCompletionTokens: openai.Int(9)}
	full, err := c.Chat.Completions.New(t.Context(), ask)
	if err != nil || full.Choices[0].Message.Content != "The sky is blue" || full.Choices[0].FinishReason != "stop" || full.Usage.CompletionTokens != 4 ||
		full.Usage.TotalTokens != full.Usage.PromptTokens+4 || full.Object != "chat.completion" {
		t.Fatalf("unary: %+v, %v", full, err)
	}
	ask.StreamOptions = openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)}
	s := c.Chat.Completions.NewStreaming(t.Context(), ask)
	acc := openai.ChatCompletionAccumulator{}
	for s.Next() {
		if !acc.AddChunk(s.Current()) {
			t.Fatalf("the accumulator does not take %s", s.Current().RawJSON())
		}
	}
	if err := s.Err(); err != nil || acc.Choices[0].Message.Content != "The sky is blue" || acc.Choices[0].FinishReason != "stop" || acc.Usage.CompletionTokens != 4 {
		t.Fatalf("stream: %+v, %v", acc, err)
	}
	text, err := c.Completions.New(t.Context(), openai.CompletionNewParams{Model: name, Prompt: openai.CompletionNewParamsPromptUnion{OfString: openai.String("Once")}})
	if err != nil || text.Choices[0].Text != "The sky is blue" || text.Usage.PromptTokens != 1 {
		t.Fatalf("completion: %+v, %v", text, err)
	}
	models, err := c.Models.List(t.Context())
	if err != nil || len(models.Data) != 1 || models.Data[0].ID != name {
		t.Fatalf("models: %+v, %v", models, err)
	}
	var api *openai.Error
	_, err = c.Chat.Completions.New(t.Context(), openai.ChatCompletionNewParams{Model: "nobody", Messages: ask.Messages})
	if !asError(err, &api) || api.StatusCode != 404 || api.Code != "model_not_found" || api.Param != "model" || api.Type != "invalid_request_error" {
		t.Fatalf("unknown model: %v", err)
	}
}

func TestGRPCTenants(t *testing.T) {
	w := newWorld(t)
	w.pair()
	conn, err := grpc.NewClient("passthrough:///"+w.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	c := openaiv1.NewOpenAIServiceClient(conn)
	req := &openaiv1.ChatCompletionsRequest{Model: name, Messages: []*openaiv1.Message{{Role: "user", Content: structpb.NewStringValue("Hi")}}}

	s, err := c.ChatCompletions(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = s.Recv(); status.Code(err) != codes.Unauthenticated {
		t.Fatalf("without a key: %v, want Unauthenticated", err)
	}
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer ka")
	if s, err = c.ChatCompletions(ctx, req); err != nil {
		t.Fatal(err)
	}
	full, err := s.Recv()
	if err != nil || full.GetFull().GetChoices()[0].GetMessage().GetContent() != "The sky is blue" {
		t.Fatalf("answer %v, %v", full, err)
	}
	if _, err = s.Recv(); !errors.Is(err, io.EOF) {
		t.Fatalf("after the answer: %v, want EOF", err)
	}
	req.Model = "nobody"
	if s, err = c.ChatCompletions(ctx, req); err != nil {
		t.Fatal(err)
	}
	_, err = s.Recv()
	st := status.Convert(err)
	if len(st.Details()) != 1 || st.Details()[0].(*openaiv1.Error).GetCode() != "model_not_found" || st.Code() != codes.NotFound {
		t.Fatalf("unknown model: %v %v", err, st.Details())
	}
	if _, err := c.ListModels(t.Context(), &openaiv1.ListModelsRequest{}); status.Code(err) != codes.Unauthenticated {
		t.Fatalf("models without a key: %v", err)
	}
	if _, err := c.ListModels(ctx, &openaiv1.ListModelsRequest{}); err != nil {
		t.Fatalf("models: %v", err)
	}
}

func TestTheRecordIsCompleteWhenTheAnswerIs(t *testing.T) {
	w := newWorld(t)
	w.pair()
	for range 5 {
		res, _ := w.post("/v1/chat/completions", `{"model":"`+name+`","messages":[{"role":"user","content":"Hi"}],"stream":true}`)
		r := w.records.Last(1)[0]
		c := r.Choices[0]
		if r.ID != res.Header.Get(edge.HeaderRequest) || r.Outcome != "ok" || r.Tenant != "acme" || !c.VerdictsEqual || c.CompletionTokens != 4 || r.FirstTokenMS == 0 {
			t.Fatalf("record %+v, choice %+v", r, c)
		}
	}
}
