package mesh

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/mesh/audit"
	"leasehold.dev/mesh/audit/event"
	"leasehold.dev/mesh/boundary"
	"leasehold.dev/protos/errs"
)

func TestAuditLogOutlivesRun(t *testing.T) {
	c := plainConfig("decode", "d1")
	c.AuditDir = filepath.Join(t.TempDir(), "audit")
	s := newServer(t, c)
	stop := running(t, s)
	if _, metrics := get(t, "http://"+s.AdminAddr()+"/metrics"); !strings.Contains(metrics, audit.MetricOn+"{} 1") && !strings.Contains(metrics, audit.MetricOn+" 1") ||
		!strings.Contains(metrics, audit.MetricRecords+`_total{kind="audit.opened"} 1`) || !strings.Contains(metrics, audit.MetricUnsigned) {
		t.Errorf("metrics:\n%s", metrics)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	s.Boundary.Incident(boundary.P2, boundary.LateWrite, "page 7")
	s.Audit.Append(event.Retry{Request: "late"}) // what a process gives back after Run
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var kinds []string
	var incident any
	r, err := audit.Verify(c.AuditDir, nil, nil, func(r *audit.Record, _ audit.Place) (err error) {
		if kinds = append(kinds, r.Kind); r.Kind == event.KindIncident {
			incident, err = event.Decode(r.Kind, r.Fields)
		}
		return err
	})
	if err != nil || len(r.Findings) > 0 || r.Service != "decode" || r.Instance != "d1" {
		t.Fatalf("%+v, %v", r, err)
	}
	if got := strings.Join(kinds, " "); got != "audit.opened incident retry audit.closed" {
		t.Errorf("the log has %q", got)
	}
	if want := (event.Incident{Property: "P2", Detector: "late_write", About: "page 7"}); incident != any(want) {
		t.Errorf("the incident is %+v, want %+v", incident, want)
	}
}

func TestWithoutAuditDirThereIsNoLogAndTheMetricSaysSo(t *testing.T) {
	s := newServer(t, plainConfig("decode", "d1"))
	running(t, s)
	if s.Audit != nil {
		t.Error("there is a log")
	}
	if _, metrics := get(t, "http://"+s.AdminAddr()+"/metrics"); !strings.Contains(metrics, audit.MetricOn+" 0") {
		t.Errorf("metrics:\n%s", metrics)
	}
}

func TestAuditLogThatDoesNotOpenIsNoStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		why    string
		kind   errs.Kind
		change func(*Config)
	}{
		{"below a file", errs.Unavailable, func(c *Config) { c.AuditDir = filepath.Join(file, "x") }},
		{"files of less than nothing", errs.Invalid, func(c *Config) { c.AuditFileSize = -1 }},
		{"less than no files", errs.Invalid, func(c *Config) { c.AuditKeep = -1 }},
	} {
		conf := plainConfig("decode", "d1")
		c.change(&conf)
		if _, err := New(t.Context(), conf); errs.KindOf(err) != c.kind {
			t.Errorf("%s: %v, want %v", c.why, err, c.kind)
		}
	}
}
