// Package identity proves which service and instance is at the other end of a connection.
//
// Every process has a certificate for spiffe://leasehold/SERVICE/ID, signed by the mesh's CA. Both ends of a connection
// present theirs (TLS 1.3) and both verify chain, usage, trust domain and the form of the id; a client also requires the
// service and instance it meant to reach, since a registry may be wrong. What a verified caller may do is not decided here
// but by method, in package rpc.
//
// The files are looked at again at each handshake and by [Identity.Check], so that a renewed certificate is used without
// a restart; while the new files do not fit together, the old ones stay.
//
// [Plain] is for a run on one host without certificates: plain text, refused as soon as either end is not on loopback.
package identity
