// Package explore searches every history of a small mesh, breadth first, over the cores that ship: the lease table
// (package lease) of each broker, both ends of each transfer (package transfer, with its roots and MACs), and the router's
// comparison of verdicts (package verdict). It is not a model beside them: the world calls their Step and carries out their
// effects, as the brokers' shell does.
//
// # The world
//
// Two brokers with 2 to 4 pages each, a prefill and a decode worker, a router, requests of two tenants. What is not a core
// is written here, small, by the duties that lease/doc.go and server/doc.go state: ids are minted once, tags are written
// before anything else of a step, movers are counted before the first byte and after the last, digests are taken from pages
// that have landed, and from pages at rest before a token leaves. A page holds a word about what was written to it, by whom and for which place, instead of KV; its digest is a
// function of that word.
//
// Everything that waits is an action of its own: a kernel that has passed its tag check and has not written yet, a message
// between processes, the clearing of a page, the news of a process's end. Any action that is possible may be next. Upsets are
// actions too, but a history has only so many ([Plan].Upsets): a message lost, doubled, overtaken or flipped, a stream
// cut, an answer lost, a timer, a cancel, a socket broken, a worker or broker killed (each starts again when it likes), a
// page reported that was never written.
//
// # Checks
//
// In every state: no page can be read by a lease that does not own it, or by two tenants; no page is free or being cleared
// while a process or a mover could still touch it, from the world's point of view and not the table's; ended leases' pages and
// free ones are Nobody's; free pages are zero; every page is accounted for once, and every tenant's charge is the sum of its
// leases; nothing is granted over the quarantine's cap. At a success: the receiver has verified a Completion, and each page
// holds what its place must hold, now and when decode reads it. From every state: when everybody does what is left to do,
// deadlines pass and processes end, the pools are at their baseline.
//
// # States
//
// Histories are replayed from the root; states are told apart by a fingerprint of all that decides what comes next. Two
// states that differ only in which page has which number, or in the numbers of slots and generations, are one. Ids are
// random where the cores ship; here each is a function of what it is for, so that equal histories have equal ids.
//
// # Seeded bugs
//
// A [Bug] stands between the world and a core and does what a broken broker would. Each must be found: a search that cannot
// find them says nothing.
package explore
