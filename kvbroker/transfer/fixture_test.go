package transfer

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"testing"

	"google.golang.org/protobuf/proto"

	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/pagesum"
	"leasehold.dev/protos/proof"
)

// pair is two brokers with page memory, and one request between them. The test is the mover: it carries what each
// side's core lets through, and can do any harm on the way.
type pair struct {
	t         testing.TB
	admission *meshv1.Admission
	ids       []int32
	p, d      Broker
	secret    []byte
	e         *Expectation
	source    *Source
	receiver  *Receiver
	atP, atD  [][]byte // page memory
	lease     lease.ID
}

var shape = pagesum.Shape{Layers: 1, KVHeads: 2, HeadDim: 8, ElemBytes: 2}

const pageBytes = 64 * 2 * 2 * 8 * 2

func id16(s string) []byte {
	b := make([]byte, 16)
	copy(b, s)
	return b
}

func hash32(s string) []byte {
	h := sha256.Sum256([]byte(s))
	return h[:]
}

// newPair is a request of n tokens, with both brokers ready to transfer it from row from on.
func newPair(t testing.TB, n int, from uint32) *pair {
	t.Helper()
	p := &pair{t: t, secret: bytes.Repeat([]byte{0x5e}, proof.SecretSize), lease: lease.ID(id16("source lease"))}
	p.p = Broker{Instance: id16("instance of p"), Epoch: 3, ModelRevision: hash32("weights"), LayoutHash: hash32("layout"), PageBytes: pageBytes}
	p.d = p.p
	p.d.Instance, p.d.Epoch = id16("instance of d"), 9
	for i := range n {
		p.ids = append(p.ids, int32(i*7%1000))
	}
	p.admission = &meshv1.Admission{Id: id16("admission"), Tenant: "acme", Model: "m", ModelRevision: p.p.ModelRevision, PromptTokens: uint32(n),
		MaxNewTokens: 8, Nonce: id16("nonce"), Prefill: "p0", Decode: "d0", PrefillBroker: "kp", DecodeBroker: "kd",
		Mover: meshv1.Mover_MOVER_GRPC, DeadlineUnixMs: 1}
	p.admission.PromptDigest = proof.PromptDigest(p.admission.Nonce, "acme", p.p.ModelRevision, p.ids)
	var err error
	if p.e, err = Expect(p.admission, p.d, p.ids, from); err != nil {
		t.Fatal(err)
	}
	if p.source, err = NewSource(p.p, p.admission, p.open()); err != nil {
		t.Fatal(err)
	}
	p.receiver = NewReceiver(p.e)
	for range p.e.Pages {
		p.atP, p.atD = append(p.atP, make([]byte, pageBytes)), append(p.atD, make([]byte, pageBytes))
	}
	return p
}

func (p *pair) open() *brokerv1.PullOpen {
	return &brokerv1.PullOpen{Secret: p.secret, FromInstance: p.d.Instance, ToInstance: p.p.Instance, FromToken: p.e.From, Rows: p.e.Rows,
		Pages: p.e.Pages}
}

func (p *pair) bound() Bound {
	return Bound{Lease: p.lease, Epoch: p.p.Epoch, Pages: p.e.Pages, Rows: p.e.Rows, PromptDigest: p.admission.PromptDigest}
}

// compute writes the rows of one page at P, as an append kernel would, and returns its seal.
func (p *pair) compute(place uint32) lease.PageSeal {
	rows := p.e.RowsOf(place)
	sum := p.keys().New()
	each(p.atP[place], func(t, row int, b []byte) {
		if t < int(rows) {
			for i := 0; i < len(b); i += 4 {
				binary.LittleEndian.PutUint32(b[i:], (place*64+uint32(t)+1)*2654435761+uint32(row*len(b)+i))
			}
			sum.Add(row, b)
		}
	})
	return lease.PageSeal{Index: place, Rows: rows, Digest: sum.Digest()}
}

func (p *pair) keys() *pagesum.Keys { return pagesum.Expand(p.d.LayoutHash, p.d.ModelRevision, shape) }

// found reads a page at D back.
func (p *pair) found(place uint32) Found {
	rows, sum := int(p.e.RowsOf(place)), p.keys().New()
	written := map[int]bool{}
	each(p.atD[place], func(t, row int, b []byte) {
		if t < rows {
			sum.Add(row, b)
			written[t] = written[t] || !bytes.Equal(b, make([]byte, len(b)))
		}
	})
	f := Found{Digest: sum.Digest()}
	for _, w := range written {
		if w {
			f.Nonzero++
		}
	}
	return f
}

// each visits the rows of a page laid out [K|V][head][token].
func each(page []byte, visit func(t, row int, b []byte)) {
	size, at := shape.RowBytes(), 0
	for kv := range 2 {
		for head := range shape.KVHeads {
			for t := range pagesum.PageTokens {
				visit(t, shape.Row(t, 0, kv, head), page[at:at+size])
				at += size
			}
		}
	}
}

// harm is what a fault does at each station of a transfer. Nil: nothing.
type harm struct {
	source  func(*Source)              // before P's lease
	atRest  func(atP [][]byte)         // sealed at P, not sent yet
	wire    func([]Arrival) []Arrival  // everything that goes to D, in order
	staged  func(atD [][]byte)         // arrived at D, not checked yet
	said    func(*brokerv1.Completion) // a lying or broken sender: its MAC is right
	altered func(*brokerv1.Completion) // after the MAC was made
	found   func([]Found) []Found      // what D computes
	peer    func(*Broker)              // what the handshake said of P
	finish  func(*Finished)            // what P's worker reports
}

// run is one transfer with harm done to it: the error that either side ends with.
func (p *pair) run(h harm) error {
	if h.source != nil {
		h.source(p.source)
	}
	if _, err := p.source.Step(p.bound()); err != nil {
		return err
	}
	fin := Finished{Rows: p.e.Rows}
	for i := range p.e.Pages {
		fin.Seals = append(fin.Seals, p.compute(i))
	}
	if h.finish != nil {
		h.finish(&fin)
	}
	send, err := p.source.Step(fin)
	if err != nil {
		return err
	}
	if h.atRest != nil {
		h.atRest(p.atP)
	}
	var wire []Arrival
	for _, place := range send.Places {
		wire = append(wire, Part{place, 0, pageBytes / 2}, Part{place, pageBytes / 2, pageBytes / 2})
	}
	send, err = p.source.Step(Received{p.e.Pages, uint64(p.e.Pages) * pageBytes})
	if err != nil {
		return err
	}
	c := send.Completion
	if h.said != nil {
		h.said(c)
		if err := proof.Seal(p.secret, c); err != nil {
			return err
		}
	}
	if h.altered != nil {
		h.altered(c)
	}
	wire = append(wire, Sent{p.e.Pages}, Completed{c}, Ended{})
	if h.wire != nil {
		wire = h.wire(wire)
	}
	return p.receive(wire, h)
}

func (p *pair) receive(wire []Arrival, h harm) error {
	done := false
	for _, a := range wire {
		progress, err := p.receiver.Step(a)
		if err != nil {
			return err
		}
		if part, ok := a.(Part); ok {
			copy(p.atD[part.Place][part.Offset:], p.atP[part.Place][part.Offset:uint64(part.Offset)+part.Length])
		}
		done = done || progress.Done
	}
	if !done {
		return errs.New(errs.Unavailable, "the stream never ended")
	}
	if h.staged != nil {
		h.staged(p.atD)
	}
	var found []Found
	for i := range p.receiver.Pages() {
		found = append(found, p.found(i))
	}
	if h.found != nil {
		found = h.found(found)
	}
	peer := p.p
	if h.peer != nil {
		h.peer(&peer)
	}
	return Verify(p.e, peer, p.secret, p.receiver.Completion(), found)
}

func cloned(c *brokerv1.Completion) *brokerv1.Completion {
	return proto.Clone(c).(*brokerv1.Completion)
}
