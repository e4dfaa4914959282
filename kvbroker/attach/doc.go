// Package attach is the unix socket on which a worker process is bound to the broker of its host.
//
// One message goes each way over SOCK_SEQPACKET: the worker says who it is ([Request]), the broker answers with an
// [Offer] and, by SCM_RIGHTS, the descriptors of the pool and of the tags. The connection then stays open and silent;
// its end, on either side, ends the handle.
//
// A broker of the same host that moves pages by shared memory attaches too, as a reader: it gets the pool alone, opened for
// reading. What its exit proves is the same.
//
// A mover process of the broker attaches like a worker, under a name of its own kind.
//
// Three things are known of every accepted worker before it gets a descriptor: its uid is on the allow-list
// (SO_PEERCRED), the directory of the socket is the broker's own and 0700, and there is a pidfd of the very process
// that connected (SO_PEERPIDFD: no pid can be reused in between). Without a pidfd nobody could say later that the
// process is gone, so such an attach is refused.
//
// The two ends of a worker are different facts. [Conn.Closed] only says that nobody will answer any more: the process
// may still have the pool mapped. [Conn.Exited] says that the process is gone, and with it every writer and reader in
// it.
package attach
