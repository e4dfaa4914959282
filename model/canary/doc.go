// Package canary makes a model that repeats what it is asked to, and the prompts to ask it with, so that whoever reads
// an answer knows what it must be, and whose it is if it is wrong.
//
// # The model
//
// A llama of two layers with constructed weights: one head of 64 dimensions, vocabulary 512, rope.freq_base 1e20, zero
// MLPs. With that base, pairs 0..11 of a head turn with the position (each 4.2 times slower than the one before: a
// clock), and pairs 12..31 stand still within 10^6 positions (content). Every token has a code of 40 random signs.
//
//   - Layer 1 finds the previous token: the query is constant on the clock, the key the same turned by one step, so all
//     the weight is on position i-1. The value is that token's code.
//   - Layer 2 finds what followed this token before: the query is the token's own code, the key the previous token's.
//     The value is the code of the token that stands there.
//   - The output matrix is the code book.
//
// So the model answers a token with the token that came after it, wherever in the context that is. A and the filler
// tokens have no code in layer 2's values: they can be found, and say nothing. A token that stands before a filler in
// one place and before a marker in another is therefore answered with the marker, whatever the distances.
//
// # The prompt
//
//	A f1..f8 m1  filler  m1 m2..m8 b1  filler  b1 b2..b8 A
//
// The answer is f1..f8 m1..m8 b1..b8: the front, the middle (on a page that changes with the seed) and the end of the
// prompt, in one generation. A is common to all; every other token, filler included, is of the tenant's own range, so a
// token says whose prompt it came from. A worker that reads another tenant's pages repeats that tenant's chain.
//
// Everything here is a pure function of its arguments.
package canary
