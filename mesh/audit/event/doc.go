// Package event is what the services of the mesh write into their audit logs: one struct a kind, with the JSON that is in
// a record's fields. The kinds are a closed set, and [Decode] knows all of them.
//
// A lease and an attach handle are secrets of their holders, so a lease is named by its SHA-256, in hex, as in verdicts
// (package proof). An admission is named by its id in hex. Nothing here holds text of a tenant's: reasons are the errors'
// texts, which hold numbers only, clipped to [MaxReason] bytes.
package event
