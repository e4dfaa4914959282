// Package registry says where the instances of a service are.
//
// Two implementations keep the same contract, checked by one suite (registrytest): registry/consul, and
// registry/embedded for a run on one host. Which one is used is a URL; see package discover.
package registry
