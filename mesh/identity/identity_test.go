package identity

import (
	"context"
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leasehold.dev/protos/errs"
)

func TestRenewedFilesAreUsedWithoutRestart(t *testing.T) {
	ca := newCA(t)
	dir := t.TempDir()
	if err := ca.Issue(dir, "decode", "d1"); err != nil {
		t.Fatal(err)
	}
	decode, router := loaded(t, dir), issued(t, ca, "router", "r1")
	addr := serve(t, decode.ServerCreds())
	if _, err := call(t, addr, router.ClientCreds("decode", "d1")); err != nil {
		t.Fatal(err)
	}
	before := decode.now.cert.Leaf.SerialNumber
	touchNext(t, dir)
	if err := ca.Issue(dir, "decode", "d1"); err != nil {
		t.Fatal(err)
	}
	if _, err := call(t, addr, router.ClientCreds("decode", "d1")); err != nil {
		t.Fatal(err)
	}
	if decode.now.cert.Leaf.SerialNumber.Cmp(before) == 0 {
		t.Error("the old certificate was presented after the renewal")
	}
}

func TestNewRootsCutOffTheOldCA(t *testing.T) {
	old, next := newCA(t), newCA(t)
	dir := t.TempDir()
	if err := old.Issue(dir, "decode", "d1"); err != nil {
		t.Fatal(err)
	}
	decode, router := loaded(t, dir), issued(t, old, "router", "r1")
	addr := serve(t, decode.ServerCreds())
	touchNext(t, dir)
	if err := next.Issue(dir, "decode", "d1"); err != nil {
		t.Fatal(err)
	}
	if _, err := call(t, addr, router.ClientCreds("decode", "d1")); err == nil {
		t.Error("a client of the old CA was let in")
	}
	if _, err := call(t, addr, issued(t, next, "router", "r1").ClientCreds("decode", "d1")); err != nil {
		t.Errorf("a client of the new CA: %v", err)
	}
}

// touchNext makes the files look old, so that a clock too coarse for two writes in a row hides no change.
func touchNext(t *testing.T, dir string) {
	t.Helper()
	for _, f := range files {
		if err := os.Chtimes(filepath.Join(dir, f), time.Time{}, time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestBrokenFilesLeaveTheOldOnesInUse(t *testing.T) {
	for why, breakIt := range map[string]func(t *testing.T, dir string){
		"the key does not fit":       func(t *testing.T, dir string) { swap(t, dir, KeyFile, "decode", "d1") },
		"the name changed":           func(t *testing.T, dir string) { swapAll(t, dir, "decode", "d2") },
		"the roots are empty":        func(t *testing.T, dir string) { write(t, dir, CAFile, "") },
		"the certificate is no PEM":  func(t *testing.T, dir string) { write(t, dir, CertFile, "x") },
		"the certificate is missing": func(t *testing.T, dir string) { remove(t, dir, CertFile) },
	} {
		t.Run(why, func(t *testing.T) {
			ca, dir := newCA(t), t.TempDir()
			if err := ca.Issue(dir, "decode", "d1"); err != nil {
				t.Fatal(err)
			}
			i := loaded(t, dir)
			if err := i.Check(); err != nil {
				t.Fatalf("Check before: %v", err)
			}
			breakIt(t, dir)
			if err := i.Check(); err == nil {
				t.Error("Check said nothing")
			}
			if service, id := i.Name(); service != "decode" || id != "d1" {
				t.Errorf("Name = %s/%s", service, id)
			}
			router := issued(t, ca, "router", "r1")
			if _, err := call(t, serve(t, i.ServerCreds()), router.ClientCreds("decode", "d1")); err != nil {
				t.Errorf("the old certificate was given up: %v", err)
			}
			if err := ca.Issue(dir, "decode", "d1"); err != nil {
				t.Fatal(err)
			}
			if err := i.Check(); err != nil {
				t.Errorf("Check after the repair: %v", err)
			}
		})
	}
}

func swap(t *testing.T, dir, file, service, id string) {
	t.Helper()
	from := t.TempDir()
	if err := newCA(t).Issue(from, service, id); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(from, file))
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir, file, string(b))
}

func swapAll(t *testing.T, dir, service, id string) {
	t.Helper()
	if err := newCA(t).Issue(dir, service, id); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, dir, file, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(dir, file), time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, dir, file string) {
	t.Helper()
	if err := os.Remove(filepath.Join(dir, file)); err != nil {
		t.Fatal(err)
	}
}

func TestCheckSeesExpiry(t *testing.T) {
	i := odd(t, newCA(t), func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) })
	if err := i.Check(); err == nil || !strings.Contains(err.Error(), "valid from") {
		t.Errorf("Check = %v, want both times", err)
	}
	if err := Plain().Check(); err != nil {
		t.Errorf("plain: %v", err)
	}
}

func TestLoadRefuses(t *testing.T) {
	for why, dir := range map[string]string{"no directory given": "", "an empty directory": t.TempDir()} {
		if _, err := Load(dir); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: %v, want invalid", why, err)
		}
	}
}

func TestCAFiles(t *testing.T) {
	dir := t.TempDir()
	ca, err := NewCA(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewCA(dir); err == nil {
		t.Error("a second CA replaced the first")
	}
	again, err := OpenCA(dir)
	if err != nil {
		t.Fatal(err)
	}
	decode, router := issued(t, again, "decode", "d1"), issued(t, ca, "router", "r1")
	if _, err := call(t, serve(t, decode.ServerCreds()), router.ClientCreds("decode", "d1")); err != nil {
		t.Errorf("certificates of a CA before and after it was opened again: %v", err)
	}
	for _, f := range []string{filepath.Join(dir, CAKeyFile), filepath.Join(decode.dir, KeyFile)} {
		st, err := os.Stat(f)
		if err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v, want mode 0600", filepath.Base(f), st.Mode(), err)
		}
	}
	if _, err := os.Stat(filepath.Join(decode.dir, CAKeyFile)); !os.IsNotExist(err) {
		t.Error("an instance got the CA's key")
	}
}

func TestIssueRefusesNames(t *testing.T) {
	ca := newCA(t)
	for _, c := range [][2]string{{"", "d1"}, {"decode", ""}, {"decode", "a/b"}, {"../x", "d1"}} {
		if err := ca.Issue(t.TempDir(), c[0], c[1]); errs.KindOf(err) != errs.Invalid {
			t.Errorf("Issue(%q, %q) = %v, want invalid", c[0], c[1], err)
		}
	}
}

func TestNoPeerOutsideARPC(t *testing.T) {
	if _, _, ok := Peer(context.Background()); ok {
		t.Error("a context without an rpc has a peer")
	}
	if IsPlain(context.Background()) {
		t.Error("a context without an rpc is a loopback caller")
	}
}
