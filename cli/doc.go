// Package cli is the command `leasehold`: up, chat, models, ps, canary, verify, rotate-receipt-key, audit.
//
// `up` runs a mesh on this host and writes where it is (state.json in its folder, readable by its user alone); the other
// commands read that, or take an address and a key.
//
// The folder of a run is claimed before it is emptied: a lock file marks it as up's own, so another run's or a person's
// folder is refused. It is removed at the end, but when the run failed its logs stay.
package cli
