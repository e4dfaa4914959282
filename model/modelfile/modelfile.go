// Package modelfile finds the model file that tests of every module run with.
package modelfile

import (
	"os"
	"path/filepath"
	"testing"
)

// Name is the file's name in build/model, where `make model` puts it.
const Name = "SmolLM2-135M-Instruct.Q4_1.gguf"

// Path is the model file's path: LEASEHOLD_MODEL if set, else build/model/[Name] beside the go.work above the working
// directory. A test without the file fails, it is never skipped.
func Path(t testing.TB) string {
	t.Helper()
	path := os.Getenv("LEASEHOLD_MODEL")
	if path == "" {
		path = filepath.Join(root(t), "build", "model", Name)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("no model file: run make model (%v)", err)
	}
	return path
}

func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatalf("working directory: %v", err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("no go.work above the working directory; set LEASEHOLD_MODEL or run make model in the workspace")
		}
		dir = up
	}
}
