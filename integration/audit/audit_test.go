// Package audit holds the logs of a whole mesh against what has happened in it.
package audit

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/cli"
	"leasehold.dev/cli/local"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/integration/scenario/stagetest"
	"leasehold.dev/mesh/audit/audittest"
	"leasehold.dev/mesh/audit/event"
)

// secret is in every prompt and no audit log.
const secret = "xylophonequartz"

// leasehold runs a command as a user would.
func leasehold(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := cli.Run(t.Context(), args, strings.NewReader(""), &out)
	return out.String(), err
}

// TestTheLogsOfAMesh: two tenants share a pool that holds one request at a time; a worker is killed and comes back. Then
// the mesh stops, and its logs verify, tell who could have read whose pages, and show each of four kinds of tampering.
func TestTheLogsOfAMesh(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	ids := runMesh(t, dir)

	out, err := leasehold(t, "audit", "verify", dir)
	if err != nil || !strings.Contains(out, "5 audit logs are as they were written") {
		t.Fatalf("%v\n%s", err, out)
	}
	checkRecords(t, dir, ids)
	checkAffected(t, dir, ids)
	checkNoText(t, dir)
	for _, log := range []string{"kvbroker-broker-d", "decode-decode-0", "router-router-0"} {
		tamper(t, dir, filepath.Join(dir, log))
	}
}

// runMesh asks four questions, of alpha and beta in turn, and returns the request ids.
func runMesh(t *testing.T, dir string) (ids []string) {
	t.Helper()
	st, err := scenario.Open(t.Context(), stagetest.Setup(t), func(c *local.Config) {
		c.Audit = dir
		c.Tenants = map[string]string{"alpha": local.NewKey(), "beta": local.NewKey()}
		c.Promise = 512
		c.Brokers = []local.Broker{{Name: "broker-p", Pages: 8}, {Name: "broker-d", Pages: 8}}
	})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(i int) {
		body := map[string]any{"model": st.Loaded.Name, "max_tokens": 8, "temperature": 0,
			"messages": []map[string]string{{"role": "user", "content": secret + " " + scenario.Words(230+i)}}}
		a, err := st.Post(t.Context(), "/v1/chat/completions", st.Tenants[[]string{"alpha", "beta"}[i%2]], body, nil)
		if err != nil || a.Err != nil || a.Text == "" {
			t.Fatalf("question %d: %+v, %v, %v", i, a, a.Err, err)
		}
		if err := st.Baseline(t.Context(), "broker-p", "broker-d"); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	}()
	ask(0)
	ask(1)
	worker := st.Process("decode/decode-0")
	if err := worker.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := worker.Addr(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := scenario.Until(t.Context(), func() error { return st.Ready(t.Context()) }); err != nil {
		t.Fatal(err)
	}
	ask(2)
	ask(3)
	for _, e := range readSoon(t, st, filepath.Join(dir, "router-router-0"), 4) {
		ids = append(ids, e.Request)
	}
	return ids
}

// readSoon waits until the router has written n responses: it does so a moment after it appends them.
func readSoon(t *testing.T, _ *scenario.Stage, dir string, n int) (out []event.Response) {
	t.Helper()
	if err := scenario.Until(t.Context(), func() error {
		out = responses(t, dir)
		if len(out) != n {
			return fmt.Errorf("%d responses on record, want %d", len(out), n)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func responses(t *testing.T, dir string) (out []event.Response) {
	t.Helper()
	for _, e := range audittest.Read(t, dir) {
		if r, ok := e.(event.Response); ok {
			out = append(out, r)
		}
	}
	return out
}

// checkRecords follows each request through all five logs.
func checkRecords(t *testing.T, dir string, ids []string) {
	t.Helper()
	all := map[string][]any{}
	for _, p := range []string{"kvbroker-broker-p", "kvbroker-broker-d", "prefill-prefill-0", "decode-decode-0", "router-router-0"} {
		all[p] = audittest.Read(t, filepath.Join(dir, p))
	}
	for i, r := range responses(t, filepath.Join(dir, "router-router-0")) {
		if want := []string{"alpha", "beta"}[i%2]; r.Tenant != want || r.Outcome != "ok" || len(r.Choices) != 1 || r.Request != ids[i] {
			t.Fatalf("response %d: %+v, want one of %s", i, r, want)
		}
		c := r.Choices[0]
		granted := map[string]int{}
		for _, b := range []string{"kvbroker-broker-p", "kvbroker-broker-d"} {
			leases := map[string]bool{}
			for _, e := range all[b] {
				switch e := e.(type) {
				case event.LeaseGranted:
					if e.Admission == c.Admission {
						granted[b] += len(e.Pages)
						leases[e.Lease] = true
						if e.Tenant != r.Tenant {
							t.Errorf("response %d: a lease of %s", i, e.Tenant)
						}
					}
				case event.PagesZeroed:
					if leases[e.Lease] {
						granted[b] -= len(e.Pages)
					}
				}
			}
			if len(leases) != 1 || granted[b] != 0 {
				t.Errorf("response %d at %s: %d leases, %d pages granted and not zeroed", i, b, len(leases), granted[b])
			}
		}
		var p event.PrefillVerdict
		var d event.DecodeVerdict
		var f event.DecodeFinished
		for _, e := range append(all["prefill-prefill-0"], all["decode-decode-0"]...) {
			switch e := e.(type) {
			case event.PrefillVerdict:
				if e.Admission == c.Admission {
					p = e
				}
			case event.DecodeVerdict:
				if e.Admission == c.Admission {
					d = e
				}
			case event.DecodeFinished:
				if e.Admission == c.Admission {
					f = e
				}
			}
		}
		if p.Rows == 0 || p.Rows != d.Rows || p.Root != d.Root || p.Root != c.Root || p.Pages != c.Pages || f.PromptTokens != c.PromptTokens ||
			p.Rows != c.PromptTokens-1 || f.CompletionTokens != c.CompletionTokens || f.OutputDigest != c.OutputDigest {
			t.Errorf("response %d: the router's %+v, prefill's %+v, decode's %+v and %+v", i, c, p, d, f)
		}
	}
	runs := audittest.Kinds(all["kvbroker-broker-d"])
	if strings.Contains(runs, "incident") || strings.Count(runs, "broker.started") != 1 {
		t.Errorf("broker-d: %s", runs)
	}
}

// checkAffected: the pools hold one request, so every response has pages that the other tenant had before, all cleared.
func checkAffected(t *testing.T, dir string, ids []string) {
	t.Helper()
	out, err := leasehold(t, "audit", "affected", dir)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(out, "4 responses; 2 tenants had some of their pages before; 0 responses had a page that was not cleared") {
		t.Error(out)
	}
	parts := strings.Split(out, "  request ")
	for i, id := range ids {
		part := parts[i+1]
		other := []string{"beta", "alpha"}[i%2]
		if !strings.HasPrefix(part, id) || !strings.Contains(part, "prefill-0/decode-0") || !strings.Contains(part, "of broker broker-p") || !strings.Contains(part, "of broker broker-d") {
			t.Errorf("response %d:\n%s", i, part)
		}
		if had := strings.Contains(part, "tenant "+other+" had "); had != (i > 0) {
			t.Errorf("response %d: that %s had pages of it before is %v\n%s", i, other, had, part)
		}
	}
	if out, err := leasehold(t, "audit", "affected", "--pair", "prefill-9/decode-0", dir); err != nil || !strings.Contains(out, "0 responses") {
		t.Errorf("another pair: %v\n%s", err, out)
	}
	if out, err := leasehold(t, "audit", "affected", "--page", "broker-d:0", dir); err != nil || strings.Contains(out, "0 responses;") {
		t.Errorf("page 0: %v\n%s", err, out)
	}
}

// checkNoText: no prompt and no key is in any file.
func checkNoText(t *testing.T, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		files++
		if strings.Contains(string(b), secret) || strings.Contains(string(b), "lh-") {
			t.Errorf("%s has text of a tenant's", path)
		}
		return err
	})
	if err != nil || files < 20 {
		t.Errorf("%d files looked at, %v", files, err)
	}
}

// tamper changes one log in four ways, each of which verify must show in that file; and puts it back.
func tamper(t *testing.T, all, dir string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "audit-*.jsonl"))
	if err != nil || len(names) != 1 {
		t.Fatalf("%v, %v", names, err)
	}
	file := names[0]
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(strings.TrimSuffix(string(whole), "\n"), "\n")
	lines[len(lines)-1] += "\n"
	at := len(lines) / 2
	join := func(parts ...[]string) string {
		var out strings.Builder
		for _, p := range parts {
			out.WriteString(strings.Join(p, ""))
		}
		return out.String()
	}
	for _, c := range []struct{ what, text, says string }{
		{"an edit", strings.Replace(string(whole), "alpha", "gamma", 1), ": edited"},
		{"a reorder", join(lines[:at], lines[at+1:at+2], lines[at:at+1], lines[at+2:]), fmt.Sprintf(":%d: reordered", at+2)},
		{"a removed line", join(lines[:at], lines[at+1:]), fmt.Sprintf(":%d: removed", at+1)},
		{"a cut below the last signed head", join(lines[:len(lines)-1]), fmt.Sprintf(":%d: cut", len(lines)-1)},
	} {
		if c.text == string(whole) {
			t.Fatalf("%s changes nothing", c.what)
		}
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := leasehold(t, "audit", "verify", all)
		if err == nil || !strings.Contains(out, file) || !strings.Contains(out, c.says) {
			t.Errorf("%s in %s: %v, want %q in\n%s", c.what, file, err, c.says, out)
		}
	}
	if err := os.WriteFile(file, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := leasehold(t, "audit", "verify", all); err != nil {
		t.Errorf("as it was: %v\n%s", err, out)
	}
}
