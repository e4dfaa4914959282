package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/receipt"
	routers "leasehold.dev/router/receipt"
)

func hash(s string) receipt.Hex { h := sha256.Sum256([]byte(s)); return h[:] }

func someClaims() *receipt.Claims {
	return &receipt.Claims{Version: 1, ID: hash("id")[:16], Request: hash("request")[:16], Tenant: "acme", Nonce: hash("nonce")[:16], PromptDigest: hash("prompt"),
		OutputDigest: hash("output"), LogitDigest: hash("logits"), Model: "m", ModelRevision: hash("weights"),
		Sampling: receipt.Sampling{Temperature: 0.7, LogitBias: []receipt.Bias{{Token: 3, Bias: -1}}, Seed: 1<<64 - 1, MaxNew: 10}, Numerics: "ref-1",
		Workers: receipt.Halves[string]{Decode: "d"}, Leases: receipt.Halves[receipt.Hex]{Decode: hash("ld")}, Instances: receipt.Halves[receipt.Hex]{Decode: hash("di")[:16]},
		Epochs: receipt.Halves[uint64]{Decode: 8}, Tokens: receipt.Tokens{Prompt: 2, Completion: 9}, Pages: receipt.Pages{Reserved: 1}, GuardsOn: true,
		Verdict: receipt.Equal, Finish: "stop", Route: "unsplit:short", Mover: receipt.MoverNone, Times: receipt.Times{Received: 1, FirstToken: 1, Finished: 1}}
}

// signed is a receipt in a file, its JWKS in another, and the key file behind both.
func signed(t *testing.T, c *receipt.Claims) (file, jwks, key, jws string) {
	t.Helper()
	dir := t.TempDir()
	key = filepath.Join(dir, "key")
	ring, err := routers.OpenRing(key)
	if err != nil {
		t.Fatal(err)
	}
	if jws, err = ring.Sign(c); err != nil {
		t.Fatal(err)
	}
	file, jwks = filepath.Join(dir, "receipt.jws"), filepath.Join(dir, "jwks.json")
	writeFile(t, file, jws+"\n")
	writeFile(t, jwks, jwksOf(ring))
	return file, jwks, key, jws
}

func jwksOf(ring *routers.Ring) string {
	var keys []string
	for _, k := range ring.JWKS() {
		keys = append(keys, fmt.Sprintf(`{"kty":"OKP","crv":"Ed25519","kid":%q,"x":%q}`, k.ID, k.X))
	}
	return `{"keys":[` + strings.Join(keys, ",") + `]}`
}

func TestVerify(t *testing.T) {
	file, jwks, key, jws := signed(t, someClaims())
	out, err := run(t, "", "verify", file, "--jwks", jwks)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"signature  good", "tenant     acme", "2 of the prompt, 9 new, ended by stop", "guards on", "unsplit:short: d", "not compared"} {
		if !strings.Contains(out, want) {
			t.Errorf("it lacks %q:\n%s", want, out)
		}
	}
	if again, err := run(t, jws, "verify", "-", "--jwks", jwks); err != nil || again != out {
		t.Errorf("from standard input: %v\n%s", err, again)
	}
	parts := strings.Split(jws, ".")
	payload, _ := base64.RawURLEncoding.DecodeString(parts[1])
	parts[1] = base64.RawURLEncoding.EncodeToString(bytes.Replace(payload, []byte(`"tenant":"acme"`), []byte(`"tenant":"bolt"`), 1))
	out, err = run(t, strings.Join(parts, "."), "verify", "-", "--jwks", jwks)
	if wantError(t, err, "the signature is wrong"); out != "" {
		t.Errorf("something of a forged receipt was printed: %s", out)
	}
	if _, err := run(t, "", "rotate-receipt-key", key); err != nil { // the old key stays good
		t.Fatal(err)
	}
	ring, err := routers.OpenRing(key)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, jwks, jwksOf(ring))
	if _, err := run(t, "", "verify", file, "--jwks", jwks); err != nil || len(ring.JWKS()) != 2 {
		t.Errorf("after a rotation: %v, %d keys", err, len(ring.JWKS()))
	}
}

func TestVerifyRefuses(t *testing.T) {
	file, jwks, _, _ := signed(t, someClaims())
	_, others, _, _ := signed(t, someClaims())
	dir := t.TempDir()
	prompt := filepath.Join(dir, "prompt")
	writeFile(t, prompt, "Hi")
	off := someClaims()
	off.GuardsOn = false
	unguarded, offKeys, _, _ := signed(t, off)
	if out, err := run(t, "", "verify", unguarded, "--jwks", offKeys); err != nil || !strings.Contains(out, "guards OFF") {
		t.Errorf("guards off: %v\n%s", err, out)
	}
	for _, c := range []struct {
		why, want string
		args      []string
	}{
		{"another's keys", "none of the 1 known", []string{file, "--jwks", others}},
		{"no such receipt", "no such file", []string{filepath.Join(dir, "none"), "--jwks", jwks}},
		{"no such keys", "no such file", []string{file, "--jwks", filepath.Join(dir, "none")}},
		{"keys that are none", "no JWKS", []string{file, "--jwks", file}},
		{"nobody at the URL", "refused", []string{file, "--jwks", "http://127.0.0.1:1/x"}},
		{"no keys and no mesh", "--jwks or --url", []string{file, "--dir", dir}},
		{"a replay of nothing", "--replay needs --prompt", []string{file, "--jwks", jwks, "--replay"}},
		{"a prompt without a tokenizer", "--model", []string{file, "--jwks", jwks, "--prompt", prompt, "--dir", dir}},
		{"a model that is none", "--model", []string{file, "--jwks", jwks, "--prompt", prompt, "--model", prompt}},
		{"not a receipt", "no compact JWS", []string{prompt, "--jwks", jwks}},
	} {
		_, err := run(t, "", append([]string{"verify"}, c.args...)...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.why, err, c.want)
		}
	}
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		why   string
		twist func(*receipt.Claims)
		kind  errs.Kind
		want  string
	}{
		{"other tokens", func(c *receipt.Claims) { c.OutputDigest = hash("x") }, errs.Corrupt, "DIFFERENT TOKENS"},
		{"one token less", func(c *receipt.Claims) { c.Tokens.Completion = 8 }, errs.Corrupt, "DIFFERENT TOKENS"},
		{"other logits", func(c *receipt.Claims) { c.LogitDigest = hash("x") }, errs.Corrupt, "DIFFERENT LOGITS"},
		{"another length", func(c *receipt.Claims) { c.Tokens.Prompt = 3 }, errs.Corrupt, "3 tokens"},
		{"another class", func(c *receipt.Claims) { c.Numerics = "cpu" }, errs.Unavailable, "do not compare"},
		{"other weights", func(c *receipt.Claims) { c.ModelRevision = hash("x") }, errs.Unavailable, "revision"},
	} {
		now := someClaims()
		c.twist(now)
		var out strings.Builder
		err := compare(streams{out: &out}, someClaims(), now)
		if errs.KindOf(err) != c.kind || err == nil || !strings.Contains(err.Error(), c.want) || out.Len() > 0 {
			t.Errorf("%s: %v, printed %q", c.why, err, out.String())
		}
	}
	var out strings.Builder
	if err := compare(streams{out: &out}, someClaims(), someClaims()); err != nil || !strings.Contains(out.String(), "the same 9 tokens from the same logits") {
		t.Errorf("equal: %v, printed %q", err, out.String())
	}
}

// What is asked for again is the receipt's sampling, whatever the file says of it.
func TestAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "p")
	writeFile(t, file, `{"model":"other","messages":[{"role":"user","content":"Hi"}],"temperature":0,"seed":4,"n":3,"stream":true,"max_completion_tokens":99,"stop":["zz"]}`)
	r, err := readRequest(file)
	if err != nil || !r.chat {
		t.Fatalf("%+v, %v", r, err)
	}
	b, err := r.again(someClaims())
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"frequency_penalty":0,"logit_bias":{"3":-1},"max_tokens":10,"messages":[{"role":"user","content":"Hi"}],"min_p":0,"model":"m","presence_penalty":0,"seed":-1,"stop":["zz"],"temperature":0.7,"top_k":0}`
	if string(b) != want {
		t.Errorf("%s\nwant %s", b, want)
	}
	c := someClaims()
	c.Sampling.IgnoreEOS = true
	if _, err := r.again(c); errs.KindOf(err) != errs.Invalid {
		t.Errorf("what cannot be asked for: %v", err)
	}
	writeFile(t, file, "plain text {")
	if r, err = readRequest(file); err != nil || r.chat {
		t.Fatalf("%+v, %v", r, err)
	}
	if b, err = r.again(someClaims()); err != nil || !strings.Contains(string(b), `"prompt":"plain text {"`) {
		t.Errorf("%s, %v", b, err)
	}
}

// checkVerify asks a real mesh, and then holds the answer's receipt against the request, a changed one, and a second run.
func checkVerify(t *testing.T, dir string) {
	t.Helper()
	st, err := readState(dir)
	if err != nil {
		t.Fatal(err)
	}
	request := `{"model":"smollm2-135m-instruct","messages":[{"role":"user","content":"Name a colour of the sky."}],"max_tokens":8,"temperature":0.8,"top_p":0.9,"seed":77,"stop":["zebra"]}`
	b, err := fetch(t.Context(), http.MethodPost, st.URL+"/v1/chat/completions", st.Key, []byte(request))
	if err != nil {
		t.Fatal(err)
	}
	var answer struct {
		Choices []struct {
			Receipt string `json:"leasehold_receipt"`
		}
	}
	if err := json.Unmarshal(b, &answer); err != nil || len(answer.Choices) != 1 {
		t.Fatalf("%v: %s", err, b)
	}
	tmp := t.TempDir()
	file, good, bad := filepath.Join(tmp, "receipt.jws"), filepath.Join(tmp, "good"), filepath.Join(tmp, "bad")
	writeFile(t, file, answer.Choices[0].Receipt)
	writeFile(t, good, request)
	writeFile(t, bad, strings.Replace(request, "sky", "sea", 1))
	out, err := run(t, "", "verify", file, "--dir", dir, "--prompt", good, "--replay")
	if err != nil || !strings.Contains(out, "prompt     the same") || !strings.Contains(out, "from the same logits") {
		t.Errorf("verify = %v\n%s", err, out)
	}
	out, err = run(t, "", "verify", file, "--dir", dir, "--prompt", bad, "--replay")
	if wantError(t, err, "this is not what was answered"); !strings.Contains(out, "signature  good") {
		t.Errorf("another prompt:\n%s", out)
	}
	writeFile(t, bad, strings.Replace(request, "zebra", "horse", 1))
	_, err = run(t, "", "verify", file, "--dir", dir, "--prompt", bad)
	wantError(t, err, "stop strings")
}
