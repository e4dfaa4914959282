package replay

import (
	"context"

	claims "leasehold.dev/protos/receipt"
	"leasehold.dev/router/receipt"
)

// Reported runs the request of a reported receipt again, and says one of package receipt's Replay words. ids and stop
// have the digests that c has.
func (a *Auditor) Reported(ctx context.Context, c *claims.Claims, ids []int32, stop []string) string {
	j := &Job{Receipt: receipt.ID(c.ID).String(), Tenant: c.Tenant, IDs: ids, Sampling: receipt.Sampling(c, stop), MaxNew: c.Sampling.MaxNew,
		New: c.Tokens.Completion, Numerics: c.Numerics, Output: c.OutputDigest, Logits: c.LogitDigest,
		Pair: Pair{Prefill: c.Workers.Prefill, Decode: c.Workers.Decode, PrefillInstance: string(c.Instances.Prefill), DecodeInstance: string(c.Instances.Decode)}}
	switch a.Now(ctx, j) {
	case Equal:
		return receipt.ReplayEqual
	case Different, Broken:
		return receipt.ReplayDifferent
	}
	return receipt.ReplayNotRun
}
