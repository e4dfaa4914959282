package explore

import (
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/kvbroker/transfer"
)

// Bug is a mistake that somebody could make, put between the world and the cores. The zero value is none.
type Bug uint8

// The bugs.
const (
	NoBug       Bug = iota
	TimerFrees      // a timer speaks for the worker and the movers of the lease that it ends
	LateTag         // the tags of an end are written with the broker's next step, not before all else of their own
	CopiedCount     // the receiver takes the rows that it expects for those that it found
	ReusedID        // lease ids and attach handles start anew with the broker
	EpochProof      // a worker that attaches anew is taken for proof that its earlier handle's kernels are done

	bugs = int(EpochProof) + 1
)

var bugNames = [bugs]string{"none", "timer frees", "late tag", "copied count", "reused id", "proof from an epoch"}

// String names the bug.
func (g Bug) String() string { return bugNames[g] }

// events is what the broker steps instead of ev.
func (g Bug) events(b *broker, ev lease.Event) []lease.Event {
	out := []lease.Event{ev}
	switch ev := ev.(type) {
	case lease.Expire:
		if i, ok := b.table.Get(ev.Lease); ok && g == TimerFrees {
			for range i.Movers {
				out = append(out, lease.PullEnded{Lease: ev.Lease})
			}
			out = append(out, lease.Retired{Ref: lease.Ref{Lease: ev.Lease, Attach: i.Attach, Epoch: i.Epoch}, Reason: "expired"})
		}
	case lease.Attached:
		for _, h := range b.handles {
			if g == EpochProof && workerName(h.worker) == ev.Worker {
				out = append(out, lease.WorkerGone{Attach: h.attach})
			}
		}
	}
	return out
}

// effects is what the broker carries out instead.
func (g Bug) effects(b *broker, effects []lease.Effect) []lease.Effect {
	if g != LateTag || len(effects) < 2 {
		return effects
	}
	tags, first := effects[0].(lease.WriteTags)
	end, ends := effects[1].(lease.Record)
	if first && ends && (end.Kind == lease.WasReleased || end.Kind == lease.WasQuarantined) {
		b.late = append(b.late, tags.Tags...)
		return effects[1:]
	}
	return effects
}

// found is what the receiver computes from a page at rest.
func (g Bug) found(c content, want uint32) transfer.Found {
	f := transfer.Found{Digest: c.digest(want), Nonzero: c.rows(want)}
	if g == CopiedCount {
		f.Nonzero = want
	}
	return f
}

// lease mints an id.
func (g Bug) lease(b *broker, req uint8, role lease.Role) lease.ID {
	if g == ReusedID {
		return name16('L', b.id, uint8(len(b.spent)))
	}
	return name16('L', b.id, b.inc, req, uint8(role))
}

// attach mints a handle.
func (g Bug) attach(b *broker, k int, n *worker) lease.Attach {
	if g == ReusedID {
		return name16('A', b.id, uint8(k), uint8(b.epoch))
	}
	return name16('A', b.id, b.inc, uint8(k), n.process, n.attaches)
}
