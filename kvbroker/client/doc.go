// Package client is a worker's half of the KV broker: it attaches to the broker of its host, maps the page pool, and
// holds leases on pages.
//
// # Life
//
// [Attach] connects to the attach socket, receives the pool's and the tags' descriptors and a handle, and dials the
// worker socket. The handle dies with the broker, or with either socket: [Client.Done] is closed then, every lease is
// revoked, and nothing of this client becomes usable again. The worker stops its engine's pool, calls [Client.Close]
// (which unmaps) and attaches anew; page tables built over the old mapping die with it.
//
// # Duties of the worker
//
//   - Touch a page only while its lease lives, and only through the mapping of the client that granted it.
//   - After [Lease.Revoked] is closed: stop the sequence, close it in the engine, then [Lease.Retire].
//   - Retire every lease, however it ended, and only when no kernel will touch its pages again. It is the proof that
//     lets the broker clear them; until then they stay in quarantine, charged to their tenant.
//   - A destination's pages can be read only through an [Owned], and only [Lease.AwaitOwned] makes one.
//   - What was computed from them leaves the worker only after [Lease.AwaitSettled], and the lease is retired after it.
//
// All methods may be called concurrently. Errors carry a kind of package errs.
package client
