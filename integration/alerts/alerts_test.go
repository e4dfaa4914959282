// Package alerts holds the alert rules against promtool, and against the metrics that the code has.
package alerts

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"leasehold.dev/mesh/boundary"
)

const rules = "deploy/prometheus/boundary.rules.yml"

func root(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOWORK").Output()
	if err != nil {
		t.Fatalf("go env GOWORK: %v", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out)))
}

// TestPromtool needs Prometheus' promtool, which scripts/deps.sh promtool installs. Its absence is a failure: rules that
// nobody has tried are none.
func TestPromtool(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatal("promtool is not on PATH: run scripts/deps.sh promtool (Debian: apt-get install prometheus)")
	}
	for _, args := range [][]string{{"check", "rules", "boundary.rules.yml"}, {"test", "rules", "boundary.test.yml", "detectors.test.yml"}} {
		cmd := exec.CommandContext(t.Context(), tool, args...)
		cmd.Dir = filepath.Join(root(t), filepath.Dir(rules))
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "SUCCESS") {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// constants are the metric names that code of ours exports as constants.
func constants(t *testing.T) map[string]bool {
	t.Helper()
	names, top := map[string]bool{}, root(t)
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "build" || d.Name() == ".git" || d.Name() == "gen"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range f.Decls {
			g, ok := decl.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, spec := range g.Specs {
				v := spec.(*ast.ValueSpec)
				for i, name := range v.Names {
					if i >= len(v.Values) || !name.IsExported() {
						continue
					}
					if lit, ok := v.Values[i].(*ast.BasicLit); ok && lit.Kind == token.STRING {
						if s, err := strconv.Unquote(lit.Value); err == nil && strings.HasPrefix(s, "leasehold_") {
							names[s] = true
						}
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

var metric = regexp.MustCompile(`leasehold_[a-z_]+`)

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestEveryMetricOfTheRulesIsOfTheCode(t *testing.T) {
	known, seen := constants(t), 0
	for _, name := range metric.FindAllString(read(t, rules), -1) {
		seen++
		if !known[name] && !known[strings.TrimSuffix(name, "_total")] {
			t.Errorf("%s is a metric of no exported constant", name)
		}
	}
	if seen < 50 || !known[boundary.Incidents] {
		t.Errorf("%d names in the rules, %d in the code", seen, len(known))
	}
}

func TestEveryDetectorHasItsAlerts(t *testing.T) {
	text := read(t, rules)
	for d := range boundary.Watches {
		if d == boundary.AuditLog { // its own metrics
			continue
		}
		if !strings.Contains(text, boundary.Incidents+`_total{detector="`+string(d)+`"}`) {
			t.Errorf("no alert on incidents of %s", d)
		}
		stale := strings.Contains(text, boundary.LastObserved+`{detector="`+string(d)+`",pair!~"/.*"}`) &&
			strings.Contains(text, `absent(`+boundary.LastObserved+`{detector="`+string(d)+`"})`)
		if person := d == boundary.ReceiptReport; stale == person { // a person reports when there is something to
			t.Errorf("%s: a staleness alert: %v", d, stale)
		}
	}
}

var (
	alertName = regexp.MustCompile(`- alert: (\S+)`)
	detector  = regexp.MustCompile(`detector="([a-z_]+)"`)
)

func TestEveryAlertIsTried(t *testing.T) {
	tried := read(t, filepath.Dir(rules)+"/boundary.test.yml") + read(t, filepath.Dir(rules)+"/detectors.test.yml")
	names := alertName.FindAllStringSubmatch(read(t, rules), -1)
	if len(names) < 30 {
		t.Errorf("%d alerts", len(names))
	}
	for _, n := range names {
		if !strings.Contains(tried, `alertname="`+n[1]+`"`) {
			t.Errorf("%s has no promtool test", n[1])
		}
	}
	for _, m := range detector.FindAllStringSubmatch(read(t, rules), -1) {
		if d := boundary.Detector(m[1]); d != boundary.Unknown && len(boundary.Watches[d]) == 0 {
			t.Errorf("the rules name detector %s, which is none", d)
		}
	}
}
