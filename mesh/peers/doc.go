// Package peers keeps connections to the instances of a service.
package peers
