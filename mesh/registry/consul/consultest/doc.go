// Package consultest runs a real Consul server for tests: one server on loopback, with ports and a data directory of its
// own, that can be killed and started again.
package consultest
