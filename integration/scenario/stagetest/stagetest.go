// Package stagetest opens stages for tests.
package stagetest

import (
	"os"
	"testing"

	"leasehold.dev/cli/local"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/model/modelfile"
)

// Setup takes the programs and the model from where make puts them.
func Setup(t testing.TB) scenario.Setup {
	t.Helper()
	bin := os.Getenv("LEASEHOLD_BIN")
	if bin == "" {
		t.Fatal("LEASEHOLD_BIN is not set: run make build, then the tests through make test")
	}
	return scenario.Setup{Bin: bin, Model: modelfile.Path(t), Cache: os.TempDir()}
}

// Open is scenario.Open, closed at the end of the test. Every process must then end by itself, with code 0, but those
// that the test has killed.
func Open(t testing.TB, change func(*local.Config)) *scenario.Stage {
	t.Helper()
	return open(t, Setup(t), change)
}

func open(t testing.TB, s scenario.Setup, change func(*local.Config)) *scenario.Stage {
	t.Helper()
	st, err := scenario.Open(t.Context(), s, change)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	return st
}

// OpenCanary is Open with the canary model, whose context is all that the mesh promises, and with a canary's key.
func OpenCanary(t testing.TB, context uint32, change func(*local.Config)) *scenario.Stage {
	t.Helper()
	s, err := Setup(t).Canary(t.TempDir(), context)
	if err != nil {
		t.Fatal(err)
	}
	return open(t, s, func(c *local.Config) {
		c.Canary, c.Promise = local.NewKey(), int(context)
		if change != nil {
			change(c)
		}
	})
}
