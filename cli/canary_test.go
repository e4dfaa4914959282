package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"leasehold.dev/cli/doctor"
	"leasehold.dev/cli/probe"
	"leasehold.dev/model/canary"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/router/choose"
)

// echoes is a router that holds limit tokens and does what the canary model does: it says what followed.
func echoes(t *testing.T, limit int) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"data":[{"id":"canary","context_length":%d}]}`, limit)
	})
	mux.HandleFunc("POST /v1/completions", func(w http.ResponseWriter, r *http.Request) {
		var asked struct {
			Prompt string
			Max    int `json:"max_tokens"`
		}
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			t.Error(err)
		}
		pair := r.Header.Get("X-Leasehold-Pair")
		fail := func(status int, code, message string) {
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"error":{"code":%q,"message":%q}}`, code, message)
		}
		ids := canary.Parse(asked.Prompt)
		switch {
		case r.Header.Get("Authorization") != "Bearer kc":
			fail(http.StatusForbidden, "not_allowed", "")
		case !strings.HasPrefix(pair, "p"):
			fail(http.StatusServiceUnavailable, "service_unavailable", "")
		case len(ids)+asked.Max > limit:
			fail(http.StatusBadRequest, "context_length_exceeded", fmt.Sprintf("the prompt has %d tokens", len(ids)))
		default:
			w.Header().Set("X-Leasehold-Pair", pair)
			w.Header().Set("X-Leasehold-Route", "split:grpc")
			fmt.Fprintf(w, `{"choices":[{"text":%q}],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`, canary.Text(followed(ids, asked.Max)), len(ids), asked.Max)
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

// followed is n tokens: each is the marker that came after the one before it.
func followed(ids []int32, n int) []int32 {
	from := len(ids)
	for range n {
		last := ids[len(ids)-1]
		for i := 1; i < from; i++ {
			if owner, ok := canary.Owner(ids[i]); ids[i-1] == last && ok && int(ids[i])-32-owner*canary.PerTenant < canary.Markers {
				ids = append(ids, ids[i])
				break
			}
		}
	}
	return ids[from:]
}

func runCanary(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	err := Run(t.Context(), append([]string{"canary"}, args...), nil, &out)
	return out.String(), err
}

func TestCanaryOnce(t *testing.T) {
	url := echoes(t, 1000)
	out, err := runCanary(t, "--url", url, "--key", "kc", "--pair", "p0/d0", "--pair", "p1/d0")
	if err != nil || strings.Count(out, " echo ") < 2 || strings.Count(out, "refused") != 2 || !strings.Contains(out, "NOBODY/NOBODY") || strings.Contains(out, "FAILED") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestCanaryGate(t *testing.T) {
	url := echoes(t, 1000)
	ask := func(more ...string) (string, error) {
		return runCanary(t, append([]string{"--gate", "--url", url, "--key", "kc", "--pair", "p0/d0"}, more...)...)
	}
	out, err := ask()
	if err != nil || strings.Contains(out, "FAILED") {
		t.Errorf("a mesh that holds what it says: %v\n%s", err, out)
	}
	for _, name := range []string{"0.5x", "limit-1", "limit", "limit+1"} {
		if !strings.Contains(out, name+" ") {
			t.Errorf("the table has no row %s:\n%s", name, out)
		}
	}
	for why, more := range map[string][]string{
		"more is promised than is held":              {"--promise", "1400"},
		"less is promised than is held":              {"--promise", "600"}, // limit+1 is served
		"one of two pairs is not there":              {"--pair", "x1/d0"},
		"a key that may not name the pair of either": {"--key", "ka"},
	} {
		out, err := ask(more...)
		if errs.KindOf(err) != errs.Corrupt || !strings.Contains(out, "FAILED") {
			t.Errorf("%s: %v\n%s", why, err, out)
		}
	}
	if _, err := ask("--pairs", "2"); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("one pair of two has come up: %v", err)
	}
	if _, err := ask("--promise", "50"); errs.KindOf(err) != errs.Invalid {
		t.Errorf("a limit of 50: %v", err)
	}
}

func TestCanaryRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"--gate", "--every", "1s", "--url", "http://x", "--key", "kc"},
		{"--metrics", "127.0.0.1:0", "--url", "http://x", "--key", "kc"},
		{"--url", "http://x"},
	} {
		if _, err := runCanary(t, args...); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%q: %v", args, err)
		}
	}
	if _, err := runCanary(t, "--dir", t.TempDir()); errs.KindOf(err) != errs.NotFound {
		t.Errorf("no mesh: %v", err)
	}
}

// pages collects what is printed, for a reader in another goroutine.
type pages struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (p *pages) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.Write(b)
}

func (p *pages) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.b.String()
}

func TestCanaryForEverShowsWhenItLooked(t *testing.T) {
	url := echoes(t, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	out := &pages{}
	done := make(chan error, 1)
	go func() {
		done <- Run(ctx, []string{"canary", "--every", "20ms", "--metrics", "127.0.0.1:0", "--url", url, "--key", "kc", "--pair", "p0/d0", "--pair", "x1/d0"}, nil, out)
	}()
	wait := func(what string, ok func() bool) {
		t.Helper()
		deadline := time.NewTimer(20 * time.Second)
		defer deadline.Stop()
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for !ok() {
			select {
			case <-tick.C:
			case <-deadline.C:
				t.Fatalf("not within 20 s: %s\n%s", what, out)
			}
		}
	}
	wait("three rounds", func() bool { return strings.Count(out.String(), "2 pairs") >= 3 })
	_, address, _ := strings.Cut(out.String(), "metrics at ")
	address, _, _ = strings.Cut(address, "\n")
	transport := &http.Transport{DisableKeepAlives: true}
	res, err := (&http.Client{Transport: transport}).Get(address)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`leasehold_property_last_observed_seconds{detector="canary",pair="p0/d0",property="P1"}`,
		`leasehold_property_last_observed_seconds{detector="negative_canary",pair="x1/d0",property="P5"}`,
		`leasehold_boundary_incidents_total{detector="canary",property="P1"} 0`,
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("interrupted: %v", err)
	}
	if !strings.Contains(out.String(), "of 5 checks are not as they must be") {
		t.Errorf("a pair is not there, and no round says so:\n%s", out)
	}
}

func TestAWorkerThatIsSilentIsAFailedRow(t *testing.T) {
	said := func(service, id, err string) doctor.Said {
		s := doctor.Said{Service: service, ID: id, Err: err}
		if err == "" {
			s.Status = &meshv1.WorkerStatus{Id: id}
		}
		return s
	}
	f, silent := fleetOf([]doctor.Said{said("router", "r", "none"), said("kvbroker", "b", ""), said("prefill", "p0", ""), said("prefill", "p1", "refused"),
		said("decode", "d0", ""), {Service: "decode", ID: "d1"}})
	if len(f.Prefill) != 1 || f.Prefill[0].ID != "p0" || len(f.Decode) != 1 || f.Decode[0].ID != "d0" {
		t.Errorf("the fleet is %+v", f)
	}
	if len(silent) != 2 || probe.Failed(silent) != 2 || silent[0].Pair != "prefill p1" || silent[1].Pair != "decode d1" {
		t.Errorf("the silent ones are %+v", silent)
	}
}

func TestPairsOf(t *testing.T) {
	w := func(id, broker string, twist ...func(*choose.Worker)) choose.Worker {
		w := choose.Worker{ID: id, Instance: broker, ModelRevision: "w", TokenizerRevision: "t", LayoutHash: "l", Numerics: "n", Local: true, GRPC: true}
		for _, f := range twist {
			f(&w)
		}
		return w
	}
	f := choose.Fleet{Prefill: []choose.Worker{w("p1", "b1"), w("p0", "b0")}, Decode: []choose.Worker{
		w("d0", "b0", func(w *choose.Worker) { w.SelfPrefill = true }), w("d1", "b2"), w("d2", "b3", func(w *choose.Worker) { w.LayoutHash = "other" })}}
	if got, want := pairsOf(f), []string{"/d0", "p0/d0", "p0/d1", "p1/d0", "p1/d1"}; !slices.Equal(got, want) {
		t.Errorf("pairs %q, want %q", got, want)
	}
}
