// Package identity proves which service and instance is at the other end of a connection.
package identity
