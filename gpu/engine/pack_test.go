//go:build cgo

package engine_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
	"leasehold.dev/gpu/tinymodel"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

func needCPU(t *testing.T) {
	t.Helper()
	if len(engine.SIMDs()) == 0 {
		t.Skip("this machine runs no path of the cpu back end")
	}
}

// onlyFile is the one file of dir.
func onlyFile(t *testing.T, dir string) string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("%d files in the cache (%v), want 1", len(files), err)
	}
	return filepath.Join(dir, files[0].Name())
}

func TestPackedWeightsAreKeptAndChecked(t *testing.T) {
	needCPU(t)
	m := tinymodel.Load(t, tinymodel.Options{})
	ids := prompt(30, 5)
	run := func(cache string) []pagesum.Digest {
		b := newBench(t, m, engine.Options{Backend: layout.CPU, CacheDir: cache}, 2)
		return digests(b.feed(b.open(1, 1), ids, 5))
	}
	want := run("")
	cache := filepath.Join(t.TempDir(), "packs")
	same := func(what string) []byte {
		t.Helper()
		if got := run(cache); len(got) != 5 || got[4] != want[4] {
			t.Errorf("%s: digest %v, want %v", what, got[4], want[4])
		}
		data, err := os.ReadFile(onlyFile(t, cache))
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	first := same("a cache that is empty")
	path := onlyFile(t, cache)
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	same("a cache that is whole")
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("a whole file was made again (%v)", err)
	}
	for name, damage := range map[string]func([]byte) []byte{
		"a bit in the middle": func(b []byte) []byte { b[len(b)/2] ^= 4; return b },
		"a bit in its sum":    func(b []byte) []byte { b[len(b)-1] ^= 1; return b },
		"its end is missing":  func(b []byte) []byte { return b[:len(b)-1] },
		"it is empty":         func([]byte) []byte { return nil },
	} {
		os.Remove(path) // an engine may still map it
		if err := os.WriteFile(path, damage(bytes.Clone(first)), 0o600); err != nil {
			t.Fatal(err)
		}
		if again := same(name); !bytes.Equal(again, first) {
			t.Errorf("%s: the file was not made again as it was", name)
		}
	}
}

func TestModelsDoNotShareAPack(t *testing.T) {
	needCPU(t)
	cache := t.TempDir()
	for seed := range uint64(2) {
		m := tinymodel.Load(t, tinymodel.Options{Seed: seed})
		newBench(t, m, engine.Options{Backend: layout.CPU, CacheDir: cache}, 1)
	}
	if files, err := os.ReadDir(cache); err != nil || len(files) != 2 {
		t.Errorf("%d files for two models (%v), want 2", len(files), err)
	}
}

func TestACacheThatCannotBeWritten(t *testing.T) {
	needCPU(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m := tinymodel.Load(t, tinymodel.Options{})
	if _, err := engine.Open(m, engine.Options{Backend: layout.CPU, CacheDir: file}); errs.KindOf(err) != errs.Unavailable {
		t.Errorf("Open with a file as cache directory = %v, want Unavailable", err)
	}
}
