// Package records keeps the last lease records of a broker: what the router's reconciler holds against the workers' words.
package records

import (
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// Ring keeps the newest records under sequence numbers that count from 1 without a hole. What falls out is seen by a reader
// as a hole. It has no lock: its owner has.
type Ring struct {
	kept []*brokerv1.LeaseRecord // of number n at (n-1) % size
	size uint64
	head uint64 // highest number so far
}

// New keeps up to size records, at least 1.
func New(size int) *Ring { return &Ring{size: uint64(max(size, 1))} }

// Add numbers r, which belongs to the ring from now on and is not changed any more.
func (g *Ring) Add(r *brokerv1.LeaseRecord) {
	g.head++
	r.Seq = g.head
	if uint64(len(g.kept)) < g.size {
		g.kept = append(g.kept, r)
		return
	}
	g.kept[(g.head-1)%g.size] = r
}

// Head is the highest number so far; 0: none.
func (g *Ring) Head() uint64 { return g.head }

// After is up to most records that follow number after, oldest first: those that are still kept. It is Stale when no record
// of that number was ever made here.
func (g *Ring) After(after uint64, most int) ([]*brokerv1.LeaseRecord, error) {
	if after > g.head {
		return nil, errs.New(errs.Stale, "records: number %d was never given, the highest is %d", after, g.head)
	}
	first := after + 1
	if g.head > g.size {
		first = max(first, g.head-g.size+1)
	}
	var out []*brokerv1.LeaseRecord
	for n := first; n <= g.head && len(out) < most; n++ {
		out = append(out, g.kept[(n-1)%g.size])
	}
	return out, nil
}
