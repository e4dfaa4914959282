package edge_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"
	claims "leasehold.dev/protos/receipt"
	"leasehold.dev/router/edge"
	"leasehold.dev/router/receipt"
)

var jwsIn = regexp.MustCompile(`"leasehold_receipt":"([^"]*)"`)

// receipts are the JWSs in a body, and what they claim by the router's own public keys.
func (w *world) receipts(body string) (jws []string, all []*claims.Claims) {
	w.t.Helper()
	res, set := w.send("GET", "/.well-known/jwks.json", "") // without a key
	keys, err := claims.ParseKeys([]byte(set))
	if err != nil || res.StatusCode != 200 || res.Header.Get("Content-Type") != "application/json" {
		w.t.Fatalf("jwks.json: %d, %v: %s", res.StatusCode, err, set)
	}
	for _, m := range jwsIn.FindAllStringSubmatch(body, -1) {
		c, err := keys.Verify(m[1])
		if err != nil {
			w.t.Fatal(err)
		}
		jws, all = append(jws, m[1]), append(all, c)
	}
	return jws, all
}

func (w *world) kept() int { n, _, _ := w.svc.Receipts.Store.Size(); return n }

// reported is a decoded report.
type reported struct{ ID, Object, Receipt, State, Replay string }

func (w *world) report(id, body, key string) (int, reported, string) {
	w.t.Helper()
	res, b := w.send("POST", "/v1/receipts/"+id+"/report", body, "Authorization: Bearer "+key, "Content-Type: application/json")
	var out reported
	if res.StatusCode == 200 {
		if err := json.Unmarshal([]byte(b), &out); err != nil {
			w.t.Fatalf("%v: %s", err, b)
		}
	}
	return res.StatusCode, out, b
}

func TestEveryAnswerHasItsReceipts(t *testing.T) {
	for _, c := range []struct {
		path, body string
		n          int
	}{
		{"/v1/chat/completions", hi, 1},
		{"/v1/chat/completions", strings.Replace(hi, `"messages"`, `"stream":true,"stream_options":{"include_usage":true},"messages"`, 1), 1},
		{"/v1/chat/completions", strings.Replace(hi, `"messages"`, `"n":3,"seed":7,"temperature":0.5,"stop":"zz","messages"`, 1), 3},
		{"/v1/chat/completions", strings.Replace(hi, `"messages"`, `"n":2,"stream":true,"messages"`, 1), 2},
		{"/v1/completions", `{"model":"` + name + `","prompt":"Hi"}`, 1},
		{"/v1/completions", `{"model":"` + name + `","prompt":"Hi","stream":true}`, 1},
	} {
		w := newWorld(t)
		w.pair()
		res, body := w.post(c.path, c.body)
		ids := strings.Split(res.Header.Get("X-Leasehold-Receipt"), ",")
		jws, all := w.receipts(body)
		if res.StatusCode != 200 || len(ids) != c.n || len(all) != c.n || w.kept() != c.n {
			t.Fatalf("%s: %d, ids %v, %d receipts, %d kept; want %d: %s", c.body, res.StatusCode, ids, len(all), w.kept(), c.n, body)
		}
		record := w.records.Last(1)[0]
		for i, one := range all {
			at := one.Choice
			r := record.Choices[at]
			if receipt.ID(one.ID).String() != ids[at] || fmt.Sprintf("%x", []byte(one.Request)) != res.Header.Get("X-Request-Id") || one.Tenant != "acme" {
				t.Errorf("choice %d: receipt %+v, header %v", at, one, ids)
			}
			if fmt.Sprintf("%x", []byte(one.OutputDigest)) != r.OutputDigest || fmt.Sprintf("%x", []byte(one.LogitDigest)) != r.LogitDigest || one.Tokens.Prompt != r.PromptTokens ||
				one.Tokens.Completion != 4 || one.Workers.Prefill != r.Prefill || one.Pages.Moved != r.PagesMoved || fmt.Sprintf("%x", []byte(one.Root)) != r.Root || !one.GuardsOn {
				t.Errorf("choice %d: receipt %+v, record %+v", at, one, r)
			}
			if c.n == 3 && (one.Sampling.Seed != 7+uint64(at) || one.Sampling.Temperature != 0.5 || !bytes.Equal(one.Sampling.StopDigest, claims.StopDigest([]string{"zz"}))) {
				t.Errorf("choice %d: sampling %+v", at, one.Sampling)
			}
			get, b := w.send("GET", "/v1/receipts/"+ids[at], "", "Authorization: Bearer ka")
			if want := fmt.Sprintf(`{"id":"%s","object":"leasehold.receipt","leasehold_receipt":"%s"}`, ids[at], jws[i]); get.StatusCode != 200 || strings.TrimSpace(b) != want {
				t.Errorf("GET: %d %s, want %s", get.StatusCode, b, want)
			}
		}
		for line := range strings.Lines(body) { // where finish_reason is, and nowhere else
			if strings.Contains(line, "leasehold_receipt") != strings.Contains(line, `"finish_reason":"stop"`) {
				t.Errorf("%s", line)
			}
		}
	}
}

// T3: another tenant hears of a receipt what it hears of one that never was, byte for byte.
func TestAReceiptOfAnotherTenantIsNotThere(t *testing.T) {
	w := newWorld(t)
	w.pair()
	res, _ := w.post("/v1/chat/completions", hi)
	id := res.Header.Get("X-Leasehold-Receipt")
	never := strings.Repeat("ab", 16)
	for _, try := range []string{"GET /v1/receipts/ID", "POST /v1/receipts/ID/report"} {
		method, path, _ := strings.Cut(try, " ")
		answer := func(id, key string) (string, int) {
			res, b := w.send(method, strings.Replace(path, "ID", id, 1), "", "Authorization: Bearer "+key)
			res.Header.Del("Date")
			if res.StatusCode != 200 && len(res.Header.Get("X-Request-Id")) != 32 {
				t.Errorf("%s: no request id", try)
			}
			res.Header.Del("X-Request-Id")
			return fmt.Sprint(res.StatusCode, res.Header, b), res.StatusCode
		}
		theirs, code := answer(id, "kb")
		nobodys, _ := answer(never, "kb")
		if code != 404 || theirs != nobodys || !strings.Contains(theirs, "receipt_not_found") {
			t.Errorf("%s: another's %s, nobody's %s", try, theirs, nobodys)
		}
		for _, odd := range []string{id[:31], id + "0", strings.ToUpper(id), "..%2f" + id, "%00"} {
			if got, code := answer(odd, "ka"); code != 404 {
				t.Errorf("%s with id %q: %s", try, odd, got)
			}
		}
		if got, code := answer(id, "kx"); code != 401 {
			t.Errorf("%s without a key: %s", try, got)
		}
		if got, code := answer(id, "ka"); code != 200 {
			t.Errorf("%s by its owner: %s", try, got)
		}
	}
	if open := w.svc.Receipts.Desk.All(); len(open) != 1 || open[0].Tenant != "acme" {
		t.Errorf("reports %+v, want the owner's alone", open)
	}
}

func TestNoReceiptOfAFailure(t *testing.T) {
	for _, stream := range []bool{false, true} {
		for _, n := range []int{1, 2} {
			w := newWorld(t)
			_, d := w.pair()
			seen := make(chan struct{}, 2)
			d.Step = func(_ context.Context, _ *meshv1.Admission, i int) error {
				if i == 3 {
					seen <- struct{}{}
					if len(seen) == n { // the last of n choices; the first ones end well
						return errs.New(errs.Corrupt, "a page differs")
					}
				}
				return nil
			}
			res, body := w.post("/v1/chat/completions", strings.Replace(hi, `"messages"`, fmt.Sprintf(`"n":%d,"stream":%v,"messages"`, n, stream), 1))
			jws, _ := w.receipts(body)
			if !strings.Contains(body, `"error"`) || len(jws) >= n || !stream && (len(jws)+w.kept() > 0 || res.Header.Get("X-Leasehold-Receipt") != "") {
				t.Errorf("n %d, stream %v: %d receipts, %d kept, header %q: %s", n, stream, len(jws), w.kept(), res.Header.Get("X-Leasehold-Receipt"), body)
			}
			found := 0
			for id := range strings.SplitSeq(res.Header.Get("X-Leasehold-Receipt"), ",") {
				if get, _ := w.send("GET", "/v1/receipts/"+id, "", "Authorization: Bearer ka"); get.StatusCode == 200 {
					found++
				}
			}
			if found != w.kept() || found >= n {
				t.Errorf("n %d, stream %v: %d of the ids in the header are receipts, %d are kept", n, stream, found, w.kept())
			}
		}
	}
	w := newWorld(t) // refused at the door
	w.pair()
	res, _ := w.post("/v1/chat/completions", strings.Replace(hi, `"messages"`, `"max_tokens":100000,"messages"`, 1))
	if res.StatusCode != 400 || res.Header.Get("X-Leasehold-Receipt") != "" || w.kept() != 0 {
		t.Errorf("over the limit: %d, %q, %d kept", res.StatusCode, res.Header.Get("X-Leasehold-Receipt"), w.kept())
	}
}

// An answer whose receipt cannot be made is a failure.
func TestNoAnswerWithoutAReceipt(t *testing.T) {
	w := newWorld(t, func(s *edge.Service) {
		s.Receipts.Head = func() *claims.Head { return &claims.Head{} } // no hash: it cannot be signed
	})
	w.pair()
	res, body := w.post("/v1/chat/completions", hi)
	if res.StatusCode != 500 || w.kept() != 0 || w.records.Last(1)[0].Outcome != "internal" {
		t.Errorf("%d %s, %+v", res.StatusCode, body, w.records.Last(1)[0])
	}
	_, sse := w.post("/v1/chat/completions", strings.Replace(hi, `"messages"`, `"stream":true,"messages"`, 1))
	if strings.Contains(sse, `"finish_reason":"stop"`) || !strings.Contains(sse, `"error"`) || strings.Contains(sse, "[DONE]") {
		t.Errorf("%s", sse)
	}
}

func TestReports(t *testing.T) {
	var asked []string
	word := receipt.ReplayEqual
	w := newWorld(t, func(s *edge.Service) {
		s.Again = func(_ context.Context, c *claims.Claims, ids []int32, stop []string) string {
			asked = append(asked, fmt.Sprint(len(ids) == int(c.Tokens.Prompt), stop))
			return word
		}
	})
	w.pair()
	request := strings.Replace(hi, `"messages"`, `"stop":["zz"],"messages"`, 1)
	res, _ := w.post("/v1/chat/completions", request)
	id := res.Header.Get("X-Leasehold-Receipt")
	code, first, body := w.report(id, "", "ka")
	if code != 200 || first.State != "open" || first.Replay != "none" || first.Receipt != id || len(first.ID) != 32 || first.Object != "leasehold.report" {
		t.Fatalf("%d %s", code, body)
	}
	for _, c := range []struct {
		why, body string
		code      int
		replay    string
		asked     int
	}{
		{"nothing given", `{}`, 200, "none", 0},
		{"null", `{"chat":null}`, 200, "none", 0},
		{"the request", `{"chat":` + request + `}`, 200, "equal", 1},
		{"another prompt", `{"chat":` + strings.Replace(request, "Hi", "Ho", 1) + `}`, 200, "other_request", 1},
		{"other stop strings", `{"chat":` + hi + `}`, 200, "other_request", 1},
		{"as plain text", `{"completion":{"model":"` + name + `","prompt":"Hi"}}`, 200, "other_request", 1},
		{"the request again", `{"chat":` + request + `}`, 200, "other_request", 2}, // what is worse stays
		{"both", `{"chat":` + request + `,"completion":{"model":"` + name + `","prompt":"Hi"}}`, 400, "completion", 2},
		{"no request", `{"chat":{}}`, 400, "model", 2},
		{"another field", `{"text":"x"}`, 400, "text", 2},
		{"a field of no request", `{"chat":{"model":"m","tools":[]}}`, 400, "tools", 2},
		{"no object", `{"chat":"x"}`, 400, "chat", 2},
		{"no JSON", `{`, 400, "", 2},
		{"another model", `{"chat":` + strings.Replace(request, name, "gpt", 1) + `}`, 404, "model_not_found", 2},
	} {
		code, got, body := w.report(id, c.body, "ka")
		if code != c.code || len(asked) != c.asked || code == 200 && (got.Replay != c.replay || got.ID != first.ID) || code != 200 && !strings.Contains(body, c.replay) {
			t.Errorf("%s: %d %s, asked %q; want %d %s, %d", c.why, code, body, asked, c.code, c.replay, c.asked)
		}
	}
	for _, a := range asked {
		if a != "true [zz]" {
			t.Errorf("run again with %s", a)
		}
	}
	word = receipt.ReplayDifferent
	if _, got, _ := w.report(id, `{"chat":`+request+`}`, "ka"); got.Replay != "different" {
		t.Errorf("a difference: %+v", got)
	}
	w.svc.Again = nil
	res, _ = w.post("/v1/chat/completions", hi)
	if _, got, _ := w.report(res.Header.Get("X-Leasehold-Receipt"), `{"chat":`+hi+`}`, "ka"); got.Replay != "not_run" {
		t.Errorf("nobody runs it again: %+v", got)
	}
	if all := w.svc.Receipts.Desk.All(); len(all) != 2 || all[0].ID != first.ID || all[0].JWS == "" {
		t.Errorf("open reports %+v", all)
	}
	if log := w.log.String(); !strings.Contains(log, "replay=different") || strings.Contains(log, "zz") {
		t.Errorf("the log lacks the report, or has the tenant's text:\n%s", log)
	}
	for i := range receipt.MaxTenantReports { // the desk of this tenant fills up
		if _, err := w.svc.Receipts.Desk.Open(w.svc.Created, "acme", receipt.ID{1, byte(i), byte(i >> 8)}, "jws"); err != nil {
			break
		}
	}
	res, _ = w.post("/v1/chat/completions", hi)
	if code, _, body := w.report(res.Header.Get("X-Leasehold-Receipt"), "", "ka"); code != 429 {
		t.Errorf("one report too many: %d %s", code, body)
	}
}

func TestKeysAreForEverybody(t *testing.T) {
	w := newWorld(t)
	got := w.call(openaiv1.OpenAIService_ListReceiptKeys_FullMethodName, bytes.NewReader(frame(t, &openaiv1.ListReceiptKeysRequest{})))
	if got.code != "0" {
		t.Errorf("over gRPC without a key: %+v", got)
	}
	long := protowire.AppendBytes(protowire.AppendTag(nil, 15, protowire.BytesType), make([]byte, 2000))
	if got := w.call(openaiv1.OpenAIService_ListReceiptKeys_FullMethodName, bytes.NewReader(append([]byte{0, 0, 0, 7, 0xd3}, long...))); got.code != "3" {
		t.Errorf("with a long body: %+v", got)
	}
	if res, _ := w.send("POST", "/.well-known/jwks.json", ""); res.StatusCode != 405 || res.Header.Get("Allow") != "GET" {
		t.Errorf("POST: %d, Allow %q", res.StatusCode, res.Header.Get("Allow"))
	}
	if res, body := w.send("GET", "/.well-known/jwks.json", "", "Authorization: Bearer kx"); res.StatusCode != 200 || strings.Contains(body, `"d"`) {
		t.Errorf("with a wrong key: %d %s", res.StatusCode, body)
	}
}
