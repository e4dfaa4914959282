package cli

import (
	"fmt"
	"os"
	"path/filepath"

	"leasehold.dev/model/canary"
	"leasehold.dev/protos/errs"
)

type canaryModelCommand struct {
	Context uint32 `help:"Context length in tokens." default:"8192"`
	Out     string `arg:"" help:"File to write; one that is there is replaced." placeholder:"FILE" type:"path"`
}

// Run writes the file, all of it or nothing.
func (c *canaryModelCommand) Run(s streams) error {
	data, err := canary.File(c.Context)
	if err != nil {
		return errs.New(errs.Invalid, "--context: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(c.Out), "."+filepath.Base(c.Out)+".*")
	if err != nil {
		return fmt.Errorf("canary model: %w", err)
	}
	_, err = f.Write(data)
	if shut := f.Close(); err == nil {
		err = shut
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), c.Out)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // what went wrong before says more
		return fmt.Errorf("canary model: %w", err)
	}
	s.sayf("%s: %d bytes, context %d tokens", c.Out, len(data), c.Context)
	return nil
}
