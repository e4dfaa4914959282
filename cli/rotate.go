package cli

import "leasehold.dev/router/receipt"

type rotateCommand struct {
	File string `arg:"" help:"The router's -receipt-key." type:"existingfile"`
}

// Run puts a new key into the file; the old public key stays, so that its receipts verify.
func (c *rotateCommand) Run(s streams) error {
	if err := receipt.Rotate(c.File); err != nil {
		return err
	}
	s.sayf("%s has a new key; a router signs with it after its next start", c.File)
	return nil
}
