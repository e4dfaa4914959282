package handoff

import (
	"bytes"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/cli/local"
	"leasehold.dev/integration/driver"
	"leasehold.dev/integration/rogue"
	"leasehold.dev/integration/scenario"
	"leasehold.dev/mesh/identity"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	"leasehold.dev/protos/proof"
)

// lie is one way in which a source broker can be wrong.
type lie struct {
	row  string // of the catalogue of faults
	name string
	make func(*brokerv1.PullOpen) rogue.Lie
}

// completed changes the Completion and, with a valid MAC, says that it is right.
func completed(change func(*brokerv1.Completion)) func(*brokerv1.PullOpen) rogue.Lie {
	return func(open *brokerv1.PullOpen) rogue.Lie {
		return func(m rogue.Message) ([]rogue.Message, error) {
			if c := m.Control.GetCompletion(); c != nil {
				change(c)
				if err := proof.Seal(open.Secret, c); err != nil {
					return nil, err
				}
			}
			return []rogue.Message{m}, nil
		}
	}
}

// unsealed changes the Completion and leaves root and MAC to the change.
func unsealed(change func(*brokerv1.Completion)) func(*brokerv1.PullOpen) rogue.Lie {
	return answered(func(m rogue.Message) ([]rogue.Message, error) {
		if c := m.Control.GetCompletion(); c != nil {
			change(c)
		}
		return []rogue.Message{m}, nil
	})
}

func answered(l rogue.Lie) func(*brokerv1.PullOpen) rogue.Lie {
	return func(*brokerv1.PullOpen) rogue.Lie { return l }
}

// placeOf is the page that a message brings: by its bytes, or by its name in the sender's pool.
func placeOf(m rogue.Message) (place uint32, ok bool) {
	if m.Part != nil {
		return m.Part.Place, true
	}
	return m.Control.GetPages().GetFirst(), m.Control.GetPages() != nil
}

// pageByPage has a lie called for each page that a message names, as if it were the only one.
func pageByPage(make func(*brokerv1.PullOpen) rogue.Lie) func(*brokerv1.PullOpen) rogue.Lie {
	return func(open *brokerv1.PullOpen) rogue.Lie {
		l := make(open)
		return func(m rogue.Message) (out []rogue.Message, err error) {
			named := m.Control.GetPages()
			if named == nil {
				return l(m)
			}
			for i, page := range named.GetPages() {
				more, err := l(name(named.GetFirst()+uint32(i), page))
				if err != nil {
					return nil, err
				}
				out = append(out, more...)
			}
			return out, nil
		}
	}
}

// onlyPages lets through the places that keep accepts, and says so in Sent and Completion, digests included.
func onlyPages(keep func(place, pages uint32) bool) func(*brokerv1.PullOpen) rogue.Lie {
	return func(open *brokerv1.PullOpen) rogue.Lie {
		return func(m rogue.Message) ([]rogue.Message, error) {
			if place, ok := placeOf(m); ok && !keep(place, open.Pages) {
				return nil, nil
			}
			kept := uint32(0)
			for p := range open.Pages {
				if keep(p, open.Pages) {
					kept++
				}
			}
			if s := m.Control.GetSent(); s != nil {
				s.Pages = kept
			}
			if c := m.Control.GetCompletion(); c != nil {
				c.Pages, c.Digests = kept, c.Digests[:kept]
				if err := proof.Seal(open.Secret, c); err != nil {
					return nil, err
				}
			}
			return []rogue.Message{m}, nil
		}
	}
}

// flipped changes one byte of one place on its way.
func flipped(place uint32, at int) func(*brokerv1.PullOpen) rogue.Lie {
	return answered(func(m rogue.Message) ([]rogue.Message, error) {
		if m.Part != nil && m.Part.Place == place && m.Part.Offset == 0 {
			m.Part.Data = bytes.Clone(m.Part.Data)
			m.Part.Data[at%len(m.Part.Data)] ^= 0x10
		}
		return []rogue.Message{m}, nil
	})
}

// swapped exchanges the bytes of the first two places.
func swapped() func(*brokerv1.PullOpen) rogue.Lie {
	return func(*brokerv1.PullOpen) rogue.Lie {
		var first []rogue.Message
		return func(m rogue.Message) ([]rogue.Message, error) {
			if m.Part == nil || m.Part.Place > 1 {
				return []rogue.Message{m}, nil
			}
			if m.Part.Place == 0 {
				first = append(first, m)
				return nil, nil
			}
			// The second's bytes go out as the first's, part by part; the first's follow once all have come.
			own := *m.Part
			i := slices.IndexFunc(first, func(f rogue.Message) bool { return f.Part.Offset == own.Offset })
			was := *first[i].Part
			first[i].Part = &rogue.Part{Place: 1, Offset: was.Offset, Data: was.Data}
			out := []rogue.Message{{Part: &rogue.Part{Place: 0, Offset: own.Offset, Data: own.Data}}}
			if last := first[len(first)-1].Part; last.Place == 1 {
				out = append(out, first...)
			}
			return out, nil
		}
	}
}

// named changes the name of one place's page.
func named(place uint32, change func(uint32) uint32) func(*brokerv1.PullOpen) rogue.Lie {
	return answered(func(m rogue.Message) ([]rogue.Message, error) {
		if at, ok := placeOf(m); ok && at == place {
			return []rogue.Message{name(at, change(pageOf(m)))}, nil
		}
		return []rogue.Message{m}, nil
	})
}

func name(place, page uint32) rogue.Message {
	return rogue.Message{Control: &brokerv1.PullResponse{Kind: &brokerv1.PullResponse_Pages{Pages: &brokerv1.PullPages{First: place, Pages: []uint32{page}}}}}
}

func pageOf(m rogue.Message) uint32 { return m.Control.GetPages().GetPages()[0] }

// namesSwapped exchanges the names of the first two places' pages.
func namesSwapped(*brokerv1.PullOpen) rogue.Lie {
	first := uint32(0)
	return func(m rogue.Message) ([]rogue.Message, error) {
		switch place, ok := placeOf(m); {
		case ok && place == 0:
			first = pageOf(m)
			return nil, nil
		case ok && place == 1:
			return []rogue.Message{name(0, pageOf(m)), name(1, first)}, nil
		}
		return []rogue.Message{m}, nil
	}
}

// liesOfParts are about the bytes of pages in the stream.
func liesOfParts() []lie {
	return []lie{
		{"H3", "N+1 pages", func(open *brokerv1.PullOpen) rogue.Lie {
			return func(m rogue.Message) ([]rogue.Message, error) {
				out := []rogue.Message{m}
				if m.Part != nil && m.Part.Place == open.Pages-1 {
					out = append(out, rogue.Message{Part: &rogue.Part{Place: open.Pages, Offset: m.Part.Offset, Data: m.Part.Data}})
				}
				return out, nil
			}
		}},
		{"H5", "a byte of the first page flips", flipped(0, 0)},
		{"H5", "a byte of a middle page flips", flipped(1, 1000)},
		{"H5", "a byte of the last page flips", flipped(3, 77)},
		{"H6", "two pages are swapped", swapped()},
	}
}

// liesOfNames are about where pages lie in the sender's pool.
func liesOfNames() []lie {
	return []lie{
		{"H3", "N+1 pages", func(open *brokerv1.PullOpen) rogue.Lie {
			return func(m rogue.Message) ([]rogue.Message, error) {
				if place, ok := placeOf(m); ok && place == open.Pages-1 {
					return []rogue.Message{m, name(open.Pages, pageOf(m))}, nil
				}
				return []rogue.Message{m}, nil
			}
		}},
		{"H3", "bytes come where a name belongs", answered(func(m rogue.Message) ([]rogue.Message, error) {
			if place, ok := placeOf(m); ok {
				return []rogue.Message{{Part: &rogue.Part{Place: place, Data: make([]byte, 4096)}}}, nil
			}
			return []rogue.Message{m}, nil
		})},
		{"H6", "for the last page another is named", named(3, func(p uint32) uint32 { return p ^ 1 })},
		{"H6", "for the first page one far away is named", named(0, func(p uint32) uint32 { return p ^ 64 })},
		{"H6", "for a page one outside of the pool is named", named(1, func(uint32) uint32 { return 1 << 20 })},
		{"H6", "for a page the greatest number is named", named(1, func(uint32) uint32 { return 1<<32 - 1 })},
		{"H6", "two pages are swapped", namesSwapped},
	}
}

func lies() []lie {
	zero := make([]byte, 16)
	return []lie{
		{"H3", "completion for 1 page of N", onlyPages(func(p, n uint32) bool { return p == 0 })},
		{"H3", "completion for N-1 of N", onlyPages(func(p, n uint32) bool { return p < n-1 })},
		{"H3", "1 page arrives, the completion says N", func(o *brokerv1.PullOpen) rogue.Lie {
			few := onlyPages(func(p, n uint32) bool { return p == 0 })(o)
			return func(m rogue.Message) ([]rogue.Message, error) {
				if m.Control.GetCompletion() != nil {
					return []rogue.Message{m}, nil
				}
				return few(m)
			}
		}},
		{"H3", "N pages and N+1 in the completion", completed(func(c *brokerv1.Completion) { c.Pages++; c.Digests = append(c.Digests, c.Digests[0]) })},
		{"H3", "right count, other tokens", completed(func(c *brokerv1.Completion) { c.PromptDigest = proof.PromptDigest(c.PromptDigest, "x", nil, nil) })},
		{"H3", "one row too few", completed(func(c *brokerv1.Completion) { c.Rows-- })},
		{"H3", "another tenant", completed(func(c *brokerv1.Completion) { c.Tenant += "x" })},
		{"H3", "another model revision", completed(func(c *brokerv1.Completion) { c.ModelRevision = proof.NewSecret() })},
		{"H4", "no epoch", completed(func(c *brokerv1.Completion) { c.Epoch = 0 })},
		{"H4", "an old instance", completed(func(c *brokerv1.Completion) { c.Instance = proof.NewID() })},
		{"H4", "an unknown admission", completed(func(c *brokerv1.Completion) { c.AdmissionId = proof.NewID() })},
		{"H4", "for another receiver", completed(func(c *brokerv1.Completion) { c.DestinationInstance = proof.NewID() })},
		{"H4", "it says twice that all was sent", answered(func(m rogue.Message) ([]rogue.Message, error) {
			if m.Control.GetSent() != nil {
				return []rogue.Message{m, m}, nil
			}
			return []rogue.Message{m}, nil
		})},
		{"H6", "two digests are swapped", completed(func(c *brokerv1.Completion) { c.Digests[0], c.Digests[1] = c.Digests[1], c.Digests[0] })},
		{"H7", "a digest is missing", completed(func(c *brokerv1.Completion) { c.Digests = c.Digests[1:] })},
		{"H7", "a digest is zero", completed(func(c *brokerv1.Completion) { c.Digests[1] = zero })},
		{"H7", "a digest is empty", completed(func(c *brokerv1.Completion) { c.Digests[1] = nil })},
		{"H7", "all digests are missing", completed(func(c *brokerv1.Completion) { c.Digests = nil })},
		{"H7", "the MAC is missing", unsealed(func(c *brokerv1.Completion) { c.Mac = nil })},
		{"H7", "the MAC is zero", unsealed(func(c *brokerv1.Completion) { c.Mac = make([]byte, 32) })},
		{"H7", "the MAC is of another secret", unsealed(func(c *brokerv1.Completion) {
			if err := proof.Seal(proof.NewSecret(), c); err != nil {
				panic(err)
			}
		})},
		{"H7", "the root is missing", unsealed(func(c *brokerv1.Completion) { c.Root = nil })},
		{"H15", "the stream ends OK without a completion", answered(func(m rogue.Message) ([]rogue.Message, error) {
			if m.Control.GetCompletion() != nil {
				return nil, io.EOF
			}
			return []rogue.Message{m}, nil
		})},
		{"H15", "the stream ends OK before the last page", answered(func(m rogue.Message) ([]rogue.Message, error) {
			if place, ok := placeOf(m); ok && place == 2 {
				return nil, io.EOF
			}
			return []rogue.Message{m}, nil
		})},
	}
}

// TestLies puts a rogue between two real brokers: every lie ends the request, nothing is generated, both pools come back.
func TestLies(t *testing.T) {
	for mover, all := range map[string][]lie{"grpc": append(lies(), liesOfParts()...), "shm": append(lies(), liesOfNames()...)} {
		t.Run(mover, func(t *testing.T) { overRogue(t, mover, all) })
	}
}

func overRogue(t *testing.T, mover string, all []lie) {
	var proxy *rogue.Proxy
	st := open(t, mover, func(c *local.Config) {
		dir := t.TempDir()
		ca, err := identity.NewCA(filepath.Join(c.Dir, "identity", "ca"))
		if err == nil {
			err = ca.Issue(dir, "kvbroker", "broker-p")
		}
		if err == nil {
			proxy, err = rogue.Listen(dir)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { proxy.Close() })
		c.Brokers[0].Args = []string{"-advertise", proxy.Addr}
		c.Brokers[1].Args = append(c.Brokers[1].Args, "-lane-framing", "grpc") // raw lanes would go past the rogue
	})
	a, err := st.Process("kvbroker/broker-p").Addr(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := proxy.Connect(a.GRPC, filepath.Join(st.Dir, "identity", "kvbroker-broker-d"), "broker-p"); err != nil {
		t.Fatal(err)
	}
	request := driver.Request{Tenant: "demo", IDs: ids(230), MaxNew: 4, Prefill: "prefill-0", Decode: "decode-0"} // 4 pages
	truth := func() {
		t.Helper()
		proxy.Lie(nil)
		out, err := st.Driver.Run(t.Context(), request)
		if err != nil || len(out.Tokens) == 0 || out.Decode.GetPages() != 4 {
			t.Fatalf("the truth: %d tokens, verdict %v, %v, want an answer over 4 pages", len(out.Tokens), out.Decode, err)
		}
	}
	truth()
	for _, l := range all {
		t.Run(l.row+" "+l.name, func(t *testing.T) {
			proxy.Lie(pageByPage(l.make))
			out, err := st.Driver.Run(t.Context(), request)
			if k := errs.KindOf(err); k != errs.Corrupt {
				t.Errorf("ended with %v (kind %v), want corrupt", err, k)
			}
			if len(out.Tokens) > 0 || out.Decode != nil || out.Finished != nil {
				t.Errorf("%d tokens, verdict %v came out", len(out.Tokens), out.Decode)
			}
			if err != nil && strings.Contains(err.Error(), "internal error") {
				t.Errorf("the error does not say what was wrong: %v", err)
			}
			if mover == "grpc" { // the router does not look at the mover
				refusedByRouter(t, st)
			}
			baseline(t, st)
		})
	}
	// Another attach's epoch is nothing that decode's broker could know; prefill's verdict has the right one, and the
	// router compares.
	t.Run("H4 another epoch", func(t *testing.T) {
		proxy.Lie(completed(func(c *brokerv1.Completion) { c.Epoch++ }))
		refusedByRouter(t, st)
		baseline(t, st)
	})
	truth()
}

// refusedByRouter asks as a tenant does: a 500 that tells nothing of the inside, no token, and no second try.
func refusedByRouter(t *testing.T, st *scenario.Stage) {
	t.Helper()
	a, err := st.Post(t.Context(), "/v1/completions", st.Key(), map[string]any{"model": st.Loaded.Name, "prompt": ids(230), "max_tokens": 4, "stream": true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if a.Err == nil || a.Err.Status != 500 || a.Text != "" || a.Completed {
		t.Errorf("the tenant got %+v, %v, want status 500 alone", a, a.Err)
	}
}
