package router

import (
	"leasehold.dev/mesh/audit"
	"leasehold.dev/protos/receipt"
	issue "leasehold.dev/router/receipt"
)

// auditHead gives receipts the newest signed head of the log; nil without a log.
func auditHead(l *audit.Log) issue.Head {
	if l == nil {
		return nil
	}
	return func() *receipt.Head {
		h, ok := l.Head()
		if !ok {
			return nil
		}
		return &receipt.Head{Sequence: h.Seq, Hash: h.Hash[:]}
	}
}
