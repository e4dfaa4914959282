// Package audittest gives tests a log to write, and its events to look at.
package audittest

import (
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/mesh/audit"
	"leasehold.dev/mesh/audit/event"
)

// Log is a log of a test. Its files are in Dir.
type Log struct {
	*audit.Log
	Dir string
	t   testing.TB
}

// Open makes a log of service/instance, closed at the end of the test.
func Open(t testing.TB, service, instance string) *Log {
	t.Helper()
	l := &Log{Dir: filepath.Join(t.TempDir(), service+"-"+instance), t: t}
	var err error
	if l.Log, err = audit.Open(audit.Config{Dir: l.Dir, Service: service, Instance: instance}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// Events closes the log, fails the test on any flaw, and returns all but the log's own records.
func (l *Log) Events() []any {
	l.t.Helper()
	if err := l.Close(); err != nil {
		l.t.Fatal(err)
	}
	return Read(l.t, l.Dir)
}

// Read returns the events of the log in dir, and fails the test on any flaw.
func Read(t testing.TB, dir string) (out []any) {
	t.Helper()
	r, err := audit.Verify(dir, nil, nil, func(r *audit.Record, _ audit.Place) error {
		if strings.HasPrefix(r.Kind, "audit.") {
			return nil
		}
		e, err := event.Decode(r.Kind, r.Fields)
		out = append(out, e)
		return err
	})
	if err != nil || len(r.Findings) > 0 {
		t.Fatalf("%s: %v, %v", dir, r, err)
	}
	return out
}

// Kinds of events, with a space between.
func Kinds(events []any) string {
	var out []string
	for _, e := range events {
		out = append(out, e.(audit.Event).Kind())
	}
	return strings.Join(out, " ")
}
