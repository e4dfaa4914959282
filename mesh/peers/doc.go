// Package peers keeps one connection and one circuit breaker to each instance of a service.
//
// A [Set] follows the registry. A peer that left keeps its connection for a grace time, so that its running calls can
// end; one that comes back meanwhile, at the same address, keeps its connection. A breaker counts only errors of kind
// Unavailable and Internal; a call that its caller gave up says nothing about the peer and is not counted.
package peers
