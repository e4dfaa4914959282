package receipt

import (
	"leasehold.dev/protos/receipt"
)

// Issuer is what the edge needs of this package.
type Issuer struct {
	Ring  *Ring
	Store *Store
	Desk  *Desk
	Head  Head // nil: no audit log is kept
}

// Sign is the receipt of c, with the audit log's head in it. c is the caller's and is changed.
func (i *Issuer) Sign(c *receipt.Claims) (string, error) {
	if i.Head != nil {
		c.Audit = i.Head()
	}
	return i.Ring.Sign(c)
}
