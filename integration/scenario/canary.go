package scenario

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"leasehold.dev/cli/probe"
	"leasehold.dev/model/canary"
)

// Canary is s with the canary model, written to dir, that promises context tokens.
func (s Setup) Canary(dir string, context uint32) (Setup, error) {
	data, err := canary.File(context)
	if err != nil {
		return s, err
	}
	s.Model = filepath.Join(dir, "canary.gguf")
	if err := os.WriteFile(s.Model, data, 0o600); err != nil {
		return s, fmt.Errorf("canary model: %w", err)
	}
	return s, nil
}

// Probe asks the stage's router as its canary, which the stage's configuration must have. close lets its connections go.
func (st *Stage) Probe(timeout time.Duration) (client *probe.Client, closeIdle func()) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	return &probe.Client{URL: st.URL(), Key: st.Mesh.Canary, Model: st.Loaded.Name, HTTP: &http.Client{Transport: transport, Timeout: timeout}},
		transport.CloseIdleConnections
}
