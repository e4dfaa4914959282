// Package pagesum defines the digest of a KV page and of a logits row.
//
// A row is one (token, layer, K or V, kv head) vector: head_dim elements, little endian, in logical order. The
// definition knows nothing of how a back end arranges a page, so a page keeps its digest when it moves to another
// layout; a verifier gathers the rows.
//
// With W = head_dim*elemBytes/4 words w[0..W) of a row, and lane L in {0, 1}:
//
//	NH_L(row) = sum over even i of (w[i]+nh[i+2L] mod 2^32) * (w[i+1]+nh[i+1+2L] mod 2^32)   mod 2^64
//	digest_L  = sum over written rows of key_L(row index) * NH_L(row)                        mod 2^64
//
// Row indices are ((t*layers + layer)*2 + kv)*kv_heads + head, t the token's place in the page, kv 0 for K and 1 for V.
// key_0 is the row's odd key, key_1 = rotl(key_0, 32) | 1. A digest is lane 0 and lane 1, little endian. The sum has no
// order, so whatever writes rows can add them as it goes; rows that were not written add nothing.
//
// Keys are the words, little endian, of SHA-256("leasehold/pagesum/v1" || layout hash || revision || counter), counter
// = 0, 1, ... as 32 bits little endian: first W+2 NH words, then 64*layers*2*kv_heads row keys (64 bits, |1).
//
// A logits row is digested alike: NH over the float bits in blocks of 1024 words, zero padded, block i times an odd
// key. Its keys come from SHA-256("leasehold/logits/v1" || counter): 1026 NH words, then a key for each block.
//
// It is NH (UMAC, RFC 4418) with keys that are no secret: it finds faults, not forgers.
package pagesum
