// Package rpc is the one place where gRPC is set up: the interceptor chain of every server and its mirror in every client.
//
// A server's chain, from the outside: statistics (otel), recovery (a panic becomes Internal), errors (package errs becomes
// a status; what the text of an Internal error hides from the caller is logged here, once), authorisation by full method
// name. A client's chain turns a status back into a marked error.
package rpc
