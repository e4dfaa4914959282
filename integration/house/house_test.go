package house

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// allowed is the import rule: module -> modules of ours that it may import.
var allowed = map[string][]string{
	"protos":      {},
	"model":       {},
	"mesh":        {"protos"},
	"gpu":         {"protos", "model"},
	"kvbroker":    {"mesh", "protos", "gpu"},
	"prefill":     {"mesh", "protos", "model", "gpu", "kvbroker/client"},
	"decode":      {"mesh", "protos", "model", "gpu", "kvbroker/client"},
	"router":      {"mesh", "protos", "model"},
	"cli":         {"mesh", "protos", "model", "gpu", "kvbroker", "prefill", "decode", "router"},
	"integration": {"mesh", "protos", "model", "gpu", "kvbroker", "prefill", "decode", "router", "cli"},
}

const prefix = "leasehold.dev/"

// broken returns the imports of package pkg that the rule forbids.
func broken(pkg string, imports []string) []string {
	module, _, _ := strings.Cut(strings.TrimPrefix(pkg, prefix), "/")
	rule, known := allowed[module]
	if !known {
		return []string{"module " + module + " is in no rule"}
	}
	var out []string
	for _, imp := range imports {
		path, ours := strings.CutPrefix(imp, prefix)
		if !ours || path == module || strings.HasPrefix(path, module+"/") {
			continue
		}
		if !slices.ContainsFunc(rule, func(r string) bool { return path == r || strings.HasPrefix(path, r+"/") }) {
			out = append(out, imp)
		}
	}
	return out
}

func TestBroken(t *testing.T) {
	for _, tt := range []struct {
		pkg    string
		imp    string
		broken bool
	}{
		{"leasehold.dev/router", "leasehold.dev/model", false},
		{"leasehold.dev/router", "leasehold.dev/gpu/engine", true},
		{"leasehold.dev/prefill", "leasehold.dev/kvbroker/client", false},
		{"leasehold.dev/prefill", "leasehold.dev/kvbroker/lease", true},
		{"leasehold.dev/model/gguf", "leasehold.dev/protos/errs", true},
		{"leasehold.dev/kvbroker/server", "leasehold.dev/kvbroker/lease", false},
		{"leasehold.dev/mesh", "google.golang.org/grpc", false},
		{"leasehold.dev/common", "fmt", true},
	} {
		if got := len(broken(tt.pkg, []string{tt.imp})) > 0; got != tt.broken {
			t.Errorf("%s imports %s: broken = %v, want %v", tt.pkg, tt.imp, got, tt.broken)
		}
	}
}

func root(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOWORK").Output()
	if err != nil {
		t.Fatalf("go env GOWORK: %v", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out)))
}

func TestImports(t *testing.T) {
	seen := 0
	for module := range allowed {
		cmd := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...")
		cmd.Dir = filepath.Join(root(t), module)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("go list in %s: %v", module, err)
		}
		for line := range strings.Lines(string(out)) {
			f := strings.Fields(line)
			seen++
			for _, imp := range broken(f[0], f[1:]) {
				t.Errorf("%s imports %s", f[0], imp)
			}
		}
	}
	if seen < len(allowed) {
		t.Errorf("saw %d packages in %d modules", seen, len(allowed))
	}
}

// TestFiles holds every file of ours to 900 lines, and the whole to the project's name for itself alone.
func TestFiles(t *testing.T) {
	top := root(t)
	cmd := exec.Command("git", "ls-files", "-z")
	cmd.Dir = top
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	n := 0
	for _, name := range strings.Split(string(out), "\x00") {
		if !slices.Contains([]string{".go", ".cc", ".h", ".proto", ".sh", ".md", ".py"}, filepath.Ext(name)) || strings.Contains(name, "/gen/") {
			continue
		}
		b, err := os.ReadFile(filepath.Join(top, name))
		if os.IsNotExist(err) {
			continue // deleted, not yet committed
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
		if lines := bytes.Count(b, []byte("\n")); lines > 900 {
			t.Errorf("%s has %d lines, more than 900", name, lines)
		}
	}
	if n < 50 {
		t.Errorf("only %d files were looked at", n)
	}
}
