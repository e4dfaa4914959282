package mesh

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"time"

	"leasehold.dev/protos/errs"
)

func newAdmin(metrics http.Handler, r *readiness) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /debug/goroutines", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_ = pprof.Lookup("goroutine").WriteTo(w, 1) // functions and counts; no argument, so no text of a tenant's
	})
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, req *http.Request) {
		v := r.look(req.Context())
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		if !v.Ready {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(v)
	})
	return mux
}

func newHTTP(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10}
}

// Addresses is what -addr-file holds.
type Addresses struct {
	GRPC  string `json:"grpc"`
	Admin string `json:"admin"`
}

// ReadAddresses reads an -addr-file. Absence is NotFound: the process does not serve yet.
func ReadAddresses(file string) (Addresses, error) {
	var a Addresses
	b, err := os.ReadFile(file)
	if os.IsNotExist(err) {
		return a, errs.New(errs.NotFound, "%w", err)
	}
	if err != nil {
		return a, errs.New(errs.Unavailable, "%w", err)
	}
	if err := json.Unmarshal(b, &a); err != nil {
		return a, errs.New(errs.Invalid, "%s: %w", file, err)
	}
	return a, nil
}

func writeAddresses(file string, a Addresses) error {
	if file == "" {
		return nil
	}
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	tmp := filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".new")
	if err := os.WriteFile(tmp, append(b, '\n'), 0o644); err != nil {
		return errs.New(errs.Invalid, "-addr-file: %w", err)
	}
	return errs.Mark(os.Rename(tmp, file), errs.Invalid)
}
