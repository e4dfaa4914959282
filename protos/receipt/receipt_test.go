package receipt_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"flag"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"pgregory.net/rapid"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/receipt"
)

var rewrite = flag.Bool("rewrite", false, "write the golden receipt anew")

func hash(s string) receipt.Hex { h := sha256.Sum256([]byte(s)); return h[:] }

func key(s string) ed25519.PrivateKey { return ed25519.NewKeyFromSeed(hash(s)) }

func split() *receipt.Claims {
	return &receipt.Claims{Version: 1, ID: hash("id")[:16], Request: hash("request")[:16], Choice: 1, Tenant: "acme <&>", Nonce: hash("nonce")[:16],
		PromptDigest: hash("prompt"), OutputDigest: hash("output"), LogitDigest: hash("logits"), Model: "m", ModelRevision: hash("weights"),
		Sampling: receipt.Sampling{Temperature: 0.7, TopP: 1, LogitBias: []receipt.Bias{{3, -1}, {9, 0.5}}, Seed: math.MaxUint64, StopDigest: receipt.StopDigest([]string{"a"}), MaxNew: 10},
		Numerics: "ref-1", Workers: receipt.Halves[string]{Prefill: "p", Decode: "d"}, Leases: receipt.Halves[receipt.Hex]{Prefill: hash("lp"), Decode: hash("ld")},
		Instances: receipt.Halves[receipt.Hex]{Prefill: hash("ip")[:16], Decode: hash("di")[:16]}, Epochs: receipt.Halves[uint64]{Prefill: 7, Decode: 8},
		Tokens: receipt.Tokens{Prompt: 200, Completion: 9, Rows: 199}, Pages: receipt.Pages{Reserved: 4, Expected: 4, Moved: 4}, Root: hash("root"), GuardsOn: true,
		Verdict: receipt.Equal, Finish: "stop", Route: "split:grpc", Mover: "grpc", Times: receipt.Times{Received: 1000, FirstToken: 1000, Finished: 2000}}
}

func unsplit() *receipt.Claims {
	c := split()
	c.Mover, c.Route, c.Root = receipt.MoverNone, "unsplit:short", nil
	c.Workers.Prefill, c.Leases.Prefill, c.Instances.Prefill, c.Epochs.Prefill = "", nil, nil, 0
	c.Tokens.Rows, c.Pages.Expected, c.Pages.Moved = 0, 0, 0
	c.Sampling.StopDigest, c.Sampling.LogitBias = nil, []receipt.Bias{}
	c.Audit = &receipt.Head{Sequence: 5, Hash: hash("head")}
	return c
}

func signer(t testing.TB, k ed25519.PrivateKey) *receipt.Signer {
	t.Helper()
	s, err := receipt.NewSigner(k)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func keys(t testing.TB, of ...ed25519.PrivateKey) receipt.Keys {
	t.Helper()
	var pubs []ed25519.PublicKey
	for _, k := range of {
		pubs = append(pubs, k.Public().(ed25519.PublicKey))
	}
	out, err := receipt.NewKeys(pubs...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestWhatIsSignedComesBack(t *testing.T) {
	for why, c := range map[string]*receipt.Claims{"split": split(), "unsplit": unsplit()} {
		jws, err := signer(t, key("a")).Sign(c)
		if err != nil {
			t.Fatalf("%s: %v", why, err)
		}
		got, err := keys(t, key("b"), key("a")).Verify(jws)
		if err != nil {
			t.Fatalf("%s: %v", why, err)
		}
		want, _ := json.Marshal(c)
		if b, _ := json.Marshal(got); !bytes.Equal(b, want) || got.Split() != (why == "split") {
			t.Errorf("%s: %s, want %s", why, b, want)
		}
	}
}

// The bytes of a receipt are a contract with whoever keeps them. They are checked here without the JOSE library.
func TestGolden(t *testing.T) {
	jws, err := signer(t, key("golden")).Sign(split())
	if err != nil {
		t.Fatal(err)
	}
	const file = "testdata/receipt.jws"
	if *rewrite {
		if err := os.WriteFile(file, []byte(jws+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if jws != strings.TrimSpace(string(want)) {
		t.Errorf("the golden receipt changed without a new version: %s", jws)
	}
	parts := strings.Split(jws, ".")
	sig, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || !ed25519.Verify(key("golden").Public().(ed25519.PublicKey), []byte(parts[0]+"."+parts[1]), sig) {
		t.Errorf("not a signature over header.payload: %v", err)
	}
}

// Each field of a receipt is required: with any one empty there is none.
func TestEveryFieldIsRequired(t *testing.T) {
	optional := map[string]bool{"Choice": true, "GuardsOn": true, "Audit": true, // 0 and false are values
		"Sampling.Temperature": true, "Sampling.TopP": true, "Sampling.TopK": true, "Sampling.MinP": true, "Sampling.FrequencyPenalty": true,
		"Sampling.PresencePenalty": true, "Sampling.RepetitionPenalty": true, "Sampling.Seed": true, "Sampling.StopDigest": true, "Sampling.IgnoreEOS": true, "Tokens.From": true}
	seen := 0
	var walk func(path string, get func(*receipt.Claims) reflect.Value)
	walk = func(path string, get func(*receipt.Claims) reflect.Value) {
		v := get(split())
		if v.Kind() == reflect.Struct {
			for i := range v.NumField() {
				walk(strings.TrimPrefix(path+"."+v.Type().Field(i).Name, "."), func(c *receipt.Claims) reflect.Value { return get(c).Field(i) })
			}
			return
		}
		c := split()
		get(c).SetZero()
		_, err := signer(t, key("a")).Sign(c)
		if (err == nil) != optional[path] || err != nil && errs.KindOf(err) != errs.Invalid {
			t.Errorf("without %s: %v", path, err)
		}
		seen++
	}
	walk("", func(c *receipt.Claims) reflect.Value { return reflect.ValueOf(c).Elem() })
	if seen < 45 {
		t.Errorf("%d fields were tried", seen)
	}
}

func TestClaimsThatCannotBe(t *testing.T) {
	for why, twist := range map[string]func(*receipt.Claims){
		"another version":               func(c *receipt.Claims) { c.Version = 2 },
		"a verdict of a failure":        func(c *receipt.Claims) { c.Verdict = "different" },
		"another finish":                func(c *receipt.Claims) { c.Finish = "error" },
		"more tokens than admitted":     func(c *receipt.Claims) { c.Tokens.Completion = 11 },
		"a row less":                    func(c *receipt.Claims) { c.Tokens.Rows-- },
		"rows that wrap":                func(c *receipt.Claims) { c.Tokens.From = math.MaxUint32; c.Tokens.Rows = 200 },
		"a page less":                   func(c *receipt.Claims) { c.Pages.Moved-- },
		"a page less reserved":          func(c *receipt.Claims) { c.Pages.Reserved-- },
		"unsplit with a prefill":        func(c *receipt.Claims) { c.Mover = receipt.MoverNone },
		"unsplit with rows":             func(c *receipt.Claims) { *c = *unsplit(); c.Tokens.Rows = 1 },
		"unsplit with a root":           func(c *receipt.Claims) { *c = *unsplit(); c.Root = hash("r") },
		"finished before it began":      func(c *receipt.Claims) { c.Times.Finished = 999 },
		"a zero digest":                 func(c *receipt.Claims) { c.LogitDigest = make([]byte, 32) },
		"a short digest":                func(c *receipt.Claims) { c.PromptDigest = c.PromptDigest[:31] },
		"a long name":                   func(c *receipt.Claims) { c.Tenant = strings.Repeat("a", 257) },
		"a name that is not UTF-8":      func(c *receipt.Claims) { c.Model = "\xff" },
		"NaN":                           func(c *receipt.Claims) { c.Sampling.TopP = float32(math.NaN()) },
		"infinity in the bias":          func(c *receipt.Claims) { c.Sampling.LogitBias[0].Bias = float32(math.Inf(1)) },
		"a bias out of order":           func(c *receipt.Claims) { c.Sampling.LogitBias[0].Token = 10 },
		"a bias twice":                  func(c *receipt.Claims) { c.Sampling.LogitBias[0].Token = 9 },
		"a bias of no token":            func(c *receipt.Claims) { c.Sampling.LogitBias[0].Token = -1 },
		"too many biases":               func(c *receipt.Claims) { c.Sampling.LogitBias = make([]receipt.Bias, receipt.MaxBias+1) },
		"a stop digest of another size": func(c *receipt.Claims) { c.Sampling.StopDigest = []byte{1} },
		"an audit head without a hash":  func(c *receipt.Claims) { c.Audit = &receipt.Head{Sequence: 1} },
	} {
		c := split()
		twist(c)
		if _, err := signer(t, key("a")).Sign(c); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: %v, want Invalid", why, err)
		}
	}
}

// raw signs whatever it is given, as no signer of ours does.
func raw(t testing.TB, payload []byte, opts *jose.SignerOptions, kid string) string {
	t.Helper()
	s, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: jose.JSONWebKey{Key: key("a"), KeyID: kid}}, opts)
	if err != nil {
		t.Fatal(err)
	}
	jws, err := s.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	out, err := jws.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func typed() *jose.SignerOptions { return (&jose.SignerOptions{}).WithType("leasehold-receipt+jws") }

func TestVerifyFailsClosed(t *testing.T) {
	good, err := signer(t, key("a")).Sign(split())
	if err != nil {
		t.Fatal(err)
	}
	payload, _ := json.Marshal(split())
	kid, err := receipt.KeyID(key("a").Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := keys(t, key("a")).Verify(raw(t, payload, typed(), kid)); err != nil {
		t.Fatalf("the raw signer's own good receipt: %v", err)
	}
	swap := func(old, now string) []byte {
		if !bytes.Contains(payload, []byte(old)) {
			t.Fatalf("no %s in %s", old, payload)
		}
		return bytes.Replace(payload, []byte(old), []byte(now), 1)
	}
	parts := strings.Split(good, ".")
	other, _ := signer(t, key("b")).Sign(split())
	theirs := strings.Split(other, ".")
	hmac := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"HS256","kid":"` + kid + `","typ":"leasehold-receipt+jws"}`))
	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","kid":"` + kid + `","typ":"leasehold-receipt+jws"}`))
	for _, c := range []struct {
		why, jws string
		want     errs.Kind
	}{
		{"nothing", "", errs.Invalid},
		{"no JWS", "a.b.c", errs.Invalid},
		{"too long", strings.Repeat("a", receipt.MaxJWS+1), errs.Invalid},
		{"JSON serialization", `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`, errs.Invalid},
		{"a key that is not known", other, errs.NotFound},
		{"no key id", raw(t, payload, typed(), ""), errs.NotFound},
		{"another's signature", parts[0] + "." + parts[1] + "." + theirs[2], errs.Corrupt},
		{"no signature", parts[0] + "." + parts[1] + ".", errs.Corrupt},
		{"another payload", parts[0] + "." + base64.RawURLEncoding.EncodeToString(swap(`"choice":1`, `"choice":0`)) + "." + parts[2], errs.Corrupt},
		{"alg HS256", hmac + "." + parts[1] + "." + parts[2], errs.Invalid},
		{"alg none", none + "." + parts[1] + ".", errs.Invalid},
		{"another type", raw(t, payload, (&jose.SignerOptions{}).WithType("JWT"), kid), errs.Invalid},
		{"no type", raw(t, payload, nil, kid), errs.Invalid},
		{"one header more", raw(t, payload, typed().WithHeader("x", 1), kid), errs.Invalid},
		{"its own key in the header", raw(t, payload, &jose.SignerOptions{EmbedJWK: true, ExtraHeaders: typed().ExtraHeaders}, kid), errs.Invalid},
		{"a field missing", raw(t, swap(`"guards_on":true,`, ``), typed(), kid), errs.Invalid},
		{"a field twice", raw(t, swap(`"guards_on":true,`, `"guards_on":false,"guards_on":true,`), typed(), kid), errs.Invalid},
		{"an unknown field", raw(t, swap(`"guards_on":true,`, `"guards_on":true,"x":1,`), typed(), kid), errs.Invalid},
		{"a field in capitals", raw(t, swap(`"guards_on"`, `"GUARDS_ON"`), typed(), kid), errs.Invalid},
		{"null", raw(t, swap(`"tenant":"acme \u003c\u0026\u003e"`, `"tenant":null`), typed(), kid), errs.Invalid},
		{"an upper-case digest", raw(t, bytes.Replace(payload, []byte(`"root":"`), []byte(`"root":"A`), 1), typed(), kid), errs.Invalid},
		{"text after it", raw(t, append(bytes.Clone(payload), " {}"...), typed(), kid), errs.Invalid},
		{"white space", raw(t, append(bytes.Clone(payload), ' '), typed(), kid), errs.Invalid},
		{"a failed verdict, signed", raw(t, swap(`"verdict":"equal"`, `"verdict":"other"`), typed(), kid), errs.Invalid},
		{"no object", raw(t, []byte(`[]`), typed(), kid), errs.Invalid},
	} {
		if got, err := keys(t, key("a")).Verify(c.jws); errs.KindOf(err) != c.want || err == nil || got != nil {
			t.Errorf("%s: %v, %v; want %v", c.why, got, err, c.want)
		}
	}
}

// One bit anywhere in the JWS makes it another one. Base64 of 32 and 64 bytes has spare bits, which must be zero.
func TestNoBitMayChange(t *testing.T) {
	good, err := signer(t, key("a")).Sign(split())
	if err != nil {
		t.Fatal(err)
	}
	ks := keys(t, key("a"))
	for i := range len(good) {
		b := []byte(good)
		b[i] ^= 1
		if c, err := ks.Verify(string(b)); err == nil {
			t.Errorf("byte %d of %d: %q became %q and verifies: %+v", i, len(good), good[i], b[i], c)
		}
	}
}

func TestKeySets(t *testing.T) {
	pub := key("a").Public().(ed25519.PublicKey)
	kid, _ := receipt.KeyID(pub)
	x := base64.RawURLEncoding.EncodeToString(pub)
	one := `{"kty":"OKP","crv":"Ed25519","kid":"` + kid + `","x":"` + x + `"}`
	for _, c := range []struct {
		why, jwks string
		ok        bool
	}{
		{"one", `{"keys":[` + one + `]}`, true},
		{"none", `{"keys":[]}`, false},
		{"no set", `[]`, false},
		{"no JSON", `{`, false},
		{"too many", `{"keys":[` + strings.Repeat(one+",", receipt.MaxKeys) + one + `]}`, false},
		{"under another id", strings.Replace(`{"keys":[`+one+`]}`, kid, "other", 1), false},
		{"a key of 31 bytes", `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","x":"` + base64.RawURLEncoding.EncodeToString(pub[:31]) + `"}]}`, false},
		{"a symmetric key", `{"keys":[{"kty":"oct","kid":"k","k":"AAAA"}]}`, false},
		{"a private key", `{"keys":[` + strings.Replace(one, `"x"`, `"d":"`+base64.RawURLEncoding.EncodeToString(key("a").Seed())+`","x"`, 1) + `]}`, false},
	} {
		got, err := receipt.ParseKeys([]byte(c.jwks))
		if (err == nil) != c.ok || err != nil && errs.KindOf(err) != errs.Invalid || c.ok && !pub.Equal(got[kid]) {
			t.Errorf("%s: %d keys, %v", c.why, len(got), err)
		}
	}
	if _, err := receipt.NewSigner(nil); errs.KindOf(err) != errs.Invalid {
		t.Errorf("a signer without a key: %v", err)
	}
	if _, err := receipt.NewKeys(pub[:5]); errs.KindOf(err) != errs.Invalid {
		t.Errorf("a key of 5 bytes: %v", err)
	}
}

// Framing: what is in one stop string cannot be moved to the next.
func TestStopDigest(t *testing.T) {
	if receipt.StopDigest(nil) != nil {
		t.Error("a digest of no stop strings")
	}
	seen := map[string][]string{}
	for _, s := range [][]string{{"a"}, {""}, {"", ""}, {"ab"}, {"a", "b"}, {"b", "a"}, {"", "ab"}, {"ab", ""}} {
		d := string(receipt.StopDigest(s))
		if was, ok := seen[d]; ok || len(d) != 32 {
			t.Errorf("%q and %q have one digest of %d bytes", s, was, len(d))
		}
		seen[d] = s
	}
}

func TestAnyWholeClaimsSurvive(t *testing.T) {
	s, ks := signer(t, key("a")), keys(t, key("a"))
	rapid.Check(t, func(t *rapid.T) {
		c := rapid.SampledFrom([]func() *receipt.Claims{split, unsplit}).Draw(t, "kind")()
		c.Tenant = rapid.StringN(1, 60, 256).Draw(t, "tenant")
		c.Sampling.Seed, c.Sampling.Temperature = rapid.Uint64().Draw(t, "seed"), rapid.Float32Range(0, 2).Draw(t, "temperature")
		c.Sampling.MaxNew = rapid.Uint32Range(9, 1<<20).Draw(t, "max_new")
		c.Pages.Reserved = (c.Tokens.Prompt + c.Sampling.MaxNew - 1 + 63) / 64
		jws, err := s.Sign(c)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ks.Verify(jws)
		if err != nil || !reflect.DeepEqual(got.Sampling.Temperature, c.Sampling.Temperature) || got.Tenant != c.Tenant || got.Sampling.Seed != c.Sampling.Seed {
			t.Fatalf("%v: %+v, want %+v", err, got, c)
		}
	})
}

func FuzzVerify(f *testing.F) {
	ks := keys(f, key("a"))
	for _, c := range []*receipt.Claims{split(), unsplit()} {
		jws, err := signer(f, key("a")).Sign(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(jws, []byte("x"))
		payload, _ := json.Marshal(c)
		f.Add(jws[1:], payload)
	}
	kid, _ := receipt.KeyID(key("a").Public().(ed25519.PublicKey))
	f.Fuzz(func(t *testing.T, jws string, payload []byte) {
		for _, s := range []string{jws, raw(t, payload, typed(), kid)} { // from outside, and from a signer gone wrong
			c, err := ks.Verify(s)
			if err == nil {
				if err := c.Check(); err != nil {
					t.Fatalf("verified, and yet %v", err)
				}
				if _, err := signer(t, key("a")).Sign(c); err != nil {
					t.Fatalf("verified, and cannot be signed: %v", err)
				}
			} else if k := errs.KindOf(err); c != nil || k != errs.Invalid && k != errs.NotFound && k != errs.Corrupt {
				t.Fatalf("%v of kind %v, and claims: %v", err, k, c != nil)
			}
		}
	})
}
