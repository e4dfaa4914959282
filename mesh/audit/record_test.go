package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 11, 30, 12, 0, 0, 1, time.UTC)

// line is record seq after prev, without its end of line.
func line(t testing.TB, seq uint64, prev Hash, fields string) ([]byte, Link) {
	t.Helper()
	b, link, err := encode(nil, body{Seq: seq, Time: noon, Service: "decode", Instance: "d1", Kind: "test", Fields: json.RawMessage(fields), Prev: prev})
	if err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSuffix(b, []byte("\n")), link
}

func flawOf(err error) Flaw {
	if b := (*Break)(nil); errors.As(err, &b) {
		return b.Flaw
	}
	return ""
}

// TestTheFormatIsWhatTheDocumentationSays: the hash can be had without this package.
func TestTheFormatIsWhatTheDocumentationSays(t *testing.T) {
	got, link := line(t, 7, Hash{1}, `{"a":"<b>"}`)
	want := `{"seq":7,"time":"2026-11-30T12:00:00.000000001Z","service":"decode","instance":"d1","kind":"test","fields":{"a":"\u003cb\u003e"},` +
		`"prev":"01` + strings.Repeat("0", 62) + `","hash":"` + link.Hash.String() + `"}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	// sha256sum of "leasehold-audit-v1\n" and the line without its member hash.
	if want := "3242a48318a930551d71073f7537a8911abf25b03b6cc23c55b82eace9fadc8e"; link.Hash.String() != want {
		t.Errorf("hash %s, want %s", link.Hash, want)
	}
}

func TestDecodeGivesWhatWasEncoded(t *testing.T) {
	text, link := line(t, 9, Hash{2}, `{"x":[1,2]}`)
	r, err := Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	want := Record{body{9, noon, "decode", "d1", "test", json.RawMessage(`{"x":[1,2]}`), Hash{2}}, link.Hash}
	if diff := cmp.Diff(want, r, cmp.AllowUnexported(Record{}, body{})); diff != "" {
		t.Error(diff)
	}
	if r.Link() != link {
		t.Errorf("Link() = %v, want %v", r.Link(), link)
	}
}

// TestEveryByteCounts: no byte of a line can be changed, removed or doubled without an error.
func TestEveryByteCounts(t *testing.T) {
	text, _ := line(t, 123, Hash{3}, `{"tenant":"a","n":5}`)
	for i := range text {
		for _, change := range [][]byte{
			append(append(bytes.Clone(text[:i]), text[i]^1), text[i+1:]...),
			append(bytes.Clone(text[:i]), text[i+1:]...),
			append(append(bytes.Clone(text[:i+1]), text[i]), text[i+1:]...),
			append(append(bytes.Clone(text[:i+1]), ' '), text[i+1:]...),
		} {
			if _, err := Decode(change); flawOf(err) != Edited && flawOf(err) != Garbled {
				t.Errorf("byte %d: %s: %v, want edited or garbled", i, change, err)
			}
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	good, _ := line(t, 1, Hash{}, `{}`)
	again := func(old, now string) string {
		text := strings.Replace(string(good[:len(good)-tailSize])+"}", old, now, 1)
		return text[:len(text)-1] + hashOpen + hashOf([]byte(text)).String() + hashClose
	}
	for _, c := range []struct{ why, line string }{
		{"nothing", ""},
		{"only a hash", string(good[len(good)-tailSize:])},
		{"an upper-case hash", strings.ToUpper(string(good))},
		{"no JSON", again(`{"seq"`, `["seq"`)},
		{"a member too many", again(`"kind"`, `"more":1,"kind"`)},
		{"a member twice", again(`"kind":"test"`, `"kind":"other","kind":"test"`)},
		{"members in another order", again(`"seq":1,"time":"2026-11-30T12:00:00.000000001Z"`, `"time":"2026-11-30T12:00:00.000000001Z","seq":1`)},
		{"a space", again(`"seq":1`, `"seq": 1`)},
		{"record 0", again(`"seq":1`, `"seq":0`)},
		{"another time zone", again(`00001Z`, `00001+00:00`)},
		{"a short hash before", again(`"prev":"00`, `"prev":"`)},
		{"fields with a space", again(`{}`, `{ }`)},
	} {
		if _, err := Decode([]byte(c.line)); flawOf(err) != Garbled {
			t.Errorf("%s: %v, want garbled", c.why, err)
		}
	}
	if _, err := Decode([]byte(again("decode", "decode"))); err != nil {
		t.Errorf("the same line: %v", err)
	}
	if _, err := Decode([]byte(strings.Replace(string(good), "decode", "router", 1))); flawOf(err) != Edited {
		t.Errorf("another service under the old hash: %v, want edited", err)
	}
}

func FuzzDecode(f *testing.F) {
	one, link := line(f, 1, Hash{}, `{"a":1}`)
	two, _ := line(f, 2, link.Hash, `null`)
	for _, seed := range [][]byte{one, two, one[:40], nil, []byte(hashOpen)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Decode(text)
		if err != nil {
			if f := flawOf(err); f != Edited && f != Garbled {
				t.Fatalf("error %v has flaw %q", err, f)
			}
			return
		}
		again, link, err := encode(nil, r.body) // what decodes is what a log would have written
		if err != nil || !bytes.Equal(again, append(bytes.Clone(text), '\n')) || link != r.Link() {
			t.Fatalf("%q decodes, but is written as %q (%v)", text, again, err)
		}
	})
}

func FuzzParseHead(f *testing.F) {
	f.Add([]byte(`{"service":"a","instance":"b","seq":1,"hash":"` + strings.Repeat("0", 64) + `","time":"2026-11-30T12:00:00Z","key":"k","sig":"AA=="}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := ParseHead(text)
		if err != nil {
			return
		}
		if again, err := json.Marshal(h); err != nil || !bytes.Equal(again, text) {
			t.Fatalf("%q parses, but is written as %q (%v)", text, again, err)
		}
		if h.Check() == nil {
			t.Fatal("a head without a key to check it with is trusted")
		}
	})
}
