package drive

import (
	"flag"
	"io"
	"os"
	"strings"
	"testing"

	"leasehold.dev/kvbroker/ucx"
	"leasehold.dev/protos/errs"
	moverv1 "leasehold.dev/protos/gen/leasehold/mover/v1"
)

func TestArguments(t *testing.T) {
	stderr := os.Stderr
	defer func() { os.Stderr = stderr }()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	os.Stderr = w // flag's usage
	go io.Copy(io.Discard, r)
	defer w.Close()
	for _, tt := range []struct {
		name string
		args string
	}{
		{"nothing", ""},
		{"no model", "-dir d"},
		{"no directory", "-model m"},
		{"more", "-dir d -model m what"},
		{"an unknown flag", "-dir d -model m -rma"},
		{"a model that is not there", "-dir d -model none.gguf"},
	} {
		if _, err := parse(strings.Fields(tt.args)); err == nil {
			t.Errorf("%s: no error", tt.name)
		}
	}
	if _, err := parse([]string{"-h"}); err != flag.ErrHelp { //nolint:errorlint // as flag returns it
		t.Errorf("-h: %v, want help", err)
	}
}

// TestAMoverSaysWhatItLacks: without UCX in it, that comes before any other reason.
func TestAMoverSaysWhatItLacks(t *testing.T) {
	err := Run(t.Context(), Config{Dir: "/nowhere"})
	if err == nil || errs.KindOf(err) != errs.Unavailable {
		t.Fatalf("Run = %v, want unavailable", err)
	}
	if said := strings.Contains(err.Error(), "built without ucx"); said == ucx.Built {
		t.Errorf("Run = %v in a build where ucx is in: %v", err, ucx.Built)
	}
}

// sends is a stream that keeps what is sent.
type sends struct {
	driveStream
	list []*moverv1.DriveRequest
}

func (s *sends) Send(r *moverv1.DriveRequest) error {
	s.list = append(s.list, r)
	return nil
}

// TestAStuckMoverEnds: what came before is told, what comes after is not, and the error ends the process.
func TestAStuckMoverEnds(t *testing.T) {
	s := &sends{}
	err := (&teller{stream: s}).tell([]ucx.Event{ucx.Sent{ID: ucx.ID{1}, Place: 2}, ucx.Stuck{}, ucx.Drained{ID: ucx.ID{1}}})
	if errs.KindOf(err) != errs.Unavailable || err == nil {
		t.Errorf("tell = %v, want unavailable", err)
	}
	if len(s.list) != 1 || s.list[0].GetSent().GetPlace() != 2 {
		t.Errorf("told %v, want the page that was sent", s.list)
	}
}
