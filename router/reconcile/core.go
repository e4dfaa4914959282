package reconcile

import (
	"encoding/hex"
	"fmt"
	"time"

	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

// Config bounds a core.
type Config struct {
	Patience time.Duration // how long a half may be missing
	Open     int           // most admissions that wait for something
}

// Default suits a mesh whose brokers are heard of every second.
var Default = Config{Patience: 30 * time.Second, Open: 1 << 15}

// Match is an admission of this router's that was answered, and of which all views agree.
type Match struct{ Prefill, Decode string } // workers; Prefill is empty when unsplit

// Result is what a step found, in a fixed order.
type Result struct {
	Findings []Finding
	Matches  []Match
}

// Core is the state of a reconciler.
type Core struct {
	cfg     Config
	open    map[string]*entry
	order   []*entry // oldest first; closed ones are skipped
	streams map[string]stream
}

// stream is where a broker's records stand.
type stream struct {
	instance string
	last     uint64
}

// half is a broker's record of one side.
type half struct {
	broker, instance string
	*brokerv1.LeaseRecord
}

type entry struct {
	id       string
	since    time.Time
	view     *View
	answered bool
	p, d     *half
	closed   bool
}

// New makes an empty core.
func New(c Config) *Core {
	return &Core{cfg: c, open: map[string]*entry{}, streams: map[string]stream{}}
}

// Open is how many admissions wait.
func (c *Core) Open() int { return len(c.open) }

// Last is the number of the last record of a broker, and of which instance: where to follow on.
func (c *Core) Last(broker string) (instance string, seq uint64) {
	s := c.streams[broker]
	return s.instance, s.last
}

// Step takes one event.
func (c *Core) Step(ev Event) Result {
	r := &Result{}
	switch ev := ev.(type) {
	case Decided:
		c.decided(r, ev)
		c.expire(r, ev.At)
	case Recorded:
		c.recorded(r, ev)
		c.expire(r, ev.At)
	case Tick:
		c.expire(r, ev.At)
	}
	return *r
}

func (r *Result) find(field string, e *entry, broker, got, want string) {
	id := ""
	if e != nil {
		id = hex.EncodeToString([]byte(e.id))
	}
	r.Findings = append(r.Findings, Finding{field, id, broker, got, want})
}

// at is the entry of an admission; the oldest gives way when there are too many. That is a finding when it was an answered
// one of ours; the records of another router's are dropped, and should ours come after all, a half will be missing.
func (c *Core) at(r *Result, id string, now time.Time) *entry {
	if e := c.open[id]; e != nil {
		return e
	}
	for len(c.open) >= max(c.cfg.Open, 1) {
		old := c.oldest()
		if old.answered {
			r.find(FieldOverflow, old, "", fmt.Sprint(len(c.open)), fmt.Sprintf("at most %d open", c.cfg.Open))
		}
		c.close(old)
	}
	e := &entry{id: id, since: now}
	c.open[id] = e
	c.order = append(c.order, e)
	return e
}

func (c *Core) oldest() *entry {
	for len(c.order) > 0 && c.order[0].closed {
		c.order = c.order[1:]
	}
	if len(c.order) == 0 {
		return nil
	}
	return c.order[0]
}

func (c *Core) close(e *entry) {
	e.closed = true
	delete(c.open, e.id)
	if len(c.order) > 2*len(c.open)+64 { // mostly closed ones: keep the list in proportion to what is open
		kept := make([]*entry, 0, len(c.open))
		for _, o := range c.order {
			if !o.closed {
				kept = append(kept, o)
			}
		}
		c.order = kept
	}
}

func (c *Core) decided(r *Result, ev Decided) {
	e := c.at(r, string(ev.View.Admission.GetId()), ev.At)
	e.view, e.answered = &ev.View, ev.Answered
	if ev.Answered {
		e.since = ev.At
	}
	c.look(r, e)
}

func (c *Core) recorded(r *Result, ev Recorded) {
	s, known := c.streams[ev.Broker]
	if s.instance != ev.Instance {
		s = stream{instance: ev.Instance}
	}
	for _, rec := range ev.Records {
		switch {
		case rec.GetSeq() <= s.last:
			r.find(FieldOrder, nil, ev.Broker, fmt.Sprint(rec.GetSeq()), fmt.Sprintf("more than %d", s.last))
			continue
		case rec.GetSeq() != s.last+1 && (known || s.last > 0): // at the first contact with a broker nobody knows what was before
			r.find(FieldGap, nil, ev.Broker, fmt.Sprint(rec.GetSeq()), fmt.Sprint(s.last+1))
		}
		s.last = rec.GetSeq()
		if len(rec.GetAdmissionId()) != proof.IDSize {
			r.find(FieldOrder, nil, ev.Broker, fmt.Sprintf("an id of %d bytes", len(rec.GetAdmissionId())), fmt.Sprint(proof.IDSize))
			continue
		}
		c.take(r, c.at(r, string(rec.AdmissionId), ev.At), &half{ev.Broker, ev.Instance, rec})
	}
	c.streams[ev.Broker] = s
}

// take files a half. A broker that is asked again for one admission after a failure records a half that had no lease first.
func (c *Core) take(r *Result, e *entry, h *half) {
	to := &e.d
	if h.GetRole() == brokerv1.Role_ROLE_SOURCE {
		to = &e.p
	}
	if old := *to; old != nil && old.GetCode() == 0 {
		r.find(FieldRepeat, e, h.broker, hex.EncodeToString(h.GetLeaseHash()), hex.EncodeToString(old.GetLeaseHash()))
		return
	}
	*to = h
	c.look(r, e)
}

// split reports whether the admission has a P. Without the router's view the halves themselves say so.
func (e *entry) split() bool {
	if e.view != nil {
		return e.view.Admission.GetMover() != meshv1.Mover_MOVER_NONE
	}
	return e.p != nil || e.d.GetRole() == brokerv1.Role_ROLE_DESTINATION
}

// look compares what is there once nothing more has to come.
func (c *Core) look(r *Result, e *entry) {
	switch {
	case e.view != nil && !e.answered: // only a half that went well against one that did not is of interest, when both are here
		if e.p != nil && e.d != nil {
			c.close(e)
			halves(r, e)
		}
		return
	case e.view == nil, e.d == nil, e.split() && e.p == nil:
		return // something may still come
	}
	c.close(e)
	before := len(r.Findings)
	if e.split() {
		halves(r, e)
		whole(r, e)
	} else {
		alone(r, e)
	}
	if len(r.Findings) == before {
		r.Matches = append(r.Matches, Match{e.view.Admission.GetPrefill(), e.view.Admission.GetDecode()})
	}
}

// expire closes what has waited for too long.
func (c *Core) expire(r *Result, now time.Time) {
	for {
		e := c.oldest()
		if e == nil || now.Sub(e.since) < c.cfg.Patience {
			return
		}
		c.close(e)
		switch {
		case e.view != nil && e.answered:
			if e.d == nil {
				r.find(FieldDecodeMissing, e, e.view.Admission.GetDecodeBroker(), "no record", "one within "+c.cfg.Patience.String())
			}
			if e.split() && e.p == nil {
				r.find(FieldPrefillMissing, e, e.view.Admission.GetPrefillBroker(), "no record", "one within "+c.cfg.Patience.String())
			}
			if e.p != nil && e.d != nil {
				halves(r, e)
			}
		case e.p != nil && e.d != nil: // another router's
			halves(r, e)
		}
	}
}
