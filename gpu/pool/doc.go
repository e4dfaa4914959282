// Package pool is the memory that holds KV pages, and the tags that say whose they are.
//
// A broker owns a [Pool]: two memfds. Page memory is shared writable with the workers of the host; its size is sealed.
// The tag array is sealed against every future write after the broker's own mapping was made, so that no holder of the
// descriptor can get a writable view of it, the broker included; the broker writes through the mapping that it has.
//
// A worker makes a [Mapping] of the two descriptors that it was passed. It checks sizes and seals first: a pool that
// could shrink under it, or tags that somebody else could write, are refused.
//
// What the seals do not give: a worker can write any page of the pool, and punch holes in it. The tags tell kernels
// which pages are theirs; they are no fence against a worker's own code.
package pool
