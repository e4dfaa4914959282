package explore

import (
	"crypto/sha256"
	"fmt"

	"leasehold.dev/kvbroker/transfer"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/pagesum"
	"leasehold.dev/protos/proof"
)

const (
	pageBytes = 4096 // of the transfer's count; a page's content is one word here
	maxPages  = 4
)

// Plan is one small mesh and what is asked of it.
type Plan struct {
	Name          string
	Pages         [2]uint32 // of brokers A and B, at most 4
	Quota         uint32
	Share         uint32
	QuarantineCap uint32
	Asks          []Ask
	Upsets        int // at most so many in one history
	Depth         int // of the search: actions in a history; 0: until nothing new comes
	Bug           Bug // none by default

	at   [2]int // brokers of the prefill and the decode worker
	reqs []request
}

// Ask is one request. Decode is at broker B, but for mover local, where both workers are at A.
type Ask struct {
	Tenant string
	Prompt int // tokens
	MaxNew int
	Mover  meshv1.Mover
}

const (
	prefill = iota // worker
	decode         // worker
)

// request is what follows from an ask, for all histories.
type request struct {
	Ask
	id        byte
	ids       []int32
	admission *meshv1.Admission
	secret    []byte
	rows      uint32 // that move
	moved     uint32 // pages
	life      uint32 // pages of the decode side's lease
}

func (r *request) solo() bool  { return r.Mover == meshv1.Mover_MOVER_NONE }
func (r *request) local() bool { return r.Mover == meshv1.Mover_MOVER_LOCAL }

var (
	revision = hash32("weights")
	layout   = hash32("layout")
)

func hash32(s string) []byte {
	h := sha256.Sum256([]byte(s))
	return h[:]
}

// name16 is an id that says what it is for.
func name16(b ...byte) (id [16]byte) {
	copy(id[:], b)
	id[15] = 1 // never zero
	return id
}

func slice16(id [16]byte) []byte { return id[:] }

// prepare derives the requests.
func (p *Plan) prepare() error {
	if p.reqs != nil {
		return nil
	}
	p.at = [2]int{0, 1}
	for _, a := range p.Asks {
		if a.Mover == meshv1.Mover_MOVER_LOCAL {
			p.at = [2]int{0, 0}
		}
	}
	for i, a := range p.Asks {
		r := request{Ask: a, id: byte(i), secret: hash32(fmt.Sprint("secret", i))}
		for n := range a.Prompt {
			r.ids = append(r.ids, int32(1000*i+n))
		}
		nonce, id := name16('N', r.id), name16('Q', r.id)
		broker := [2]string{"A", "B"}
		r.admission = &meshv1.Admission{Id: id[:], Nonce: nonce[:], Tenant: a.Tenant, Model: "m", ModelRevision: revision,
			PromptTokens: uint32(a.Prompt), MaxNewTokens: uint32(a.MaxNew), Decode: "D", DecodeBroker: broker[p.at[decode]], Mover: a.Mover,
			PromptDigest: proof.PromptDigest(nonce[:], a.Tenant, revision, r.ids), DeadlineUnixMs: 1}
		r.life = uint32(a.Prompt+a.MaxNew-1+pagesum.PageTokens-1) / pagesum.PageTokens
		if !r.solo() {
			r.admission.Prefill, r.admission.PrefillBroker = "P", broker[p.at[prefill]]
			r.rows, r.moved = uint32(a.Prompt-1), proof.Pages(uint32(a.Prompt), 0)
		}
		if a.Prompt < 2 || a.MaxNew < 1 || r.life > maxPages {
			return errs.New(errs.Invalid, "plan %s: request %d of %d pages, at most %d", p.Name, i, r.life, maxPages)
		}
		p.reqs = append(p.reqs, r)
	}
	if len(p.reqs) == 0 || max(p.Pages[0], p.Pages[1]) > maxPages || min(p.Pages[0], p.Pages[1]) == 0 {
		return errs.New(errs.Invalid, "plan %s: %d requests on pools of %v pages, at most %d", p.Name, len(p.reqs), p.Pages, maxPages)
	}
	return nil
}

// self is what a broker's incarnation knows of itself.
func self(broker int, inc uint8) transfer.Broker {
	return transfer.Broker{Instance: instance(broker, inc), ModelRevision: revision, LayoutHash: layout, PageBytes: pageBytes}
}

func instance(broker int, inc uint8) []byte { return slice16(name16('I', byte(broker), inc)) }

// rowsAt is how many of rows are in the page at place.
func rowsAt(rows, place uint32) uint32 {
	return min(rows-min(rows, place*pagesum.PageTokens), pagesum.PageTokens)
}
