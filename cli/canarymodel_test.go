package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/model"
	"leasehold.dev/protos/errs"
)

func TestCanaryModel(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "canary.gguf")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Run(t.Context(), []string{"canary", "model", "--context", "1048576", path}, nil, &out); err != nil {
		t.Fatal(err)
	}
	m, err := model.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Config.ContextLength != 1<<20 || m.Name != "canary" {
		t.Errorf("the file is %s with a context of %d", m.Name, m.Config.ContextLength)
	}
	if !strings.Contains(out.String(), "context 1048576 tokens") {
		t.Errorf("printed %q", out.String())
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("%d files are left in the folder", len(left))
	}
}

func TestCanaryModelRefuses(t *testing.T) {
	dir := t.TempDir()
	small := filepath.Join(dir, "small.gguf")
	err := Run(t.Context(), []string{"canary", "model", "--context", "20", small}, nil, &bytes.Buffer{})
	if errs.KindOf(err) != errs.Invalid || !strings.Contains(err.Error(), "20") {
		t.Errorf("a context of 20: %v", err)
	}
	if err := Run(t.Context(), []string{"canary", "model", filepath.Join(dir, "none", "x.gguf")}, nil, &bytes.Buffer{}); err == nil {
		t.Error("a file in a folder that is not there was written")
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("%d files are left in the folder", len(left))
	}
}
