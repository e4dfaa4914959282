package edge_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"testing"
	"time"

	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"
	"leasehold.dev/router/edge"
)

// never is a body of which no byte comes before the test's end.
func never(t *testing.T) io.Reader {
	r, w := io.Pipe()
	t.Cleanup(func() { _ = w.Close() })
	return r
}

func frame(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(b))), b...)
}

// nowhere is a method that no service has.
const nowhere = "/leasehold.openai.v1.OpenAIService/Nothing"

// called is the end of a raw gRPC call.
type called struct {
	code   string
	error  *openaiv1.Error
	header http.Header
}

// call makes a gRPC call by hand, so that its body can come as no client sends it.
func (w *world) call(method string, body io.Reader, authorization ...string) called {
	w.t.Helper()
	return w.callAsked(nil, method, body, authorization...)
}

// callAsked is call with asked, which is called when the server asks for the body.
func (w *world) callAsked(asked func(), method string, body io.Reader, authorization ...string) called {
	w.t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: protocols}
	defer tr.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{Got100Continue: asked})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url+method, body)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "Authorization": authorization}
	if asked != nil {
		req.Header.Set("Expect", "100-continue")
	}
	res, err := tr.RoundTrip(req)
	if err != nil {
		w.t.Fatalf("%s: %v", method, err)
	}
	defer res.Body.Close()
	if b, err := io.ReadAll(res.Body); err != nil {
		w.t.Fatalf("%s: after %d bytes: %v", method, len(b), err)
	}
	out := called{code: res.Trailer.Get("Grpc-Status"), error: &openaiv1.Error{}, header: res.Header}
	if out.code == "12" { // gRPC's own word
		return out
	}
	st := &spb.Status{}
	b, err := base64.RawStdEncoding.DecodeString(res.Trailer.Get("Grpc-Status-Details-Bin"))
	if err == nil {
		err = proto.Unmarshal(b, st)
	}
	if err == nil && len(st.Details) == 1 {
		err = st.Details[0].UnmarshalTo(out.error)
	}
	if err != nil {
		w.t.Fatalf("%s: details: %v", method, err)
	}
	return out
}

// A body of 27 MiB was read and decoded for anybody, as slowly as it came.
func TestNoByteOfABodyIsReadBeforeTheKeyIsKnown(t *testing.T) {
	w := newWorld(t)
	w.pair()
	for _, method := range []string{openaiv1.OpenAIService_ChatCompletions_FullMethodName, openaiv1.OpenAIService_Completions_FullMethodName,
		openaiv1.OpenAIService_ListModels_FullMethodName, openaiv1.OpenAIService_GetReceipt_FullMethodName,
		openaiv1.OpenAIService_ReportReceipt_FullMethodName, nowhere} {
		for _, keys := range [][]string{nil, {"Bearer kx"}, {"ka"}, {"Bearer ka", "Bearer kb"}} {
			got := w.callAsked(func() { t.Errorf("%s with keys %q: its body was asked for", method, keys) }, method, never(t), keys...)
			if got.code != "16" || got.error.HttpStatus != 401 || got.error.GetCode() != "invalid_api_key" || got.header.Get("X-Request-Id") == "" {
				t.Errorf("%s with keys %q: %+v, want Unauthenticated with details, and a request id", method, keys, got)
			}
		}
	}
	if res, _ := w.send("POST", "/v1/chat/completions", "", "Authorization: Bearer kx"); res.StatusCode != 401 {
		t.Errorf("REST: %d, want 401", res.StatusCode)
	}
}

func TestABodyHasASizeAndATime(t *testing.T) {
	short := newWorld(t, func(s *edge.Service) { s.BodyTime = 100 * time.Millisecond })
	short.pair()
	long := newWorld(t) // 8 MiB take a slow machine more than that
	long.pair()
	chat := frame(t, &openaiv1.ChatCompletionsRequest{Model: name, Messages: []*openaiv1.Message{{Role: "user", Content: structpb.NewStringValue("Hi")}}})
	// the prompt is an array of empty values
	values := protowire.AppendBytes([]byte{0x32}, bytes.Repeat([]byte{0x0A, 0}, 4<<20-16))
	million := protowire.AppendBytes([]byte{0x12}, values)
	million = append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(million))), million...)
	for _, c := range []struct {
		name, method string
		body         io.Reader
		code, says   string
	}{
		{"whole", openaiv1.OpenAIService_ChatCompletions_FullMethodName, bytes.NewReader(chat), "0", ""},
		{"nothing comes", openaiv1.OpenAIService_ChatCompletions_FullMethodName, never(t), "3", "to its end"},
		{"half comes", openaiv1.OpenAIService_ChatCompletions_FullMethodName, io.MultiReader(bytes.NewReader(chat[:9]), never(t)), "3", "to its end"},
		{"all comes, and no end", openaiv1.OpenAIService_ChatCompletions_FullMethodName, io.MultiReader(bytes.NewReader(chat), never(t)), "3", "to its end"},
		{"more than was said", openaiv1.OpenAIService_Completions_FullMethodName, bytes.NewReader(make([]byte, 8<<20+6)), "3", "8388613"},
		{"no message", openaiv1.OpenAIService_ChatCompletions_FullMethodName, bytes.NewReader(nil), "3", "one whole message"},
		{"half a message", openaiv1.OpenAIService_ChatCompletions_FullMethodName, bytes.NewReader(chat[:9]), "3", "one whole message"},
		{"two messages", openaiv1.OpenAIService_ChatCompletions_FullMethodName, bytes.NewReader(slices.Concat(chat, chat)), "3", "one whole message"},
		{"a compressed message", openaiv1.OpenAIService_ChatCompletions_FullMethodName, bytes.NewReader(append([]byte{1}, chat[1:]...)), "12", ""},
		{"4 million messages inside", openaiv1.OpenAIService_Completions_FullMethodName, bytes.NewReader(million), "3", "messages inside"},
		{"a list with a body", openaiv1.OpenAIService_ListModels_FullMethodName, bytes.NewReader(make([]byte, 4<<10)), "3", "1029"},
		{"a list", openaiv1.OpenAIService_ListModels_FullMethodName, bytes.NewReader(make([]byte, 5)), "0", ""},
	} {
		w := long
		if c.says == "to its end" {
			w = short
		}
		got := w.call(c.method, c.body, "Bearer ka")
		if got.code != c.code || !strings.Contains(got.error.Message, c.says) {
			t.Errorf("%s: %+v, want code %s and %q", c.name, got, c.code, c.says)
		}
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, short.url+"/v1/chat/completions", never(t))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer ka")
	if res, err := client.Do(req); err != nil || res.StatusCode != 400 {
		t.Errorf("REST, nothing comes: %+v, %v; want 400", res, err)
	} else {
		_ = res.Body.Close()
	}
}

func TestAMessageOverTheBoundIsRefusedWithDetails(t *testing.T) {
	w := newWorld(t)
	w.pair()
	conn, err := grpc.NewClient("passthrough:///"+w.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for key, want := range map[string]codes.Code{"ka": codes.InvalidArgument, "kx": codes.Unauthenticated} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+key)
		s, err := openaiv1.NewOpenAIServiceClient(conn).ChatCompletions(ctx, &openaiv1.ChatCompletionsRequest{Model: name, User: proto.String(strings.Repeat("x", 9<<20))})
		if err == nil {
			_, err = s.Recv()
		}
		if st := status.Convert(err); st.Code() != want || len(st.Details()) != 1 {
			t.Errorf("9 MiB by %s: %v with %d details, want %v with one", key, err, len(st.Details()), want)
		}
	}
}

// bolt may run one request at once; the first one's body has not come yet.
func TestATenantsRoomIsTakenBeforeItsBodyIsRead(t *testing.T) {
	for _, over := range []string{"REST", "gRPC"} {
		t.Run(over, func(t *testing.T) {
			w := newWorld(t)
			w.pair()
			body, end := io.Pipe()
			done, asked := make(chan struct{}), make(chan struct{})
			ask := func() { close(asked) }
			go func() {
				defer close(done)
				if over == "gRPC" {
					w.callAsked(ask, nowhere, body, "Bearer kb")
					return
				}
				ctx := httptrace.WithClientTrace(w.t.Context(), &httptrace.ClientTrace{Got100Continue: ask})
				req, _ := http.NewRequestWithContext(ctx, http.MethodPost, w.url+"/v1/chat/completions", body)
				req.Header.Set("Authorization", "Bearer kb")
				req.Header.Set("Expect", "100-continue")
				if res, err := client.Do(req); err != nil || res.StatusCode != 400 {
					t.Errorf("the first: %+v, %v; want 400 for its empty body", res, err)
				} else {
					_ = res.Body.Close()
				}
			}()
			<-asked
			if res, _ := w.send("POST", "/v1/chat/completions", hi, "Authorization: Bearer kb"); res.StatusCode != 429 || res.Header.Get("Retry-After") != "1" {
				t.Errorf("a second over REST: %+v, want 429 with Retry-After", res)
			}
			got := w.call(openaiv1.OpenAIService_ChatCompletions_FullMethodName, never(t), "Bearer kb")
			if got.code != "8" || got.error.HttpStatus != 429 || got.header.Get("Retry-After") != "1" {
				t.Errorf("a second over gRPC: %+v, want ResourceExhausted with retry-after", got)
			}
			if got := w.call(openaiv1.OpenAIService_ListModels_FullMethodName, bytes.NewReader(make([]byte, 5)), "Bearer kb"); got.code != "0" {
				t.Errorf("the list of models: %+v, want it", got)
			}
			if res, _ := w.post("/v1/chat/completions", hi); res.StatusCode != 200 {
				t.Errorf("another tenant: %d, want 200", res.StatusCode)
			}
			_ = end.Close()
			<-done
			w.eventually("the room is free again", func() bool {
				res, _ := w.send("POST", "/v1/chat/completions", hi, "Authorization: Bearer kb")
				return res.StatusCode == 200
			})
		})
	}
}

// Where JSON is shorter than protobuf, a body within its bound makes a longer message; it must reach the service.
func TestABodyWithinTheBoundReachesTheService(t *testing.T) {
	w := newWorld(t)
	w.pair()
	ids := `{"model":"` + name + `","prompt":[` + strings.Repeat("1,", 1<<20-1) + `1]}`
	if res, got := w.post("/v1/completions", ids); res.StatusCode != 400 || !strings.Contains(got, "context_length_exceeded") {
		t.Errorf("1,048,576 token ids in %d bytes: %d %.300s, want context_length_exceeded", len(ids), res.StatusCode, got)
	}
	message := `{"role":"user","content":[` + strings.Repeat(`{"type":"text","text":""},`, 1023) + `{"type":"text","text":"x"}]},`
	parts := `{"model":"` + name + `","messages":[` + strings.TrimSuffix(strings.Repeat(message, (8<<20-100)/len(message)), ",") + `]}`
	if res, got := w.post("/v1/chat/completions", parts); res.StatusCode != 400 || !strings.Contains(got, "context_length_exceeded") {
		t.Errorf("parts in %d bytes: %d %.300s, want context_length_exceeded", len(parts), res.StatusCode, got)
	}
}
