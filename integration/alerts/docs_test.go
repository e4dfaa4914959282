package alerts

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"leasehold.dev/mesh/boundary"
)

const page = "docs/boundary.md"

var (
	testName = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	declared = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(t \*testing\.T\)`)
	alertRef = regexp.MustCompile(`Leasehold[A-Za-z]+`)
)

// tests are the names of all tests of the repository.
func tests(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	err := filepath.WalkDir(root(t), func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "build" || d.Name() == ".git"):
			return filepath.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		b, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(b), -1) {
			names[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestWhatThePageNamesExists(t *testing.T) {
	text, have := read(t, page), tests(t)
	named := testName.FindAllStringSubmatch(text, -1)
	for _, n := range named {
		if !have[n[1]] {
			t.Errorf("%s names %s, which is no test", page, n[1])
		}
	}
	if len(named) < 25 {
		t.Errorf("%s names %d tests", page, len(named))
	}
	known, alerts := constants(t), map[string]bool{}
	for _, a := range alertName.FindAllStringSubmatch(read(t, rules), -1) {
		alerts[a[1]] = true
	}
	for _, a := range alertRef.FindAllString(text, -1) {
		if !alerts[a] {
			t.Errorf("%s names %s, which is no alert", page, a)
		}
	}
	for _, m := range metric.FindAllString(text, -1) {
		if !known[strings.TrimSuffix(m, "_total")] {
			t.Errorf("%s names %s, which is a metric of no exported constant", page, m)
		}
	}
}

// Every detector that the code has is a row of the page, with its properties and with each of its alerts.
func TestEveryDetectorIsOnThePage(t *testing.T) {
	rows := map[string]string{}
	for line := range strings.Lines(read(t, page)) {
		if cells := strings.Split(line, "|"); len(cells) == 8 {
			rows[strings.Trim(cells[1], " `")] = line
		}
	}
	for d, properties := range boundary.Watches {
		row, ok := rows[string(d)]
		if !ok {
			t.Errorf("detector %s is not on %s", d, page)
			continue
		}
		for _, p := range properties {
			if !strings.Contains(row, string(p)) {
				t.Errorf("the row of %s lacks %s", d, p)
			}
		}
		if !alertRef.MatchString(row) || !testName.MatchString(row) {
			t.Errorf("the row of %s lacks an alert or a test", d)
		}
	}
}
