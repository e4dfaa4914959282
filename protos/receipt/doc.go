// Package receipt is the signed account of one answer: who asked (tenant, nonce), from what (prompt digest, model
// revision), how (sampling, numerics class, route), by whom (workers, leases as hashes, instances, epochs), what came out
// (output digest, logit digest, verified counts), and that both halves' views agreed.
//
// A receipt is a compact JWS (RFC 7515) with EdDSA over Ed25519 and type "leasehold-receipt+jws". [Sign] refuses claims
// that are not whole, so there is no receipt of a request that failed. [Keys.Verify] fails closed: every field is
// required, an unknown one is an error, and the payload must be byte for byte what this package writes of its claims, so
// nothing can be hidden in it. A change of the fields is a new [Version].
//
// No text is in a receipt. Stop strings are text, so only their digest is; see [StopDigest]. Whoever has the prompt, the
// stop strings and the receipt can run the request again and must get the same two digests, in the same numerics class.
package receipt
