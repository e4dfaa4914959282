// Package rdma looks at a host as the ucx mover will find it: RDMA devices and their ports, the memory that may be locked,
// what RoCE needs of the network interface, how near device and memory are, and whether GPU memory can be registered. It
// reads files of /sys and /proc and nothing else, so that it can be held against a recorded tree.
//
// What it cannot see is said in docs/rdma.md: switch settings, the other host, and whether bytes flow.
package rdma
