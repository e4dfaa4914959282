// Package sample chooses the next token from a row of logits.
//
// A choice is a pure function of (parameters, prompt ids, ids chosen so far, logits, position): no clock, no global
// state, no random source but the counter-based one of [Uniform]. So a request that is run again elsewhere, in the same
// numerics class, chooses the same tokens.
//
// # Order
//
//	l  raw logits                                   what logprobs are taken from
//	l += bias[id]
//	l  = l > 0 ? l / repetition : l * repetition    ids of prompt and answer
//	l -= frequency * count + presence               ids of the answer
//	temperature 0: the greatest l, the lowest id among equals
//	z  = (l - max l) / temperature, w = exp(z), 0 where z < -40
//	top_k   the k greatest, lower ids first among equals
//	top_p   the shortest run of the greatest whose w reach top_p of what top_k left
//	min_p   those with w >= min_p of the greatest w
//	draw    u = Uniform(seed, position); the first survivor in id order whose running sum of w is over u * sum, sums being
//	        taken by blocks of 1024 ids
//
// Survivors are walked in id order, so that a filter that takes nothing away changes no choice.
package sample
