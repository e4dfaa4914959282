package history

import (
	"time"

	"leasehold.dev/mesh/audit"
	"leasehold.dev/mesh/audit/event"
	"leasehold.dev/protos/errs"
)

// stay is one tenant's time on one page.
type stay struct {
	of      *tenure
	page    uint32
	begun   uint64 // record
	cleared uint64 // record; 0: not yet
	late    bool   // the page was written after its owner had promised not to
}

// tenure is one lease.
type tenure struct {
	broker    *broker
	instance  string
	lease     string
	tenant    string
	admission string
	granted   time.Time
	stays     []*stay
	on        map[uint32]bool
	ended     string // released, handed-over or quarantined; "": not yet
	proven    bool   // of a quarantined one
}

// broker is one broker's log so far.
type broker struct {
	name     string
	instance string
	pages    map[uint32][]*stay // of this instance
	leases   map[string]*tenure // of this instance
}

// request is one request, as routers tell it.
type request struct {
	id         string
	tenant     string
	first      time.Time // of its admissions
	last       time.Time
	admissions []event.Admission
	response   *event.Response // nil: the router did not live to say
	ended      time.Time
}

// History is what is known. The zero value knows nothing. It is not safe for concurrent use.
type History struct {
	brokers  map[string]*broker
	used     map[string][]*tenure // by admission
	requests map[string]*request
	order    []*request
}

// Add takes the next record of a log. Kinds that say nothing about pages or responses are passed over; Invalid: a record of
// another version, or one that its log contradicts.
func (h *History) Add(r *audit.Record) error {
	switch r.Kind {
	case audit.KindOpened, audit.KindTorn, audit.KindRemoved, audit.KindLost, audit.KindClosed:
		return nil
	}
	e, err := event.Decode(r.Kind, r.Fields)
	if err != nil {
		return err
	}
	if h.brokers == nil {
		h.brokers, h.used, h.requests = map[string]*broker{}, map[string][]*tenure{}, map[string]*request{}
	}
	switch e := e.(type) {
	case event.BrokerStarted:
		h.brokers[r.Instance] = &broker{name: r.Instance, instance: e.Instance, pages: map[uint32][]*stay{}, leases: map[string]*tenure{}}
	case event.LeaseGranted:
		return h.onBroker(r, func(b *broker) error { return h.granted(b, r, e) })
	case event.LeaseOwned:
		return h.onBroker(r, func(b *broker) error { return b.owned(r, e) })
	case event.Lease:
		return h.onBroker(r, func(b *broker) error { return b.changed(e) })
	case event.PagesZeroed:
		return h.onBroker(r, func(b *broker) error { b.zeroed(r.Seq, e.Pages); return nil })
	case event.LateWrite:
		return h.onBroker(r, func(b *broker) error { b.late(e.Page); return nil })
	case event.Admission:
		if e.Internal {
			return nil
		}
		q := h.request(e.Request, e.Tenant)
		if q.first.IsZero() {
			q.first = r.Time
		}
		q.last = r.Time
		q.admissions = append(q.admissions, e)
	case event.Response:
		q := h.request(e.Request, e.Tenant)
		q.response, q.ended = &e, r.Time
	}
	return nil
}

func (h *History) request(id, tenant string) *request {
	q := h.requests[id]
	if q == nil {
		q = &request{id: id, tenant: tenant}
		h.requests[id] = q
		h.order = append(h.order, q)
	}
	return q
}

// onBroker gives f the broker whose log r is in. A log whose beginning rotation has removed begins in the midst of an instance.
func (h *History) onBroker(r *audit.Record, f func(*broker) error) error {
	b := h.brokers[r.Instance]
	if b == nil {
		b = &broker{name: r.Instance, instance: "unknown", pages: map[uint32][]*stay{}, leases: map[string]*tenure{}}
		h.brokers[r.Instance] = b
	}
	return f(b)
}

func (h *History) granted(b *broker, r *audit.Record, e event.LeaseGranted) error {
	if b.leases[e.Lease] != nil {
		return errs.New(errs.Invalid, "record %d of broker %s grants lease %.12s a second time", r.Seq, b.name, e.Lease)
	}
	t := &tenure{broker: b, instance: b.instance, lease: e.Lease, tenant: e.Tenant, admission: e.Admission, granted: r.Time, on: map[uint32]bool{}}
	b.leases[e.Lease] = t
	h.used[e.Admission] = append(h.used[e.Admission], t)
	b.settle(t, r.Seq, e.Pages)
	return nil
}

// settle begins stays on pages where the lease has none yet.
func (b *broker) settle(t *tenure, seq uint64, pages event.Pages) {
	for _, p := range pages {
		if t.on[p.Number] {
			continue
		}
		s := &stay{of: t, page: p.Number, begun: seq}
		t.on[p.Number] = true
		t.stays = append(t.stays, s)
		b.pages[p.Number] = append(b.pages[p.Number], s)
	}
}

// owned brings the pages that a handover gave.
func (b *broker) owned(r *audit.Record, e event.LeaseOwned) error {
	if t := b.leases[e.Lease]; t != nil {
		b.settle(t, r.Seq, e.Pages)
	}
	return nil
}

func (b *broker) changed(e event.Lease) error {
	t := b.leases[e.Lease]
	if t == nil { // granted in a file that rotation has removed
		return nil
	}
	switch e.As {
	case event.KindLeaseReleased:
		t.ended = "released"
	case event.KindLeaseHandedOver:
		t.ended = "handed over"
	case event.KindLeaseQuarantined:
		t.ended = "quarantined"
	case event.KindLeaseProven:
		t.proven = true
	}
	return nil
}

// zeroed ends what is left of every stay before.
func (b *broker) zeroed(seq uint64, pages event.Pages) {
	for _, p := range pages {
		all := b.pages[p.Number]
		for i := len(all) - 1; i >= 0 && all[i].cleared == 0; i-- {
			all[i].cleared = seq
		}
	}
}

// stays are all on the page of s, in the instance of s.
func (b *broker) stays(s *stay) []*stay { return b.pages[s.page] }

func (b *broker) late(page uint32) {
	if all := b.pages[page]; len(all) > 0 {
		all[len(all)-1].late = true
	}
}
