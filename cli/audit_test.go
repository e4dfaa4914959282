package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leasehold.dev/mesh/audit"
	"leasehold.dev/mesh/audit/event"
	"leasehold.dev/protos/errs"
)

// keep writes a log of events into dir/service-instance, and returns its last head.
func keep(t *testing.T, dir, service, instance string, events ...audit.Event) audit.Head {
	t.Helper()
	l, err := audit.Open(audit.Config{Dir: filepath.Join(dir, service+"-"+instance), Service: service, Instance: instance})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		l.Append(e)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	h, _ := l.Head()
	return h
}

// story: bolt had page 3 before acme, and it was cleared in between; page 4 was not.
func story(t *testing.T, dir string) (broker, router audit.Head) {
	t.Helper()
	broker = keep(t, dir, "kvbroker", "bd",
		event.BrokerStarted{Broker: "bd", Instance: "0123456789", Pages: 8},
		event.LeaseGranted{Lease: "l0", Admission: "adm0", Tenant: "bolt", Pages: event.Numbered([]uint32{3, 4})},
		event.Lease{As: event.KindLeaseReleased, Lease: "l0", Tenant: "bolt"},
		event.PagesZeroed{Lease: "l0", Pages: event.Numbered([]uint32{3})},
		event.LeaseGranted{Lease: "l1", Admission: "adm1", Tenant: "acme", Pages: event.Numbered([]uint32{2, 3, 4, 6})},
	)
	router = keep(t, dir, "router", "r0",
		event.Admission{Request: "req1", Admission: "adm1", Tenant: "acme", Decode: "d0", DecodeBroker: "bd"},
		event.Response{Request: "req1", Tenant: "acme", Outcome: "ok", StartMS: time.Now().UnixMilli(), Choices: []event.Choice{{Admission: "adm1", Decode: "d0", VerdictsEqual: true}}},
	)
	return broker, router
}

func lineFile(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "heads")
	if err := os.WriteFile(path, append(b, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func wantText(t *testing.T, out string, words ...string) {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(out, w) {
			t.Errorf("lacks %q:\n%s", w, out)
		}
	}
}

func TestAuditVerify(t *testing.T) {
	dir := t.TempDir()
	broker, _ := story(t, dir)
	out, err := run(t, "", "audit", "verify", dir)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	wantText(t, out, "kvbroker/bd: records 1 to 7 in 1 files, 2 heads, the last at record 7", "router/r0: records 1 to 4", "2 audit logs are as they were written",
		"note: the key is the folder's own")
	log := filepath.Join(dir, "kvbroker-bd")
	out, err = run(t, "", "audit", "verify", "--key", filepath.Join(log, audit.PublicFile), "--head", lineFile(t, broker), log)
	if err != nil || strings.Contains(out, "note:") {
		t.Errorf("with the key and a head from elsewhere: %v\n%s", err, out)
	}

	file := filepath.Join(log, "audit-00000000000000000001.jsonl")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(whole), "\n")
	for _, c := range []struct{ what, text, says string }{
		{"an edit", strings.Replace(string(whole), "bolt", "acme", 1), file + ":3: edited"},
		{"a reorder", lines[0] + lines[2] + lines[1] + strings.Join(lines[3:], ""), file + ":3: reordered"},
		{"a removed line", lines[0] + strings.Join(lines[2:], ""), file + ":2: removed"},
		{"a cut below the head", strings.Join(lines[:5], ""), file + ":5: cut: the log ends at record 5"},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := run(t, "", "audit", "verify", dir)
		if errs.KindOf(err) != errs.Corrupt || !strings.Contains(out, c.says) {
			t.Errorf("%s: %v, want %q in\n%s", c.what, err, c.says, out)
		}
	}
}

func TestAuditVerifyAgainstWhatWasKept(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	story(t, dir)
	stranger := keep(t, other, "decode", "d9")
	out, err := run(t, "", "audit", "verify", "--key", filepath.Join(other, "decode-d9", audit.PublicFile), dir)
	if errs.KindOf(err) != errs.Corrupt {
		t.Errorf("another key: %v\n%s", err, out)
	}
	out, err = run(t, "", "audit", "verify", "--head", lineFile(t, stranger), dir)
	if errs.KindOf(err) != errs.Corrupt || !strings.Contains(out, "no log of decode/d9") {
		t.Errorf("a head of a log that is not there: %v\n%s", err, out)
	}
	for _, args := range [][]string{
		{"audit", "verify", t.TempDir()},
		{"audit", "verify", filepath.Join(dir, "none")},
		{"audit", "verify", "--key", "cli.go", dir},
		{"audit", "verify", "--head", "cli.go", dir},
		{"audit", "verify"},
	} {
		if out, err := run(t, "", args...); err == nil {
			t.Errorf("%v: no error\n%s", args, out)
		}
	}
}

func TestAuditAffected(t *testing.T) {
	dir := t.TempDir()
	story(t, dir)
	out, err := run(t, "", "audit", "affected", dir)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	wantText(t, out, "request req1  tenant acme  pair /d0  ok", "4 pages of broker bd (instance 01234567): 2-4,6",
		"tenant bolt had 2 of them before (released): 1 cleared in between, 1 NOT cleared",
		"1 responses; 1 tenants had some of their pages before; 1 responses had a page that was not cleared in between")
	for _, c := range []struct{ args, want string }{
		{"--page bd:3", "bolt had 1 of them before (released): 1 cleared in between, 0 NOT"},
		{"--page bd:4", "1 NOT cleared"},
		{"--page bd:6", "1 responses; 0 tenants"},
		{"--page bd:7", "0 responses"},
		{"--pair /d0", "1 responses; 1 tenants"},
		{"--pair p/d0", "0 responses"},
		{"--from 2020-01-02T15:04:05Z", "1 responses"},
		{"--to 2020-01-02T15:04:05Z", "0 responses"},
		{"--from 2020-01-02T15:04:05Z --to 2100-01-02T15:04:05+01:00", "1 responses"},
	} {
		out, err := run(t, "", append(append([]string{"audit", "affected"}, strings.Fields(c.args)...), dir)...)
		if err != nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v, want %q in\n%s", c.args, err, c.want, out)
		}
	}
	for args, says := range map[string]string{
		"--from yesterday": "--from",
		"--to 1":           "--to",
		"--from 2026-01-02T15:04:05Z --to 2025-01-02T15:04:05Z": "before",
		"--pair d0":              "--pair",
		"--page bd":              "--page",
		"--page bd:x":            "--page",
		"--page :3":              "--page",
		"--page bd:3 --pair p/d": "--pa",
		"--page bd:4294967296":   "--page",
	} {
		_, err := run(t, "", append(append([]string{"audit", "affected"}, strings.Fields(args)...), dir)...)
		wantError(t, err, says)
	}
}

// TestAuditAffectedFailsClosed: a list that may lack something is no success.
func TestAuditAffectedFailsClosed(t *testing.T) {
	dir := t.TempDir()
	story(t, dir)
	out, err := run(t, "", "audit", "affected", filepath.Join(dir, "router-r0"))
	if errs.KindOf(err) != errs.NotFound || !strings.Contains(out, "missing: the log of broker bd") {
		t.Errorf("without the broker's log: %v\n%s", err, out)
	}
	file := filepath.Join(dir, "kvbroker-bd", "audit-00000000000000000001.jsonl")
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(whole), `[[3,4,0]]`, `[[0,1,0]]`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err = run(t, "", "audit", "affected", dir); errs.KindOf(err) != errs.Corrupt || !strings.Contains(out, "edited") || !strings.Contains(out, "req1") {
		t.Errorf("with an edited log: %v\n%s", err, out)
	}
}

func TestNotes(t *testing.T) {
	got := strings.Join(notes(&audit.Report{Unsigned: 1, Rotated: 2, Lost: 3, Torn: 4, OwnKey: true}), "\n")
	wantText(t, got, "1 records are above", "up to 2 were removed", "3 records are lost", "4 bytes of a torn", "--key")
	if n := notes(&audit.Report{}); len(n) != 0 {
		t.Errorf("of nothing: %v", n)
	}
}

func TestRanges(t *testing.T) {
	for want, n := range map[string][]uint32{"": nil, "5": {5}, "1-3": {1, 2, 3}, "0,2-3,9": {0, 2, 3, 9}} {
		if got := ranges(n); got != want {
			t.Errorf("%v: %q, want %q", n, got, want)
		}
	}
}
