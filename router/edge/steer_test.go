package edge_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"
	"leasehold.dev/router/edge"
	"leasehold.dev/router/keys"
)

// steerable is a world of four pairs in which key "kc" is a canary's.
func steerable(t *testing.T) *world {
	w := newWorld(t, func(s *edge.Service) {
		path := filepath.Join(t.TempDir(), "keys.yaml")
		doc := fmt.Sprintf("keys:\n- {tenant: acme, sha256: %s}\n- {tenant: canary-0, sha256: %s}\ntenants:\n  canary-0: {canary: true}\n", hashed("ka"), hashed("kc"))
		if err := os.WriteFile(path, []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
		ring, err := keys.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		s.Keys = ring
	})
	for _, id := range []string{"1", "2"} {
		w.NewPrefill(w.Status("p"+id, "bp"+id))
		w.NewDecode(w.Status("d"+id, "bd"+id))
	}
	w.eventually("four workers are up", func() bool {
		f := w.svc.Runner.Fleet.Snapshot()
		n := 0
		for _, x := range append(f.Prefill, f.Decode...) {
			if x.Up {
				n++
			}
		}
		return n == 4
	})
	return w
}

func TestACanaryGoesWhereItSays(t *testing.T) {
	w := steerable(t)
	for _, pair := range []string{"p1/d1", "p1/d2", "p2/d1", "p2/d2"} {
		for _, body := range []string{hi, strings.Replace(hi, `"messages"`, `"stream":true,"messages"`, 1), strings.Replace(hi, `"messages"`, `"n":2,"messages"`, 1)} {
			res, got := w.send("POST", "/v1/chat/completions", body, "Authorization: Bearer kc", "X-Leasehold-Pair: "+pair)
			if res.StatusCode != http.StatusOK || res.Header.Get(edge.HeaderPair) != pair {
				t.Fatalf("%s: %d through %q: %s", pair, res.StatusCode, res.Header.Get(edge.HeaderPair), got)
			}
			for _, c := range w.records.Last(1)[0].Choices {
				if c.Prefill+"/"+c.Decode != pair {
					t.Errorf("asked for %s, the record says %s/%s", pair, c.Prefill, c.Decode)
				}
			}
		}
	}
	res, _ := w.send("POST", "/v1/chat/completions", hi, "Authorization: Bearer kc")
	if res.StatusCode != http.StatusOK || res.Header.Get(edge.HeaderPair) != "" {
		t.Errorf("a canary that names no pair: %d, pair %q", res.StatusCode, res.Header.Get(edge.HeaderPair))
	}
}

func TestATenantNeverSteers(t *testing.T) {
	w := steerable(t)
	for _, pair := range []string{"p1/d1", "", "/", "p9/d9"} {
		for _, path := range []string{"/v1/chat/completions", "/v1/completions"} {
			body := hi
			if path == "/v1/completions" {
				body = `{"model":"` + name + `","prompt":"Hi"}`
			}
			before := len(w.records.Last(100))
			res, got := w.send("POST", path, body, "Authorization: Bearer ka", "x-leasehold-pair: "+pair)
			if res.StatusCode != http.StatusForbidden || !strings.Contains(got, "not_allowed") {
				t.Errorf("%s with pair %q: %d %s", path, pair, res.StatusCode, got)
			}
			if rs := w.records.Last(100); len(rs) != before+1 || len(rs[0].Choices) != 0 {
				t.Errorf("%s with pair %q: %d records, the last with choices %v", path, pair, len(rs), rs[0].Choices)
			}
		}
	}
}

func TestOverGRPCToo(t *testing.T) {
	w := steerable(t)
	conn, err := grpc.NewClient(w.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask := func(key string) (metadata.MD, error) {
		ctx := metadata.NewOutgoingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+key, edge.HeaderPair, "p2/d1"))
		st, err := openaiv1.NewOpenAIServiceClient(conn).Completions(ctx, &openaiv1.CompletionsRequest{Model: name, Prompt: structpb.NewStringValue("Hi there, all of you")})
		if err != nil {
			return nil, err
		}
		for err == nil {
			_, err = st.Recv()
		}
		md, _ := st.Header()
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return md, err
	}
	if _, err := ask("ka"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a tenant: %v, want %v", err, codes.PermissionDenied)
	}
	if md, err := ask("kc"); err != nil || fmt.Sprint(md.Get(edge.HeaderPair)) != "[p2/d1]" {
		t.Errorf("a canary: %v, pair %q of %d headers", err, md.Get(edge.HeaderPair), len(md))
	}
}

func TestPairsThatAreNone(t *testing.T) {
	w := steerable(t)
	for _, c := range []struct {
		header []string
		status int
		code   string
	}{
		{[]string{"X-Leasehold-Pair: p1"}, 400, "invalid_value"},
		{[]string{"X-Leasehold-Pair: p1/"}, 400, "invalid_value"},
		{[]string{"X-Leasehold-Pair: p1/d1/d2"}, 400, "invalid_value"},
		{[]string{"X-Leasehold-Pair: p1/d1", "X-Leasehold-Pair: p1/d1"}, 400, "invalid_value"},
		{[]string{"X-Leasehold-Pair: p1/d9"}, 503, "service_unavailable"},
		{[]string{"X-Leasehold-Pair: d1/p1"}, 503, "service_unavailable"},
		{[]string{"X-Leasehold-Pair: /d1"}, 503, "service_unavailable"}, // it computes no prompts
	} {
		res, got := w.send("POST", "/v1/chat/completions", hi, append(c.header, "Authorization: Bearer kc")...)
		if res.StatusCode != c.status || !strings.Contains(got, c.code) {
			t.Errorf("%q: %d %s, want %d %s", c.header, res.StatusCode, got, c.status, c.code)
		}
	}
}
