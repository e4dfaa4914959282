package keys

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/protos/errs"
)

func digest(key string) string { h := sha256.Sum256([]byte(key)); return hex.EncodeToString(h[:]) }

func line(tenant, key string) string {
	return fmt.Sprintf("- {tenant: %s, sha256: %s}\n", tenant, digest(key))
}

func write(t *testing.T, path, doc string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(doc), 0o600); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, doc string) (*Ring, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "keys")
	write(t, path, doc)
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return r, path
}

func TestAuthenticate(t *testing.T) {
	r, _ := open(t, "keys:\n"+line("acme", "one")+line("acme", "two")+line("bolt", "three")+"tenants: {bolt: {max_concurrent: 2}}\n")
	for _, c := range []struct{ header, tenant string }{
		{"Bearer one", "acme"}, {"Bearer two", "acme"}, {"bearer three", "bolt"}, {"Bearer  one ", "acme"},
		{"Bearer four", ""}, {"Bearer ", ""}, {"Bearer", ""}, {"", ""}, {"one", ""}, {"Basic one", ""}, {"Bearer One", ""},
		{"Bearer " + digest("one"), ""}, // who read the file has no key
	} {
		got := ""
		if tenant := r.Authenticate(c.header); tenant != nil {
			got = tenant.Name
		}
		if got != c.tenant {
			t.Errorf("Authenticate(%q) = %q, want %q", c.header, got, c.tenant)
		}
	}
	if n := r.Authenticate("Bearer three").MaxConcurrent; n != 2 {
		t.Errorf("bolt's max_concurrent is %d, want 2", n)
	}
}

func TestOnlyAMarkedTenantIsACanary(t *testing.T) {
	r, _ := open(t, "keys:\n"+line("acme", "one")+line("canary-0", "two")+line("bolt", "three")+"tenants: {canary-0: {canary: true}, bolt: {max_concurrent: 2, canary: false}}\n")
	for key, want := range map[string]bool{"one": false, "two": true, "three": false} {
		if got := r.Authenticate("Bearer " + key).Canary; got != want {
			t.Errorf("key %q is a canary's: %v, want %v", key, got, want)
		}
	}
}

func TestJSONIsTakenToo(t *testing.T) {
	r, _ := open(t, fmt.Sprintf(`{"keys": [{"tenant": "acme", "sha256": "%s"}]}`, digest("one")))
	if r.Authenticate("Bearer one") == nil {
		t.Error("the key of a JSON file is unknown")
	}
}

func TestFilesThatAreNotUsable(t *testing.T) {
	for why, doc := range map[string]string{
		"empty":                     "",
		"no YAML":                   "keys: [",
		"no key":                    "keys: []",
		"an unknown field":          "keys:\n" + line("acme", "one") + "extra: 1\n",
		"a key in clear":            "keys: [{tenant: acme, sha256: one}]",
		"a short digest":            "keys: [{tenant: acme, sha256: " + digest("one")[:62] + "}]",
		"a long digest":             "keys: [{tenant: acme, sha256: " + digest("one") + "00}]",
		"no digits":                 "keys: [{tenant: acme, sha256: " + strings.Repeat("z", 64) + "}]",
		"no tenant":                 "keys: [{tenant: '', sha256: " + digest("one") + "}]",
		"a bad tenant":              "keys: [{tenant: '../x', sha256: " + digest("one") + "}]",
		"one key of two tenants":    "keys:\n" + line("acme", "one") + line("bolt", "one"),
		"limits of nobody":          "keys:\n" + line("acme", "one") + "tenants: {bolt: {max_concurrent: 1}}",
		"a limit below 0":           "keys:\n" + line("acme", "one") + "tenants: {acme: {max_concurrent: -1}}",
		"a limit that is no number": "keys:\n" + line("acme", "one") + "tenants: {acme: {max_concurrent: many}}",
	} {
		if _, err := parse([]byte(doc)); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: %v, want Invalid", why, err)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "absent")); err == nil {
		t.Error("an absent file is no error at the start")
	}
}

func TestAChangedFileIsTakenOver(t *testing.T) {
	r, path := open(t, "keys:\n"+line("acme", "one"))
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	for _, step := range []struct {
		why  string
		do   func()
		good string // the key that works then
		says string
	}{
		{"nothing changed", func() {}, "one", ""},
		{"a new key", func() { write(t, path, "keys:\n"+line("acme", "two")) }, "two", "taken over"},
		{"a bad file", func() { write(t, path, "keys: [") }, "two", "not usable"},
		{"still bad", func() {}, "two", ""},
		{"the file is gone", func() { os.Remove(path) }, "two", "cannot be read"},
		{"still gone", func() {}, "two", ""},
		{"back again, with another key", func() { write(t, path, "keys:\n"+line("acme", "three")) }, "three", "taken over"},
		{"replaced by a rename", func() {
			write(t, path+".next", "keys:\n"+line("acme", "four!"))
			os.Rename(path+".next", path)
		}, "four!", "taken over"},
	} {
		step.do()
		out.Reset()
		r.reload(log)
		for _, key := range []string{"one", "two", "three", "four!"} {
			if known := r.Authenticate("Bearer "+key) != nil; known != (key == step.good) {
				t.Errorf("%s: key %q is known: %v", step.why, key, known)
			}
		}
		if (step.says == "") != (out.Len() == 0) || !strings.Contains(out.String(), step.says) {
			t.Errorf("%s: log %q, want %q", step.why, out.String(), step.says)
		}
		if strings.Contains(out.String(), digest("one")) {
			t.Errorf("%s: a digest is in the log", step.why)
		}
	}
}

func TestWatchLooksEverySecondAndEnds(t *testing.T) {
	r, path := open(t, "keys:\n"+line("acme", "one"))
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.Watch(ctx, slog.New(slog.DiscardHandler)) }()
		write(t, path, "keys:\n"+line("acme", "two"))
		time.Sleep(Every + Every/2)
		synctest.Wait()
		if r.Authenticate("Bearer two") == nil {
			t.Error("the new key is unknown after a second and a half")
		}
		cancel()
		<-done
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("keys:\n" + line("acme", "one")))
	f.Add([]byte(`{"keys":[{"tenant":"a","sha256":""}]}`))
	f.Add([]byte("a: &a [*a]"))
	f.Fuzz(func(t *testing.T, b []byte) {
		es, err := parse(b)
		if err == nil && len(es) == 0 {
			t.Error("a file without keys was taken")
		}
		for _, e := range es {
			if e.tenant == nil || e.tenant.Name == "" {
				t.Error("a key without a tenant")
			}
		}
	})
}
