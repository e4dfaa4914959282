package worker

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/protos/errs"
)

func TestFlagsAreRefusedByName(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	needed := []string{"-model", "none.gguf", "-broker-dir", "d", "-admission-key", key}
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"nothing", nil, "-model, -broker-dir and -admission-key are needed"},
		{"a negative promise", append(needed, "-promise", "-1"), "-promise is -1"},
		{"no chunk", append(needed, "-chunk", "0"), "-chunk is 0"},
		{"no sequence", append(needed, "-sequences", "0"), "-sequences is 0"},
		{"no queue", append(needed, "-queue", "0"), "-queue is 0"},
		{"a key file that is not there", []string{"-model", "m", "-broker-dir", "d", "-admission-key", "/nowhere"}, "admission key: "},
		{"a key file that holds no key", needed, "admission key: "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var c Config
			fs := flag.NewFlagSet("worker", flag.ContinueOnError)
			fs.SetOutput(io.Discard)
			c.Flags(fs)
			if err := fs.Parse(tt.args); err != nil {
				t.Fatal(err)
			}
			_, err := c.open()
			if err == nil || errs.KindOf(err) != errs.Invalid || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("open = %v, want invalid: %s...", err, tt.want)
			}
		})
	}
}

// The defaults are limits that a planner can work with.
func TestDefaultsWork(t *testing.T) {
	var c Config
	fs := flag.NewFlagSet("worker", flag.ContinueOnError)
	c.Flags(fs)
	if l := c.limits(); l.StepTokens <= l.Sequences || l.TenantRequests*2 > l.QueueRequests {
		t.Errorf("limits are %+v", l)
	}
}
