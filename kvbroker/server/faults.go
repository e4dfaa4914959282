//go:build faults

package server

import (
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/protos/fault"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// faultyDeadline is the clock of a broker that runs ahead.
func faultyDeadline(t time.Time) time.Time {
	if fault.At(fault.BrokerDeadline) == fault.Truncate {
		return time.Now().Add(time.Duration(fault.N(fault.BrokerDeadline)) * time.Millisecond)
	}
	return t
}

// lateWrite changes a byte of a page, as somebody would who has the pool mapped.
func (b *Broker) lateWrite(page uint32, at int) {
	mem := b.pool.Page(page)
	mem[at%len(mem)] ^= 0x08
}

// lostArrival is asked about a page that has just arrived.
func (b *Broker) lostArrival(page uint32) bool {
	switch fault.At(fault.BrokerLanded) {
	case fault.Drop:
		return true
	case fault.LateWrite:
		b.lateWrite(page, fault.N(fault.BrokerLanded))
	}
	return false
}

// assumeArrived takes a transfer's good end for the arrival of all its pages: what a receiver does that counts nothing.
func (d *destination) assumeArrived() {
	for place := range d.expect.Pages {
		d.b.report(lease.Arrived{Lease: d.id, Place: place})
	}
}

// spoil is what happens to the pages of a lease that has just been finished. Callers hold mu.
func (p *parked) spoil() {
	first := p.b.pool.Page(p.pages[0].Page)
	switch fault.At(fault.BrokerSealed) {
	case fault.LateWrite:
		p.b.lateWrite(p.pages[0].Page, fault.N(fault.BrokerSealed))
	case fault.Reorder:
		last := p.b.pool.Page(p.pages[len(p.pages)-1].Page)
		if len(p.pages) > 2 {
			last = p.b.pool.Page(p.pages[1].Page)
		}
		for i := range first {
			first[i], last[i] = last[i], first[i]
		}
	}
}

// toRead is the page that is read for a place: another lease's, with mover/read reorder.
func (p *parked) toRead(place uint32) uint32 {
	page := p.pages[place].Page
	how := fault.At(fault.BrokerRead)
	if how != fault.Reorder && how != fault.Corrupt {
		return page
	}
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	for id, h := range p.b.held {
		if id == p.ref.Lease || h.src == nil || int(place) >= len(h.src.pages) || int(place) >= len(h.src.core.Sealed()) {
			continue
		}
		if how == fault.Corrupt {
			forgeries.Store(forgery{p, place}, h.src.core.Sealed()[place])
		}
		return h.src.pages[place].Page
	}
	return page
}

// forgery is a place of a Pull whose digest is to be another page's; forgeries has that digest.
type forgery struct {
	p     *parked
	place uint32
}

var forgeries sync.Map

// forge puts the digests of what was sent into a Completion that is sealed already.
func (p *parked) forge(c *brokerv1.Completion) *brokerv1.Completion {
	if c == nil {
		return nil
	}
	c = proto.Clone(c).(*brokerv1.Completion)
	for i := range c.Digests {
		if d, ok := forgeries.LoadAndDelete(forgery{p, uint32(i)}); ok {
			c.Digests[i] = d.([]byte)
		}
	}
	return c
}

// spoilBeforeClear fills a page with NaN, so that whoever reads it before it is written shows it.
func (b *Broker) spoilBeforeClear(page uint32) {
	if fault.At(fault.BrokerClear) != fault.Corrupt {
		return
	}
	mem := b.pool.Page(page)
	for i := range mem {
		mem[i] = 0xff
	}
}

// spoilAfterClear is a late writer, after its page was cleared and before it is free.
func (b *Broker) spoilAfterClear(page uint32) {
	if fault.At(fault.BrokerCleared) == fault.LateWrite {
		b.lateWrite(page, fault.N(fault.BrokerCleared))
	}
}
