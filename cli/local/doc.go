// Package local runs a whole mesh on one host, as separate processes: brokers, prefill and decode workers, a router, and
// an embedded registry in this process unless a Consul is given.
//
// `leasehold up` is its user, and so are the scenario tests: what they start is what a person starts. A [Mesh] owns the
// processes that it started; Stop ends them all, and so does the end of this process.
package local
