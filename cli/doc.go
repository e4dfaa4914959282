// Package cli is the command `leasehold`: up, chat, models, ps.
//
// `up` runs a mesh on this host and writes where it is (state.json in its folder, readable by its user alone); the other
// commands read that, or take an address and a key.
package cli
