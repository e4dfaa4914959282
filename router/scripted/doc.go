// Package scripted is workers for tests of the router: real gRPC servers that speak the protos, answer rightly unless
// told otherwise, and fail when a test says so. The real workers run in integration/.
package scripted
