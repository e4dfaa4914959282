// Package layout says how a KV page is arranged in memory, and which back ends agree on it.
//
// A page holds 64 tokens of all layers. What a page means is in its [Layout]; two sides that exchange pages compare
// the layout's hash, the weights' revision and the numerics class before the first byte moves.
package layout
