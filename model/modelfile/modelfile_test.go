package modelfile_test

import (
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"leasehold.dev/model/modelfile"
)

// recorder is a testing.TB that keeps a fatal error instead of ending the test.
type recorder struct {
	testing.TB
	fatal string
}

func (r *recorder) Helper() {}

func (r *recorder) Fatal(args ...any) {
	r.fatal = args[0].(string)
	runtime.Goexit()
}

func (r *recorder) Fatalf(format string, _ ...any) {
	r.fatal = format
	runtime.Goexit()
}

func fatal(t *testing.T) string {
	t.Helper()
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		modelfile.Path(r)
	}()
	<-done
	return r.fatal
}

func TestPathIsFoundFromADeeperFolder(t *testing.T) {
	t.Setenv("LEASEHOLD_MODEL", "")
	path := modelfile.Path(t)
	if want := filepath.Join("build", "model", modelfile.Name); !strings.HasSuffix(path, want) {
		t.Errorf("Path = %q, want one that ends in %q", path, want)
	}
}

func TestPathFollowsTheEnvironment(t *testing.T) {
	want := modelfile.Path(t)
	t.Setenv("LEASEHOLD_MODEL", want)
	t.Chdir(t.TempDir())
	if got := modelfile.Path(t); got != want {
		t.Errorf("Path = %q, want %q", got, want)
	}
}

func TestAMissingFileEndsTheTest(t *testing.T) {
	t.Setenv("LEASEHOLD_MODEL", filepath.Join(t.TempDir(), "absent.gguf"))
	if got := fatal(t); !strings.Contains(got, "make model") {
		t.Errorf("with a wrong path: %q", got)
	}
	t.Setenv("LEASEHOLD_MODEL", "")
	t.Chdir(t.TempDir())
	if got := fatal(t); !strings.Contains(got, "make model") {
		t.Errorf("outside of the workspace: %q", got)
	}
}
