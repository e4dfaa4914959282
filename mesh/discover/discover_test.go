package discover

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"leasehold.dev/mesh/identity"
	"leasehold.dev/protos/errs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestParse(t *testing.T) {
	for raw, want := range map[string]Location{
		"embedded://127.0.0.1:7070":                 {Kind: "embedded", Address: "127.0.0.1:7070"},
		"consul://127.0.0.1:8500":                   {Kind: "consul", Address: "127.0.0.1:8500"},
		"consul://[::1]:8500?token=s%26t":           {Kind: "consul", Address: "[::1]:8500", Token: "s&t"},
		"consul://localhost:8500?token_file=/run/t": {Kind: "consul", Address: "localhost:8500", TokenFile: "/run/t"},
	} {
		got, err := Parse(raw)
		if err != nil {
			t.Errorf("Parse(%q): %v", raw, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("Parse(%q) (-want +got):\n%s", raw, d)
		}
	}
}

func TestParseRefusesAndKeepsTheToken(t *testing.T) {
	const secret = "s3cret"
	for why, raw := range map[string]string{
		"nothing":                        "",
		"no scheme":                      "127.0.0.1:8500",
		"an unknown scheme":              "etcd://127.0.0.1:2379",
		"no port":                        "consul://127.0.0.1?token=" + secret,
		"no host":                        "embedded://:7070",
		"a path":                         "consul://127.0.0.1:8500/v1?token=" + secret,
		"a user":                         "consul://" + secret + "@127.0.0.1:8500",
		"a fragment":                     "consul://127.0.0.1:8500#" + secret,
		"an unknown setting":             "consul://127.0.0.1:8500?tokn=" + secret,
		"a setting twice":                "consul://127.0.0.1:8500?token=a&token=" + secret,
		"both kinds of token":            "consul://127.0.0.1:8500?token_file=a&token=" + secret,
		"a token for the wrong registry": "embedded://127.0.0.1:7070?token=" + secret,
		"a malformed query":              "consul://127.0.0.1:8500?token=%zz" + secret,
		"a control character":            "consul://127.0.0.1:8500?token=\n" + secret,
	} {
		_, err := Parse(raw)
		if errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: %v, want invalid", why, err)
		}
		if err != nil && strings.Contains(err.Error(), secret) {
			t.Errorf("%s: the error %q shows the token", why, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("consul://127.0.0.1:8500?token=x")
	f.Add("embedded://[::1]:1")
	f.Fuzz(func(t *testing.T, raw string) {
		l, err := Parse(raw)
		if err == nil && (l.Kind != "consul" && l.Kind != "embedded" || l.Address == "") {
			t.Errorf("Parse(%q) = %+v", raw, l)
		}
	})
}

func TestOpenDoesNotWaitForTheRegistry(t *testing.T) {
	for _, raw := range []string{"embedded://127.0.0.1:1", "consul://127.0.0.1:1"} {
		d, err := Open(raw, identity.Plain(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatalf("Open(%q): %v", raw, err)
		}
		if err := d.Close(); err != nil {
			t.Errorf("Close of %q: %v", raw, err)
		}
	}
	if _, err := Open("etcd://a:1", identity.Plain(), nil); err == nil {
		t.Error("an unknown registry was opened")
	}
}
