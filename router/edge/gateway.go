package edge

import (
	"context"
	"net/http"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/genproto/googleapis/api/httpbody"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/protos/errs"
	openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"
	"leasehold.dev/router/apierr"
	"leasehold.dev/router/shape"
)

const (
	typeJSON = "application/json"
	typeSSE  = "text/event-stream; charset=utf-8"
)

// answer is what the gateway has to know of one HTTP request; it is in the request's context.
type answer struct {
	usage bool // chunks have usage
	sse   bool // a chunk went out: an error is an event now
}

type answerKey struct{}

func answerOf(ctx context.Context) *answer {
	if a, ok := ctx.Value(answerKey{}).(*answer); ok {
		return a
	}
	return &answer{}
}

// gateway serves REST over conn. Requests must have passed the front's checks.
func gateway(ctx context.Context, conn *grpc.ClientConn) (http.Handler, error) {
	m := &marshaler{runtime.JSONPb{UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: true}}}
	nothing := func(string) (string, bool) { return "", false }
	mux := runtime.NewServeMux(
		runtime.WithMarshalerOption(runtime.MIMEWildcard, m),
		runtime.WithForwardResponseRewriter(rewrite),
		runtime.WithErrorHandler(writeError),
		runtime.WithRoutingErrorHandler(noRoute),
		runtime.WithStreamErrorHandler(streamError),
		runtime.WithIncomingHeaderMatcher(func(k string) (string, bool) { // Authorization goes along by itself
			return HeaderPair, strings.EqualFold(k, HeaderPair)
		}),
		runtime.WithOutgoingHeaderMatcher(func(k string) (string, bool) {
			return k, k == HeaderRequest || k == HeaderRoute || k == HeaderPair || k == HeaderReceipt || k == headerRetry
		}),
		runtime.WithOutgoingTrailerMatcher(nothing),
		runtime.WithDisableHTTPMethodOverride(),
		runtime.WithDisableChunkedEncoding(), // net/http does it where the protocol has it
	)
	return mux, openaiv1.RegisterOpenAIServiceHandler(ctx, mux, conn)
}

// rewrite makes OpenAI's bytes of each message. They are written as they are, and a newline after them.
func rewrite(ctx context.Context, m proto.Message) (any, error) {
	a := answerOf(ctx)
	event := func(b []byte, err error) (any, error) {
		a.sse = true
		return &httpbody.HttpBody{ContentType: typeSSE, Data: shape.Event(b)}, err
	}
	object := func(b []byte, err error) (any, error) {
		return &httpbody.HttpBody{ContentType: typeJSON, Data: b}, err
	}
	switch r := m.(type) {
	case *openaiv1.ChatCompletionsResponse:
		switch k := r.Kind.(type) {
		case *openaiv1.ChatCompletionsResponse_Full:
			return object(shape.Chat(k.Full))
		case *openaiv1.ChatCompletionsResponse_Chunk:
			return event(shape.ChatChunk(k.Chunk, a.usage))
		case *openaiv1.ChatCompletionsResponse_Done:
			return &httpbody.HttpBody{ContentType: typeSSE, Data: shape.Done}, nil
		}
	case *openaiv1.CompletionsResponse:
		switch k := r.Kind.(type) {
		case *openaiv1.CompletionsResponse_Full:
			return object(shape.Completion(k.Full, true))
		case *openaiv1.CompletionsResponse_Chunk:
			return event(shape.Completion(k.Chunk, a.usage))
		case *openaiv1.CompletionsResponse_Done:
			return &httpbody.HttpBody{ContentType: typeSSE, Data: shape.Done}, nil
		}
	case *openaiv1.ListModelsResponse:
		return object(shape.Models(r))
	case *openaiv1.GetReceiptResponse:
		return object(shape.Receipt(r))
	case *openaiv1.ReportReceiptResponse:
		return object(shape.Report(r))
	case *openaiv1.ListReceiptKeysResponse:
		return object(shape.Keys(r))
	}
	return nil, apierr.From(errs.New(errs.Internal, "gateway: message %T has no shape", m), "")
}

// marshaler writes what rewrite made, and errors in OpenAI's shape.
type marshaler struct{ runtime.JSONPb }

func (m *marshaler) Marshal(v any) ([]byte, error) {
	switch v := v.(type) {
	case *httpbody.HttpBody:
		return v.Data, nil
	case map[string]proto.Message: // the gateway's error chunk
		if st, ok := v["error"].(*spb.Status); ok {
			return failure(st), nil
		}
	}
	return m.JSONPb.Marshal(v)
}

// failure is an error inside of the answer. The gateway gives no context here, so streamError leaves its mark.
func failure(st *spb.Status) []byte {
	sse := len(st.Message) > 0 && st.Message[0] == eventMark
	if sse {
		st.Message = st.Message[1:]
	}
	b := shape.Error(apierr.FromStatus(status.FromProto(st)))
	if sse {
		b = shape.Event(b)
	}
	return b
}

const eventMark = '\x00'

func streamError(ctx context.Context, err error) *status.Status {
	st := status.Convert(apierr.FromStatus(status.Convert(err)))
	if answerOf(ctx).sse {
		p := st.Proto()
		p.Message = string(eventMark) + p.Message
		return status.FromProto(p)
	}
	return st
}

func (m *marshaler) Delimiter() []byte      { return []byte("\n") }
func (m *marshaler) ContentType(any) string { return typeJSON }
func (m *marshaler) StreamContentType(v any) string {
	if b, ok := v.(*httpbody.HttpBody); ok {
		return b.ContentType
	}
	return typeJSON
}

// writeError answers a failure before the first byte.
func writeError(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, _ *http.Request, err error) {
	respond(w, apierr.FromStatus(status.Convert(err)))
}

func noRoute(_ context.Context, _ *runtime.ServeMux, _ runtime.Marshaler, w http.ResponseWriter, r *http.Request, _ int) {
	respond(w, apierr.NoRoute(r.Method, r.URL.Path))
}
