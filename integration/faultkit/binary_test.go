package faultkit

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/integration/scenario/stagetest"
	"leasehold.dev/protos/fault"
)

var programs = []string{"leasehold", "leasehold-kvbroker", "leasehold-prefill", "leasehold-decode", "leasehold-router"}

// symbols of the kit: Go's and the engine's.
var symbols = []string{"leasehold.dev/protos/fault.", "lh_faults_", "g_guards_off"}

// marks are strings that only a faults build may hold.
func marks() []string {
	all := []string{Environ, "FAULTS BUILD", "leasehold_faults_build", "leasehold_guard_turned_off"}
	for _, g := range fault.Guards() {
		all = append(all, string(g))
	}
	for _, p := range fault.Points() {
		all = append(all, string(p))
	}
	return all
}

func kitSymbols(t *testing.T, path string) (n int) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := f.Symbols()
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for _, s := range all {
		for _, k := range symbols {
			if strings.Contains(s.Name, k) {
				n++
			}
		}
	}
	if len(all) < 1000 {
		t.Fatalf("%s has %d symbols: nothing can be said of it", path, len(all))
	}
	return n
}

// TestReleaseBinariesHoldNothingOfTheKit looks at all five programs of both builds: no name of a point, guard, metric or
// symbol of the kit is in a release binary, and each is in its faults build.
func TestReleaseBinariesHoldNothingOfTheKit(t *testing.T) {
	release := stagetest.Setup(t).Bin
	for _, name := range programs {
		t.Run(name, func(t *testing.T) {
			clean, err := os.ReadFile(filepath.Join(release, name))
			if err != nil {
				t.Fatal(err)
			}
			faulty, err := os.ReadFile(filepath.Join(Bin(release), name))
			if err != nil {
				t.Fatalf("%v: run make build-faults", err)
			}
			for _, m := range marks() {
				if bytes.Contains(clean, []byte(m)) {
					t.Errorf("the release build holds %q", m)
				}
				if !bytes.Contains(faulty, []byte(m)) {
					t.Errorf("the faults build does not hold %q", m)
				}
			}
			if n := kitSymbols(t, filepath.Join(release, name)); n > 0 {
				t.Errorf("the release build has %d symbols of the kit", n)
			}
			if n := kitSymbols(t, filepath.Join(Bin(release), name)); n == 0 {
				t.Error("the faults build has no symbol of the kit")
			}
		})
	}
}
