package cli

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leasehold.dev/cli/doctor"
	"leasehold.dev/model/modelfile"
)

// watched is the output of a command that runs: ready is closed once text was printed.
type watched struct {
	text  string
	ready chan struct{}
	seen  strings.Builder
}

func (w *watched) Write(b []byte) (int, error) {
	before := strings.Contains(w.seen.String(), w.text)
	w.seen.Write(b)
	if !before && strings.Contains(w.seen.String(), w.text) {
		close(w.ready)
	}
	return len(b), nil
}

// up runs a real mesh in dir until the returned function is called, which gives what it printed and how it ended.
func up(t *testing.T, dir string) func() (string, error) {
	t.Helper()
	bin := os.Getenv("LEASEHOLD_BIN")
	if bin == "" {
		t.Fatal("LEASEHOLD_BIN is not set: run make build, then the tests through make test")
	}
	ctx, cancel := context.WithCancel(t.Context())
	out := &watched{text: "Interrupt to stop.", ready: make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, []string{"up", "--dir", dir, "--http", "127.0.0.1:0", "--bin", bin, "--model", modelfile.Path(t), "--cache", os.TempDir()},
			strings.NewReader(""), out)
	}()
	select {
	case <-out.ready:
	case err := <-ended:
		cancel()
		t.Fatalf("up ended: %v\n%s", err, out.seen.String())
	}
	return func() (string, error) {
		cancel()
		err := <-ended
		return out.seen.String(), err
	}
}

func TestRealMesh(t *testing.T) {
	parent, err := os.MkdirTemp("", "lh") // short: sockets are in it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(parent)
	defer http.DefaultClient.CloseIdleConnections()
	dir := filepath.Join(parent, "m")
	stop := up(t, dir)
	checkCommands(t, dir)
	out, err := stop()
	if err != nil || !strings.Contains(out, "up: stopped 5 processes") {
		t.Errorf("up = %v, printed\n%s", err, out)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Errorf("%s is still there", dir)
	}
	_, err = run(t, "", "ps", "--dir", dir)
	wantError(t, err, "no mesh runs from "+dir)
}

// checkCommands runs the others beside up, ps once while a request runs.
func checkCommands(t *testing.T, dir string) {
	t.Helper()
	if out, err := run(t, "", "models", "--dir", dir); err != nil || !strings.Contains(out, "8192 tokens") {
		t.Errorf("models = %v\n%s", err, out)
	}
	if out, err := run(t, "Say hi\n/exit\n", "chat", "--dir", dir, "--max-tokens", "8", "-t", "0"); err != nil || strings.Contains(out, "error") {
		t.Errorf("chat = %v\n%s", err, out)
	}
	checkDoctor(t, dir)
	checkVerify(t, dir)
	_, err := run(t, "", "up", "--dir", dir, "--model", modelfile.Path(t))
	wantError(t, err, "runs from "+dir+" already")

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	r, w := io.Pipe()
	asked := make(chan error, 1)
	go func() {
		asked <- Run(ctx, []string{"chat", "--dir", dir, "--max-tokens", "4000", "Write a long story"}, strings.NewReader(""), w)
		w.Close()
	}()
	if _, err := r.Read(make([]byte, 64)); err != nil { // the first words are here
		t.Error(err)
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		io.Copy(io.Discard, r)
	}()
	if out, err := run(t, "", "ps", "--dir", dir); err != nil || !strings.Contains(out, "destination") || !strings.Contains(out, "ready") {
		t.Errorf("ps beside a request = %v\n%s", err, out)
	}
	cancel()
	<-asked
	<-drained
}

// checkDoctor asks a healthy mesh, and then for more than it has.
func checkDoctor(t *testing.T, dir string) {
	t.Helper()
	out, err := run(t, "", "doctor", "--dir", dir, "--json", "--want", "prefill=1")
	var r doctor.Report
	if err != nil || json.Unmarshal([]byte(out), &r) != nil {
		t.Fatalf("doctor = %v\n%s", err, out)
	}
	if len(r.Workers) != 2 || len(r.Brokers) != 2 || len(r.Pairs) != 1 || r.Effective != 8192 || r.Workers[0].Derived < r.Workers[0].Promise {
		t.Errorf("doctor of a mesh with one pair:\n%s", out)
	}
	out, err = run(t, "", "doctor", "--dir", dir, "--want", "prefill=2")
	wantError(t, err, "missing prefill/: 1 of at least 2 pass")
	if !strings.Contains(out, "FINDING missing prefill: 1 of at least 2 pass") {
		t.Errorf("doctor printed\n%s", out)
	}
}
