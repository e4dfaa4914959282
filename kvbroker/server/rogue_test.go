package server

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/kvbroker/client"
	"leasehold.dev/kvbroker/mover"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

// rogue is a prefill broker that has the pages and the secret, and lies where a test tells it to.
type rogue struct {
	brokerv1.UnimplementedPeerServiceServer
	t     *testing.T
	id    *brokerv1.BrokerIdentity
	r     *request
	pages [][]byte
	sums  [][]byte

	send     int                            // pages that it sends; default: all
	order    func(place int) (page int)     // which page goes to a place
	tamper   func(*brokerv1.Completion)     // before it is sealed
	after    func(*brokerv1.Completion)     // after
	secret   []byte                         // another one to seal with
	silent   bool                           // ends OK without a Completion
	twice    bool                           // sends the Completion twice
	attached func(*brokerv1.PullOpen) error // what it does instead of attaching
	opens    atomic.Int32
}

func newRogue(t *testing.T, id *brokerv1.BrokerIdentity, r *request) *rogue {
	g := &rogue{t: t, id: id, r: r, send: int(r.moved())}
	for place := range r.moved() {
		page := make([]byte, small.PageBytes())
		rows := min(64, r.rows()-place*64)
		for i := range page {
			page[i] = byte(i*int(place+3)) | 1
		}
		clearRowsFrom(page, rows)
		d, _, err := engine.PageSum(small, page, rows, testKeys)
		if err != nil {
			t.Fatal(err)
		}
		g.pages, g.sums = append(g.pages, page), append(g.sums, d[:])
	}
	return g
}

func clearRowsFrom(page []byte, rows uint32) {
	zero := make([]byte, small.Shape().RowBytes())
	for i := rows; i < 64; i++ {
		for layer := range int(small.Layers) {
			for kv := range 2 {
				small.SetRow(page, zero, int(i), layer, kv, 0)
			}
		}
	}
}

func (g *rogue) Handshake(context.Context, *brokerv1.HandshakeRequest) (*brokerv1.HandshakeResponse, error) {
	return &brokerv1.HandshakeResponse{From: g.id}, nil
}

func (g *rogue) Pull(stream grpc.BidiStreamingServer[brokerv1.PullRequest, brokerv1.PullResponse]) error {
	open, err := mover.ReceiveOpen(stream)
	if err != nil {
		return err
	}
	g.opens.Add(1)
	if g.attached != nil {
		return g.attached(open)
	}
	src := &rogueSource{g: g, open: open}
	if err := mover.Serve(stream, src, uint32(small.PageBytes())); err != nil && !errors.Is(err, errSilent) {
		return err
	}
	if g.twice {
		return stream.SendMsg(&brokerv1.PullResponse{Kind: &brokerv1.PullResponse_Completion{Completion: src.completion}})
	}
	return nil
}

type rogueSource struct {
	g          *rogue
	open       *brokerv1.PullOpen
	next       int
	completion *brokerv1.Completion
}

func (s *rogueSource) Next(context.Context) (uint32, error) {
	if s.next >= s.g.send {
		return 0, io.EOF
	}
	s.next++
	return uint32(s.next - 1), nil
}

func (s *rogueSource) Read(place, off uint32, dst []byte) error {
	page := int(place)
	if s.g.order != nil {
		page = s.g.order(page)
	}
	copy(dst, s.g.pages[page%len(s.g.pages)][off:])
	return nil
}

func (s *rogueSource) Settle() error { return nil }

var errSilent = errs.New(errs.Internal, "ends without a word")

func (s *rogueSource) Complete(uint32, uint64) (*brokerv1.Completion, error) {
	if s.g.silent {
		return nil, errSilent
	}
	a := s.g.r.a
	h := small.Hash()
	c := &brokerv1.Completion{AdmissionId: a.Id, Lease: proof.LeaseHash(proof.NewID()), Instance: s.g.id.Instance, Epoch: 1,
		DestinationInstance: s.open.FromInstance, Tenant: a.Tenant, ModelRevision: a.ModelRevision, LayoutHash: h[:],
		Rows: s.g.r.rows(), Pages: s.g.r.moved(), PromptDigest: a.PromptDigest, Digests: s.g.sums}
	if s.g.tamper != nil {
		s.g.tamper(c)
	}
	secret := s.open.Secret
	if s.g.secret != nil {
		secret = s.g.secret
	}
	if err := proof.Seal(secret, c); err != nil {
		return nil, err
	}
	if s.g.after != nil {
		s.g.after(c)
	}
	s.completion = c
	return c, nil
}

func identityOf(name string) *brokerv1.BrokerIdentity {
	h := small.Hash()
	return &brokerv1.BrokerIdentity{Name: name, Instance: proof.NewID(), Protocol: Protocol, LayoutHash: h[:], ModelRevision: revision[:],
		TokenizerRevision: tokenizer[:], NumericsClass: "ref-1", PoolPages: 8}
}

// against runs one request of 190 tokens (3 pages) against a rogue prefill broker.
func against(t *testing.T, lie func(*rogue)) (*node, *rogue, *client.Lease, error) {
	t.Helper()
	f := newFleet(t)
	n := newNode(t, f, "b1", 8)
	r := newRequest(t, 190, 4, meshv1.Mover_MOVER_GRPC)
	g := newRogue(t, identityOf("b0"), r)
	lie(g)
	f.list(t, "b0", func(s grpc.ServiceRegistrar) { brokerv1.RegisterPeerServiceServer(s, g) })
	d := n.attach(t, "d0")
	l, err := d.Reserve(t.Context(), client.Reservation{Admission: r.s, Role: roleDest, TokenIDs: r.ids, Pages: r.life()})
	return n, g, l, err
}

func TestHonestRogueIsBelieved(t *testing.T) {
	n, _, l, err := against(t, func(*rogue) {})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bothLooks(t, l); err != nil {
		t.Fatal(err)
	}
	retire(t, l, true)
	n.baseline(t)
}

func TestNothingIsOwnedWhenTheSenderLies(t *testing.T) {
	for name, lie := range map[string]func(*rogue){
		"ends OK without a completion":     func(g *rogue) { g.silent = true },
		"sends the completion twice":       func(g *rogue) { g.twice = true },
		"sends 1 page of 3":                func(g *rogue) { g.send = 1 },
		"sends 2 pages of 3":               func(g *rogue) { g.send = 2 },
		"sends 4 pages for 3":              func(g *rogue) { g.send = 4 },
		"sends none":                       func(g *rogue) { g.send = 0 },
		"swaps two pages":                  func(g *rogue) { g.order = func(p int) int { return []int{1, 0, 2}[p] } },
		"sends one page twice":             func(g *rogue) { g.order = func(p int) int { return []int{0, 0, 2}[p] } },
		"claims fewer rows":                func(g *rogue) { g.tamper = func(c *brokerv1.Completion) { c.Rows-- } },
		"claims fewer pages":               func(g *rogue) { g.tamper = func(c *brokerv1.Completion) { c.Pages-- } },
		"claims one digest less":           func(g *rogue) { g.tamper = func(c *brokerv1.Completion) { c.Digests = c.Digests[:2] } },
		"claims a zero digest":             func(g *rogue) { g.tamper = func(c *brokerv1.Completion) { c.Digests[1] = make([]byte, 16) } },
		"claims an empty digest":           func(g *rogue) { g.tamper = func(c *brokerv1.Completion) { c.Digests[1] = nil } },
		"completes another admission":      func(g *rogue) { g.tamper = func(c *brokerv1.Completion) { c.AdmissionId = proof.NewID() } },
		"completes for another instance":   func(g *rogue) { g.tamper = func(c *brokerv1.Completion) { c.DestinationInstance = proof.NewID() } },
		"completes as another instance":    func(g *rogue) { g.tamper = func(c *brokerv1.Completion) { c.Instance = proof.NewID() } },
		"has no epoch":                     func(g *rogue) { g.tamper = func(c *brokerv1.Completion) { c.Epoch = 0 } },
		"names another tenant":             func(g *rogue) { g.tamper = func(c *brokerv1.Completion) { c.Tenant = "t1" } },
		"used other weights":               func(g *rogue) { g.tamper = func(c *brokerv1.Completion) { c.ModelRevision = make([]byte, 32) } },
		"used another prompt":              func(g *rogue) { g.tamper = func(c *brokerv1.Completion) { c.PromptDigest = make([]byte, 32) } },
		"knows another secret":             func(g *rogue) { g.secret = proof.NewSecret() },
		"has no MAC":                       func(g *rogue) { g.after = func(c *brokerv1.Completion) { c.Mac = nil } },
		"has a zero MAC":                   func(g *rogue) { g.after = func(c *brokerv1.Completion) { c.Mac = make([]byte, 32) } },
		"has no root":                      func(g *rogue) { g.after = func(c *brokerv1.Completion) { c.Root = nil } },
		"changes the completion at last":   func(g *rogue) { g.after = func(c *brokerv1.Completion) { c.Epoch++ } },
		"leaves a row of a page unwritten": func(g *rogue) { clearRowsFrom(g.pages[1], 63) },
	} {
		t.Run(name, func(t *testing.T) {
			n, _, l, err := against(t, lie)
			if err != nil {
				t.Fatal(err)
			}
			_, err = l.AwaitOwned(t.Context())
			if name == "sends the completion twice" { // its first one was right
				_, err = bothLooks(t, l)
				within(t, "revoke", l.Revoked())
			}
			wantKind(t, "what was waited for", err, errs.Corrupt)
			for _, p := range l.Pages {
				if tag := n.pool.LoadTag(p); tag.Slot() != 0 {
					t.Errorf("page %d was tagged %v", p, tag)
				}
			}
			if got := n.count(t, MetricIncidents, "kind", "transfer"); got != 1 {
				t.Errorf("%d transfer incidents, want 1", got)
			}
			retire(t, l, false)
			n.baseline(t)
		})
	}
}

func TestReserveTellsWhyNothingIsAttached(t *testing.T) {
	differ := func(change func(*brokerv1.BrokerIdentity)) func(*rogue) {
		return func(g *rogue) { change(g.id) }
	}
	for _, tt := range []struct {
		name string
		lie  func(*rogue)
		want errs.Kind
	}{
		{"another layout", differ(func(i *brokerv1.BrokerIdentity) { i.LayoutHash = make([]byte, 32) }), errs.Invalid},
		{"other weights", differ(func(i *brokerv1.BrokerIdentity) { i.ModelRevision = make([]byte, 32) }), errs.Invalid},
		{"another tokenizer", differ(func(i *brokerv1.BrokerIdentity) { i.TokenizerRevision = make([]byte, 32) }), errs.Invalid},
		{"another numerics class", differ(func(i *brokerv1.BrokerIdentity) { i.NumericsClass = "x86-fma-1" }), errs.Invalid},
		{"another protocol", differ(func(i *brokerv1.BrokerIdentity) { i.Protocol++ }), errs.Invalid},
		{"another name", differ(func(i *brokerv1.BrokerIdentity) { i.Name = "b7" }), errs.Invalid},
		{"no instance", differ(func(i *brokerv1.BrokerIdentity) { i.Instance = nil }), errs.Invalid},
		{"no room at the peer", func(g *rogue) {
			g.attached = func(*brokerv1.PullOpen) error { return errs.New(errs.Exhausted, "0 of 8 pages free") }
		}, errs.Exhausted},
		{"stale for ever", func(g *rogue) {
			g.attached = func(*brokerv1.PullOpen) error { return errs.New(errs.Stale, "another instance") }
		}, errs.Stale},
		{"ends OK before it attaches", func(g *rogue) { g.attached = func(*brokerv1.PullOpen) error { return nil } }, errs.Corrupt},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n, g, _, err := against(t, tt.lie)
			wantKind(t, "Reserve", err, tt.want)
			if g.opens.Load() > 1 {
				t.Errorf("%d Pulls were opened at one instance, want at most 1", g.opens.Load())
			}
			n.baseline(t)
		})
	}
}

func TestUnlistedPeer(t *testing.T) {
	f := newFleet(t)
	n := newNode(t, f, "b1", 8)
	d := n.attach(t, "d0")
	r := newRequest(t, 100, 4, meshv1.Mover_MOVER_GRPC)
	_, err := d.Reserve(t.Context(), client.Reservation{Admission: r.s, Role: roleDest, TokenIDs: r.ids, Pages: r.life()})
	wantKind(t, "Reserve", err, errs.Unavailable)
	n.baseline(t)
}
