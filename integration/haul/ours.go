package haul

import (
	"context"
	"time"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/kvbroker/transfer"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/pagesum"
	"leasehold.dev/protos/proof"
)

// Mover is one of ours, at both ends.
type Mover struct {
	// Serve answers Pulls of the pages at an address until ctx ends; end waits for all that reads pages.
	Serve func(ctx context.Context, o Options, s *Sources) (a Address, end func(), err error)
	// Dial gets ready for Pulls from that address.
	Dial func(ctx context.Context, o Options, a Address, to *Pages) (Puller, error)
}

// Puller opens one Pull a run.
type Puller interface {
	// Pull brings one admission's pages into their places and steps rx with all that comes, up to the Completion.
	Pull(ctx context.Context, open *brokerv1.PullOpen, rx *transfer.Receiver) (Pulled, error)
	Close() error
}

// Pulled is how a Pull ended.
type Pulled struct {
	Completion *brokerv1.Completion
	Landed     time.Time        // when the last byte was in its place
	Found      []transfer.Found // what lies in the pages, where the mover looked; nil: digest them now
	End        func() error     // waits for the sender's second look, which is not on the way to the first token
}

var movers = map[string]Mover{}

// register makes a mover known; it is called from init of the mover's file.
func register(name string, m Mover) { movers[name] = m }

// Has reports whether a mover of that name is here.
func Has(name string) bool {
	_, ok := movers[name]
	return ok
}

// Names that both sides of a run know each other by.
var (
	instanceP, instanceD = []byte("instance of p..."), []byte("instance of d...")
	revision             = make([]byte, 32)
)

const epoch = 7

// sides is what both ends know of the load's pages.
type sides struct {
	*Pages
	own  transfer.Broker // but for the instance
	keys *pagesum.Keys
}

func newSides(p *Pages) (sides, error) {
	l, err := p.Load.Layout()
	if err != nil {
		return sides{}, err
	}
	hash := l.Hash()
	return sides{p, transfer.Broker{Epoch: epoch, ModelRevision: revision, LayoutHash: hash[:], PageBytes: l.PageBytes()},
		pagesum.Expand(hash[:], revision, l.Shape())}, nil
}

// find digests a place as it is now.
func (s sides) find(place int) (transfer.Found, error) {
	l, err := s.Load.Layout()
	if err != nil {
		return transfer.Found{}, err
	}
	sum, nonzero, err := engine.PageSum(l, s.Place(place), pagesum.PageTokens, s.keys)
	return transfer.Found{Digest: sum, Nonzero: nonzero}, err
}

// Sources makes the sending side of Pulls. All pages are sealed.
type Sources struct {
	sides
	seals []lease.PageSeal
}

func newSources(p *Pages) (*Sources, error) {
	of, err := newSides(p)
	if err != nil {
		return nil, err
	}
	of.own.Instance = instanceP
	s := &Sources{sides: of}
	for i := range p.At {
		f, err := s.find(i)
		if err != nil {
			return nil, err
		}
		s.seals = append(s.seals, lease.PageSeal{Index: uint32(i), Rows: pagesum.PageTokens, Digest: f.Digest})
	}
	return s, nil
}

// Ours measures a mover under the name of its row.
func Ours(row, name string, o Options) Maker {
	return Maker{Name: row, Checked: "digest", Open: func(ctx context.Context, l Load) (_ Way, err error) {
		m, ok := movers[name]
		if !ok {
			return nil, errs.New(errs.NotFound, "missing: no mover is named %q", name)
		}
		w := &ours{}
		defer func() {
			if err != nil {
				_ = w.Close()
			}
		}()
		var a Address
		if w.source, a, err = startSending(ctx, sending{Kind: name, Load: l, Options: o}); err != nil {
			return nil, err
		}
		to, err := newPages(l, atDestination)
		if err != nil {
			return nil, err
		}
		w.landing = landing{to}
		if w.sides, err = newSides(to); err != nil {
			return nil, err
		}
		w.own.Instance = instanceD
		w.ids = make([]int32, l.Pages()*pagesum.PageTokens+1)
		w.puller, err = m.Dial(ctx, o, a, to)
		return w, err
	}}
}

// ours is a receiving broker's part of a transfer, run after run.
type ours struct {
	landing
	sides
	source *child
	puller Puller
	ids    []int32
}

func (w *ours) Clear(ctx context.Context) error { return w.landing.Clear(ctx) }
func (w *ours) Check(ctx context.Context) error { return w.landing.Check(ctx) }

// Run times from the opening of the Pull to the last byte's landing, and to the end of transfer.Verify.
func (w *ours) Run(ctx context.Context) (Timing, error) {
	secret := proof.NewSecret()
	e, open, err := w.ask(secret)
	if err != nil {
		return Timing{}, err
	}
	start := time.Now()
	p, err := w.puller.Pull(ctx, open, transfer.NewReceiver(e))
	if err != nil {
		return Timing{}, err
	}
	for i := len(p.Found); i < len(w.sides.At); i++ {
		f, err := w.find(i)
		if err != nil {
			return Timing{}, err
		}
		p.Found = append(p.Found, f)
	}
	peer := w.own
	peer.Instance = instanceP
	if err := transfer.Verify(e, peer, secret, p.Completion, p.Found); err != nil {
		return Timing{}, err
	}
	t := Timing{Moved: p.Landed.Sub(start), Verified: time.Since(start)}
	return t, p.End()
}

// ask is a new admission for all the pages: what must come, and what opens its Pull.
func (w *ours) ask(secret []byte) (*transfer.Expectation, *brokerv1.PullOpen, error) {
	a := &meshv1.Admission{Id: proof.NewID(), Nonce: proof.NewID(), Tenant: "bench", Model: "bench", ModelRevision: revision,
		PromptTokens: uint32(len(w.ids)), MaxNewTokens: 1, Mover: meshv1.Mover_MOVER_GRPC}
	a.PromptDigest = proof.PromptDigest(a.Nonce, a.Tenant, revision, w.ids)
	e, err := transfer.Expect(a, w.own, w.ids, 0)
	if err != nil {
		return nil, nil, err
	}
	ticket, err := marshal(a)
	return e, &brokerv1.PullOpen{Admission: ticket, Secret: secret, FromInstance: instanceD, ToInstance: instanceP, Rows: e.Rows, Pages: e.Pages}, err
}

func (w *ours) Close() error {
	var err error
	if w.puller != nil {
		err = w.puller.Close()
	}
	if w.source != nil {
		if e := w.source.close(); err == nil {
			err = e
		}
	}
	if w.landing.Pages != nil {
		_ = w.landing.Close()
	}
	return err
}
