package consultest

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestBinary(t *testing.T) {
	tree := t.TempDir()
	inner := filepath.Join(tree, "mesh", "registry")
	if err := os.MkdirAll(inner, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("LEASEHOLD_BIN", "")
	t.Chdir(inner)
	put := func(file string, mode os.FileMode) string {
		t.Helper()
		file = filepath.Join(tree, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	put("go.work", 0o600)
	if _, err := Binary(); err == nil || !strings.Contains(err.Error(), "make consul") {
		t.Errorf("without a binary: %v, want what to do", err)
	}
	put("build/bin/consul", 0o600)
	if got, err := Binary(); err == nil {
		t.Errorf("a file that cannot be run was taken: %s", got)
	}
	if err := os.Chmod(filepath.Join(tree, "build/bin/consul"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got, err := Binary(); err != nil || !strings.HasSuffix(got, "build/bin/consul") {
		t.Errorf("in the tree: %q, %v", got, err)
	}
	want := put("elsewhere/consul", 0o700)
	t.Setenv("LEASEHOLD_BIN", filepath.Dir(want))
	if got, err := Binary(); err != nil || got != want {
		t.Errorf("in $LEASEHOLD_BIN: %q, %v, want %q", got, err, want)
	}
}

func TestStopAndRestartKeepWhatIsOnDisk(t *testing.T) {
	s := Start(t)
	do := func(method string) int {
		t.Helper()
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Address+"/v1/kv/a", strings.NewReader("1"))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if got := do(http.MethodPut); got != http.StatusOK {
		t.Fatalf("put: %d", got)
	}
	for name, end := range map[string]func(){"Stop": s.Stop, "Kill": s.Kill} {
		end()
		end()
		if got := do(http.MethodGet); got != 0 {
			t.Errorf("after %s it answered %d", name, got)
		}
		s.Restart()
		if got := do(http.MethodGet); got != http.StatusOK {
			t.Errorf("after %s and Restart: %d, want what was put", name, got)
		}
	}
	if s.URL() != "consul://"+s.Address {
		t.Errorf("URL = %q", s.URL())
	}
}
