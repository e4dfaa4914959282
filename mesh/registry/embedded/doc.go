// Package embedded is the registry of a run on one host without Consul: a server ([Server], in a process of its own or in
// `leasehold up`) and its client ([Client]).
//
// The server keeps nothing on disk. When it restarts, the clients' next beats tell it everything again, and until they
// have, watchers keep the instances that they knew.
package embedded
