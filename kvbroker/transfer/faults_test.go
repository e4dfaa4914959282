package transfer

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	"leasehold.dev/protos/pagesum"
	"leasehold.dev/protos/proof"
)

func TestTransfersPass(t *testing.T) {
	for _, n := range []int{2, 8, 63, 64, 65, 66, 127, 128, 129, 130, 193, 321} {
		for _, from := range []uint32{0, 64, 128} {
			if int(from) >= n-1 {
				continue
			}
			t.Run(fmt.Sprintf("%d tokens from %d", n, from), func(t *testing.T) {
				p := newPair(t, n, from)
				if err := p.run(harm{}); err != nil {
					t.Fatal(err)
				}
				c := p.receiver.Completion()
				if c.Rows != uint32(n)-1-from || c.Pages != proof.Pages(uint32(n), from) || !bytes.Equal(c.Root, p.source.Root()) {
					t.Errorf("completion says %d rows in %d pages with root %x, source has %x", c.Rows, c.Pages, c.Root, p.source.Root())
				}
			})
		}
	}
}

// TestFaults: each row is a fault that has happened to some system. All end with an error of the kind, that has the text.
func TestFaults(t *testing.T) {
	flip := func(b []byte) { b[len(b)/3] ^= 4 }
	for _, tt := range []struct {
		name string
		harm harm
		kind errs.Kind
		text string
	}{
		{"H3: completion for one page of three", harm{said: func(c *brokerv1.Completion) { c.Pages, c.Digests = 1, c.Digests[:1] }},
			errs.Corrupt, "pages 1, expected 3"},
		{"H3: completion for all pages but one", harm{said: func(c *brokerv1.Completion) { c.Pages, c.Digests = 2, c.Digests[:2] }},
			errs.Corrupt, "pages 2, expected 3"},
		{"H3: completion for a page more", harm{said: func(c *brokerv1.Completion) {
			c.Pages, c.Digests = 4, append(c.Digests, bytes.Repeat([]byte{7}, 16))
		}}, errs.Corrupt, "pages 4, expected 3"},
		{"H3: right count, a digest fewer", harm{said: func(c *brokerv1.Completion) { c.Digests = c.Digests[:2] }},
			errs.Corrupt, "digests 2, expected 3"},
		{"H3: right count, other tokens", harm{said: func(c *brokerv1.Completion) { c.PromptDigest = hash32("other ids") }},
			errs.Corrupt, "prompt digest"},
		{"H3: right pages, fewer rows", harm{said: func(c *brokerv1.Completion) { c.Rows-- }}, errs.Corrupt, "rows 148, expected 149"},
		{"H3: another start", harm{said: func(c *brokerv1.Completion) { c.FromToken = 64 }}, errs.Corrupt, "from 64, expected 0"},
		{"H3: two of three pages arrive", harm{wire: func(w []Arrival) []Arrival { return append(w[:4], Sent{2}) }},
			errs.Corrupt, "2 pages sent, 2 arrived, 3 expected"},
		{"H3: two of three arrive, three are said", harm{wire: func(w []Arrival) []Arrival { return append(w[:4], w[6:]...) }},
			errs.Corrupt, "3 pages sent, 2 arrived, 3 expected"},
		{"H3: a fourth page arrives", harm{wire: func(w []Arrival) []Arrival { return append(w[:6], Part{3, 0, 1}) }},
			errs.Corrupt, "page 3, 3 expected"},

		{"H4: completion of an old epoch", harm{said: func(c *brokerv1.Completion) { c.Epoch-- }}, errs.Corrupt, "epoch 2, expected 3"},
		{"H4: a handshake without an epoch", harm{said: func(c *brokerv1.Completion) { c.Epoch = 0 }, peer: func(b *Broker) { b.Epoch = 0 }},
			errs.Corrupt, "no epoch"},
		{"H4: completion of an old instance", harm{said: func(c *brokerv1.Completion) { c.Instance = id16("before") }},
			errs.Corrupt, "completion says instance"},
		{"H4: completion meant for an old instance of D", harm{said: func(c *brokerv1.Completion) { c.DestinationInstance = id16("before") }},
			errs.Corrupt, "destination instance"},
		{"H4: completion twice", harm{wire: func(w []Arrival) []Arrival { return append(w[:8:8], w[7], Ended{}) }},
			errs.Corrupt, "second completion"},
		{"H4: completion of another admission", harm{said: func(c *brokerv1.Completion) { c.AdmissionId = id16("another") }},
			errs.Corrupt, "completion says admission"},
		{"H4: completion before its pages", harm{wire: func(w []Arrival) []Arrival { return append(w[:2:2], w[7]) }},
			errs.Corrupt, "after 1 of 3 pages"},
		{"H4: completion of an earlier transfer, with its own secret", harm{altered: func(c *brokerv1.Completion) {
			_ = proof.Seal(bytes.Repeat([]byte{1}, proof.SecretSize), c)
		}}, errs.Corrupt, "MAC differs"},
		{"H4: completion of no lease", harm{said: func(c *brokerv1.Completion) { c.Lease = nil }}, errs.Corrupt, "lease hash"},

		{"H6: two pages swapped at P", harm{
			atRest: func(p [][]byte) { p[0], p[1] = p[1], p[0] }}, errs.Corrupt, "page 0 arrived with digest"},
		{"H6: two pages swapped at D", harm{staged: func(d [][]byte) { d[0], d[1] = d[1], d[0] }}, errs.Corrupt, "page 0 arrived with digest"},
		{"H6: a page of another tenant with as many rows", harm{staged: func(d [][]byte) {
			for i := range d[1] {
				d[1][i] = byte(i*5 + 1)
			}
		}}, errs.Corrupt, "page 1 arrived with digest"},
		{"H6: a page in an earlier version of itself", harm{staged: func(d [][]byte) { clear(d[2][len(d[2])/2:]) }},
			errs.Corrupt, "page 2 arrived with digest"},
		{"H6: a page sent twice under two places", harm{
			found: func(f []Found) []Found { f[1] = f[0]; return f },
			said:  func(c *brokerv1.Completion) { c.Digests[1] = c.Digests[0] }}, errs.Corrupt, "page 1 repeats page 0"},
		{"H6: a completion of another tenant", harm{said: func(c *brokerv1.Completion) { c.Tenant = "globex" }},
			errs.Corrupt, "another tenant"},

		{"H7: no digest", harm{said: func(c *brokerv1.Completion) { c.Digests[1] = nil }}, errs.Corrupt, "digest 1 has 0 bytes"},
		{"H7: a zero digest", harm{
			said:  func(c *brokerv1.Completion) { c.Digests[1] = make([]byte, 16) },
			found: func(f []Found) []Found { f[1].Digest = pagesum.Digest{}; return f }}, errs.Corrupt, "page 1 has no digest"},
		{"H7: a long digest", harm{said: func(c *brokerv1.Completion) { c.Digests[2] = append(c.Digests[2], 0) }},
			errs.Corrupt, "digest 2 has 17 bytes"},
		{"H7: no MAC", harm{altered: func(c *brokerv1.Completion) { c.Mac = nil }}, errs.Corrupt, "MAC of 0"},
		{"H7: a zero MAC", harm{altered: func(c *brokerv1.Completion) { c.Mac = make([]byte, 32) }}, errs.Corrupt, "MAC differs"},
		{"H7: no root", harm{altered: func(c *brokerv1.Completion) { c.Root = nil }}, errs.Corrupt, "root of 0"},
		{"H7: a flipped digest", harm{altered: func(c *brokerv1.Completion) { flip(c.Digests[0]) }}, errs.Corrupt, "MAC differs"},
		{"H7: a flipped root", harm{altered: func(c *brokerv1.Completion) { flip(c.Root) }}, errs.Corrupt, "MAC differs"},
		{"H7: no completion at all", harm{wire: func(w []Arrival) []Arrival { return append(w[:7:7], Completed{}) }},
			errs.Corrupt, "empty completion"},
		{"H7: no weights", harm{said: func(c *brokerv1.Completion) { c.ModelRevision = nil }}, errs.Corrupt, "model revision (none)"},
		{"H7: no layout", harm{said: func(c *brokerv1.Completion) { c.LayoutHash = nil }}, errs.Corrupt, "layout hash (none)"},

		{"H8: P aborts between its last chunk and its completion", harm{wire: func(w []Arrival) []Arrival {
			return append(w[:6:6], Ended{errs.New(errs.Unavailable, "the worker gave up: aborted")})
		}}, errs.Unavailable, "the worker gave up: aborted"},

		{"H13: P computes one token and reports all", harm{atRest: func(p [][]byte) {
			each(p[0], func(t, _ int, b []byte) {
				if t > 0 {
					clear(b)
				}
			})
			clear(p[1])
			clear(p[2])
		}}, errs.Corrupt, "page 0 arrived with 1 rows written, 64 expected"},
		{"H13: P leaves out its last row and reports it", harm{atRest: func(p [][]byte) {
			each(p[2], func(t, _ int, b []byte) {
				if t == 20 {
					clear(b)
				}
			})
		}}, errs.Corrupt, "page 2 arrived with 20 rows written, 21 expected"},
		{"H13: P finishes with the request's number and fewer seals", harm{finish: func(f *Finished) { f.Seals = f.Seals[:2] }},
			errs.Corrupt, "finished with 149 rows, 128 appended in 2 pages, 149 in 3 asked"},
		{"H13: P finishes with a number that it did not append", harm{finish: func(f *Finished) { f.Rows = 1 }},
			errs.Corrupt, "finished with 1 rows, 149 appended"},
		{"H13: P seals a page with fewer rows", harm{finish: func(f *Finished) { f.Seals[1].Rows = 63 }},
			errs.Corrupt, "page 1 sealed with 63 rows, its place holds 64"},

		{"H15: the stream ends well without a completion", harm{wire: func(w []Arrival) []Arrival { return append(w[:7:7], Ended{}) }},
			errs.Corrupt, "without a completion, after 3 of 3 pages"},
		{"H15: the stream ends well at once", harm{wire: func(w []Arrival) []Arrival { return []Arrival{Ended{}} }},
			errs.Corrupt, "without a completion, after 0 of 3 pages"},

		{"L5: the lease expires before it is written", harm{source: func(s *Source) {
			_, _ = s.Step(Lost{errs.New(errs.Unavailable, "the lease expired")})
		}}, errs.Unavailable, "the lease expired"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := newPair(t, 150, 0).run(tt.harm)
			if errs.KindOf(err) != tt.kind || err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("transfer = %v (%v), want %v with %q", err, errs.KindOf(err), tt.kind, tt.text)
			}
		})
	}
}

// TestFlippedByte is H5, in every page: at rest at P, and at D, where a byte that was flipped in flight looks as one that was
// flipped while staged.
func TestFlippedByte(t *testing.T) {
	const n = 150 // the last page has 21 rows
	p := newPair(t, n, 0)
	used := func(place, at int) bool { // bytes after the last row belong to nobody, and to no digest
		return at/shape.RowBytes()%pagesum.PageTokens < int(p.e.RowsOf(uint32(place)))
	}
	for place := range 3 {
		for at := 0; at < pageBytes; at += 37 {
			if !used(place, at) {
				continue
			}
			flip := func(pages [][]byte) { pages[place][at] ^= 1 << (at % 8) }
			for station, h := range map[string]harm{"at rest": {atRest: flip}, "staged": {staged: flip}} {
				err := newPair(t, n, 0).run(h)
				if errs.KindOf(err) != errs.Corrupt || err == nil || !strings.Contains(err.Error(), fmt.Sprintf("page %d arrived", place)) {
					t.Fatalf("byte %d of page %d flipped %s: %v", at, place, station, err)
				}
			}
		}
	}
}

// TestLeaseLostWhileRead is L5: whatever has been sent, even all of it, there is no Completion after the lease is lost.
func TestLeaseLostWhileRead(t *testing.T) {
	for _, when := range []string{"parked", "bound", "sealed", "finished"} {
		t.Run(when, func(t *testing.T) {
			p := newPair(t, 150, 0)
			fin := Finished{Rows: p.e.Rows}
			for i := range p.e.Pages {
				fin.Seals = append(fin.Seals, p.compute(i))
			}
			todo := map[string][]Occurrence{"parked": nil, "bound": {p.bound()}, "sealed": {p.bound(), Sealed{fin.Seals[:2]}},
				"finished": {p.bound(), fin}}[when]
			for _, o := range todo {
				if _, err := p.source.Step(o); err != nil {
					t.Fatal(err)
				}
			}
			lost := errs.New(errs.Unavailable, "the lease expired")
			if _, err := p.source.Step(Lost{lost}); errs.KindOf(err) != errs.Unavailable {
				t.Fatalf("Lost = %v", err)
			}
			for _, o := range []Occurrence{p.bound(), fin, Received{p.e.Pages, uint64(p.e.Pages) * pageBytes}} {
				if send, err := p.source.Step(o); err == nil || send.Completion != nil || !strings.Contains(err.Error(), "the lease expired") {
					t.Errorf("%T after the lease was lost = %+v, %v", o, send, err)
				}
			}
			if p.source.Root() != nil || p.source.Err() == nil {
				t.Errorf("root %x and error %v after the lease was lost", p.source.Root(), p.source.Err())
			}
		})
	}
}
