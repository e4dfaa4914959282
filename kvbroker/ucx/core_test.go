package ucx

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

const testPage = 4096

func testCore() *core {
	return newCore(64, testPage, 2, 2, func(s int32) string { return fmt.Sprint("status ", s) })
}

func testID(n byte) ID { return ID{n} }

// said is what a core answers, in words, and takes it away.
func said(c *core) string {
	var out []string
	for _, x := range c.commands {
		switch x.kind {
		case open:
			out = append(out, "open")
		case send:
			out = append(out, fmt.Sprintf("send %d", x.page))
		case receive:
			out = append(out, fmt.Sprintf("receive %d into %d", x.handle, x.page))
		case release:
			out = append(out, fmt.Sprintf("release %d", x.handle))
		case closing:
			out = append(out, "close")
		}
	}
	for _, d := range c.digests {
		out = append(out, fmt.Sprintf("digest %d rows of %d", d.rows, d.page))
	}
	for _, e := range c.events {
		switch e := e.(type) {
		case Landed:
			out = append(out, fmt.Sprintf("landed %d", e.Place))
		case Sent:
			out = append(out, fmt.Sprintf("sent %d", e.Place))
		case Failed:
			out = append(out, "failed "+errs.KindOf(e.Err).String())
		case Drained:
			out = append(out, "drained")
		}
	}
	c.commands, c.digests, c.events = nil, nil, nil
	return strings.Join(out, "; ")
}

func expectation(n byte, pages ...uint32) Expectation {
	rows := make([]uint32, len(pages))
	for i := range rows {
		rows[i] = 64
	}
	return Expectation{ID: testID(n), Pages: pages, Rows: rows, Window: 2}
}

func (c *core) offered(n byte, place uint32, handle uint64) {
	c.message(header{id: testID(n), place: place, length: testPage}.bytes(), testPage, handle, true)
}

// step is one thing that happens to a core, and what it must answer.
type step struct {
	name string
	do   func(*core) error
	want string
}

func run(t *testing.T, c *core, steps []step) {
	t.Helper()
	for _, s := range steps {
		if err := s.do(c); err != nil {
			t.Fatalf("%s: %v", s.name, err)
		}
		if got := said(c); got != s.want {
			t.Fatalf("%s: %q, want %q", s.name, got, s.want)
		}
	}
}

func does(f func(*core)) func(*core) error { return func(c *core) error { f(c); return nil } }

func TestPagesArrive(t *testing.T) {
	run(t, testCore(), []step{
		{"a transfer is expected", func(c *core) error { return c.expect(expectation(1, 7, 5, 9)) }, ""},
		{"a page is offered", does(func(c *core) { c.offered(1, 0, 100) }), "receive 100 into 7"},
		{"another", does(func(c *core) { c.offered(1, 1, 101) }), "receive 101 into 5"},
		{"a third waits for room", does(func(c *core) { c.offered(1, 2, 102) }), ""},
		{"the second has come", does(func(c *core) { c.received(1<<32|1, 0) }), "receive 102 into 9; digest 64 rows of 5"},
		{"and is digested", does(func(c *core) { c.digested(1<<32|1, pagesum.Digest{1}, 64, nil) }), "landed 1"},
		{"the others too", does(func(c *core) {
			c.received(1<<32, 0)
			c.received(1<<32|2, 0)
			c.digested(1<<32, pagesum.Digest{1}, 64, nil)
			c.digested(1<<32|2, pagesum.Digest{1}, 64, nil)
		}), "digest 64 rows of 7; digest 64 rows of 9; landed 0; landed 2"},
		{"the end has nothing to wait for", func(c *core) error { return c.end(testID(1)) }, "drained"},
		{"a late offer is given back", does(func(c *core) { c.offered(1, 0, 103) }), "release 103"},
		{"its pages may be expected again", func(c *core) error { return c.expect(expectation(2, 5)) }, ""},
	})
}

func TestNothingElseIsTaken(t *testing.T) {
	raw := func(h header, length uint64, whole bool) func(*core) {
		return func(c *core) { c.message(h.bytes(), length, 9, whole) }
	}
	good := header{id: testID(1), place: 1, length: testPage}
	with := func(f func(*header)) header { h := good; f(&h); return h }
	for _, tt := range []struct {
		name string
		do   func(*core)
		want string
	}{
		{"a transfer that is not expected", raw(with(func(h *header) { h.id = testID(3) }), testPage, true), "release 9"},
		{"one that goes out", raw(with(func(h *header) { h.id = testID(2) }), testPage, true), "release 9"},
		{"a page of another length", raw(good, testPage-1, true), "release 9; failed corrupt"},
		{"one byte more", raw(good, testPage+1, true), "release 9; failed corrupt"},
		{"another length than it says", raw(with(func(h *header) { h.length++ }), testPage, true), "release 9; failed corrupt"},
		{"a part of a page", raw(with(func(h *header) { h.offset = 64 }), testPage, true), "release 9; failed corrupt"},
		{"a place out of range", raw(with(func(h *header) { h.place = 6 }), testPage, true), "release 9; failed corrupt"},
		{"a place far out of range", raw(with(func(h *header) { h.place = 1<<32 - 1 }), testPage, true), "release 9; failed corrupt"},
		{"a place outside of the window", raw(with(func(h *header) { h.place = 5 }), testPage, true), "release 9; failed corrupt"},
		{"a place that has come", raw(with(func(h *header) { h.place = 0 }), testPage, true), "release 9; failed corrupt"},
		{"a page that was not offered", raw(good, testPage, false), "failed corrupt"},
	} {
		c := testCore()
		if err := errors.Join(c.expect(expectation(1, 0, 1, 2, 3, 4, 5)), c.provide(testID(2), "peer", 1)); err != nil {
			t.Fatal(err)
		}
		c.offered(1, 0, 1)
		said(c)
		if tt.do(c); said2(c) != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, said2(c), tt.want)
		}
		said(c)
		c.offered(1, 1, 2)
		want := "receive 2 into 1"
		if strings.Contains(tt.want, "failed") {
			want = "release 2"
		}
		if got := said(c); got != want {
			t.Errorf("after %s, a good page: %q, want %q", tt.name, got, want)
		}
	}
}

// said2 is said, and leaves everything.
func said2(c *core) string {
	d := *c
	return said(&d)
}

func TestTheEndWaitsForEveryOperation(t *testing.T) {
	run(t, testCore(), []step{
		{"a transfer is expected", func(c *core) error { return c.expect(expectation(1, 7, 5, 9)) }, ""},
		{"pages are offered", does(func(c *core) {
			for i := range uint32(3) {
				c.offered(1, i, uint64(i))
			}
		}), "receive 0 into 7; receive 1 into 5"},
		{"one is being digested", does(func(c *core) { c.received(1<<32, 0) }), "receive 2 into 9; digest 64 rows of 7"},
		{"the end waits", func(c *core) error { return c.end(testID(1)) }, ""},
		{"a page of it cannot be expected", func(c *core) error {
			if err := c.expect(expectation(2, 9)); errs.KindOf(err) != errs.Invalid || err == nil {
				t.Errorf("expect = %v, want invalid", err)
			}
			return nil
		}, ""},
		{"new offers are given back", does(func(c *core) { c.offered(1, 2, 8) }), "release 8"},
		{"a receive that failed has ended", does(func(c *core) { c.received(1<<32|1, -16) }), ""},
		{"one that went well is not digested", does(func(c *core) { c.received(1<<32|2, 0) }), ""},
		{"the last to end is the digest", does(func(c *core) { c.digested(1<<32, pagesum.Digest{}, 0, nil) }), "drained"},
	})
}

func TestAFailureGivesBackWhatWaits(t *testing.T) {
	run(t, testCore(), []step{
		{"a transfer is expected", func(c *core) error { return c.expect(expectation(1, 7, 5, 9)) }, ""},
		{"pages are offered", does(func(c *core) {
			for i := range uint32(3) {
				c.offered(1, i, uint64(i))
			}
		}), "receive 0 into 7; receive 1 into 5"},
		{"one fails", does(func(c *core) { c.received(1<<32, -25) }), "receive 2 into 9; failed unavailable"},
		{"once is told once", does(func(c *core) { c.received(1<<32|1, -25) }), ""},
		{"the end waits", func(c *core) error { return c.end(testID(1)) }, ""},
		{"and comes", does(func(c *core) { c.received(1<<32|2, -25) }), "drained"},
		{"the end of one that is not there comes at once", func(c *core) error { return c.end(testID(5)) }, "drained"},
	})
	c := testCore()
	_ = c.expect(expectation(1, 1, 2, 3))
	for i := range uint32(3) {
		c.offered(1, i, uint64(i))
	}
	said(c)
	c.offered(1, 0, 50) // repeated
	if got := said(c); got != "release 50; release 2; failed corrupt" {
		t.Errorf("a repeat: %q", got)
	}
}

func TestADigestThatFailsFailsTheTransfer(t *testing.T) {
	run(t, testCore(), []step{
		{"a page comes", func(c *core) error {
			err := c.expect(expectation(1, 7))
			c.offered(1, 0, 1)
			c.received(1<<32, 0)
			return err
		}, "receive 1 into 7; digest 64 rows of 7"},
		{"its digest fails", does(func(c *core) { c.digested(1<<32, pagesum.Digest{}, 0, errs.New(errs.Internal, "no")) }), "failed internal"},
		{"the end", func(c *core) error { return c.end(testID(1)) }, "drained"},
	})
}

func TestPagesGoOut(t *testing.T) {
	run(t, testCore(), []step{
		{"a transfer goes out", func(c *core) error { return c.provide(testID(1), "peer", 2) }, "open"},
		{"pages within the window", func(c *core) error {
			return errors.Join(c.send(testID(1), 0, 4), c.send(testID(1), 1, 5), c.send(testID(1), 2, 6), c.send(testID(1), 3, 7))
		}, "send 4; send 5"},
		{"the second's end makes no room", does(func(c *core) { c.sent(1<<32|1, 0) }), "sent 1"},
		{"the first's makes it for both", does(func(c *core) { c.sent(1<<32, 0) }), "send 6; send 7; sent 0"},
		{"the end waits", func(c *core) error { return c.end(testID(1)) }, ""},
		{"for each", does(func(c *core) { c.sent(1<<32|2, -1) }), ""},
		{"and comes", does(func(c *core) { c.sent(1<<32|3, 0) }), "drained"},
		{"the next takes the other lane", func(c *core) error { return c.provide(testID(2), "peer", 2) }, "open"},
		{"and the third the first", func(c *core) error { return c.provide(testID(3), "peer", 2) }, ""},
	})
}

func TestABrokenEndpointFailsItsTransfersOnly(t *testing.T) {
	c := testCore()
	for i := range byte(3) {
		if err := c.provide(testID(i+1), "peer", 1); err != nil {
			t.Fatal(err)
		}
	}
	first := c.peers["peer"].lanes[0]
	first.number = 0
	if err := c.provide(testID(7), "other", 1); err != nil {
		t.Fatal(err)
	}
	said(c)
	run(t, c, []step{
		{"pages go out", func(c *core) error {
			return errors.Join(c.send(testID(1), 0, 1), c.send(testID(1), 1, 2), c.send(testID(2), 0, 3))
		},
			"send 1; send 3"},
		{"an endpoint breaks", does(func(c *core) { c.broken(first, -25) }), "close; failed unavailable; failed unavailable"},
		{"its page has not ended", func(c *core) error { return c.end(testID(1)) }, ""},
		{"until it has", does(func(c *core) { c.sent(1<<32, -25) }), "drained"},
		{"the other transfer goes on", does(func(c *core) { c.sent(2<<32, 0) }), "sent 0"},
		{"a page for a failed one is no error", func(c *core) error { return c.send(testID(3), 0, 9) }, ""},
		{"so does the other peer's", func(c *core) error { return c.send(testID(7), 0, 9) }, "send 9"},
		{"the next takes the other lane", func(c *core) error { return c.provide(testID(4), "peer", 1) }, ""},
		{"and the one after it gets a new endpoint", func(c *core) error { return c.provide(testID(5), "peer", 1) }, "open"},
	})
}

func TestWrongCalls(t *testing.T) {
	c := testCore()
	if err := errors.Join(c.expect(expectation(1, 1)), c.provide(testID(2), "peer", 1), c.send(testID(2), 0, 1)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		err  error
		want errs.Kind
	}{
		{"a transfer twice", c.expect(expectation(1, 2)), errs.Invalid},
		{"without an id", c.expect(expectation(0, 2)), errs.Invalid},
		{"without pages", c.expect(expectation(3)), errs.Invalid},
		{"a page of the pool that is not there", c.expect(expectation(3, 64)), errs.Invalid},
		{"a page twice", c.expect(expectation(3, 8, 8)), errs.Invalid},
		{"a page of another transfer", c.expect(expectation(3, 1)), errs.Invalid},
		{"without rows", c.expect(Expectation{ID: testID(3), Pages: []uint32{8}, Window: 1}), errs.Invalid},
		{"with 0 rows", c.expect(Expectation{ID: testID(3), Pages: []uint32{8}, Rows: []uint32{0}, Window: 1}), errs.Invalid},
		{"with 65 rows", c.expect(Expectation{ID: testID(3), Pages: []uint32{8}, Rows: []uint32{65}, Window: 1}), errs.Invalid},
		{"without a window", c.expect(Expectation{ID: testID(3), Pages: []uint32{8}, Rows: []uint32{1}}), errs.Invalid},
		{"out twice, to somebody new", c.provide(testID(2), "new", 1), errs.Invalid},
		{"to nobody", c.provide(testID(3), "", 1), errs.Invalid},
		{"to a long address", c.provide(testID(3), strings.Repeat("x", maxAddress+1), 1), errs.Invalid},
		{"send of one that comes in", c.send(testID(1), 0, 0), errs.NotFound},
		{"send of none", c.send(testID(9), 0, 0), errs.NotFound},
		{"send a place twice", c.send(testID(2), 0, 1), errs.Invalid},
		{"send a page that is not there", c.send(testID(2), 1, 64), errs.Invalid},
	} {
		if tt.err == nil || errs.KindOf(tt.err) != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, tt.err, tt.want)
		}
	}
	if len(c.peers) != 1 {
		t.Errorf("%d peers, want 1: a call that fails leaves nothing behind", len(c.peers))
	}
	if err := c.end(testID(2)); err != nil {
		t.Fatal(err)
	}
	if err := c.end(testID(2)); errs.KindOf(err) != errs.Invalid || err == nil {
		t.Errorf("end twice: %v", err)
	}
	if err := c.send(testID(2), 1, 2); errs.KindOf(err) != errs.Invalid || err == nil {
		t.Errorf("send after the end: %v", err)
	}
}

func TestPeersAreBounded(t *testing.T) {
	c := newCore(64, testPage, 2, 2, nil)
	for i := range maxPeers {
		if err := c.provide(ID{1, byte(i), byte(i >> 8)}, fmt.Sprint("peer", i), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.provide(testID(2), "one more", 1); errs.KindOf(err) != errs.Exhausted {
		t.Errorf("one more = %v, want exhausted", err)
	}
	if err := errors.Join(c.end(ID{1, 7}), c.provide(testID(2), "one more", 1)); err != nil {
		t.Errorf("one more when another has ended: %v", err)
	}
	if n := len(c.peers); n != maxPeers {
		t.Errorf("%d peers, want %d", n, maxPeers)
	}
	kinds := slices.IndexFunc(c.commands, func(x command) bool { return x.kind == closing })
	if kinds < 0 {
		t.Error("nothing of the forgotten peer is closed")
	}
}
