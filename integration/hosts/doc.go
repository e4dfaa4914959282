// Package hosts puts brokers and their workers on hosts of their own and breaks what is between them.
//
// A [Host] is a network namespace on one [Network], a bridge. Its link takes a bandwidth (tc's tbf), a loss, a black hole
// or resets (nftables), and a delay, which a relay in this process makes: it is the one thing that a kernel without netem
// cannot do. Links have packets of the wire's size, so that a loss of one in a hundred is of packets, not of bursts.
//
// All of it is inside namespaces that [Main] makes before any test runs. Nothing of the machine's own network is seen or
// changed, and the kernel takes everything back with the last process, however that ends.
package hosts
