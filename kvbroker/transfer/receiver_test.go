package transfer

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// twoPages of 100 bytes each are expected.
func twoPages() *Expectation { return &Expectation{Rows: 65, Pages: 2, PageBytes: 100} }

func TestReceiverFollowsAGoodStream(t *testing.T) {
	c := &brokerv1.Completion{}
	r := NewReceiver(twoPages())
	for i, tt := range []struct {
		a    Arrival
		want Progress
	}{
		{Part{0, 0, 60}, Progress{}},
		{Part{0, 60, 40}, Progress{Landed: true, Place: 0}},
		{Part{1, 0, 100}, Progress{Landed: true, Place: 1}},
		{Sent{2}, Progress{Received: true}},
		{Completed{c}, Progress{Completed: true}},
		{Ended{}, Progress{Done: true}},
	} {
		if got := r.Completion(); (got != nil) != (i == 5) {
			t.Fatalf("before arrival %d the completion is %v", i, got)
		}
		got, err := r.Step(tt.a)
		if err != nil || got != tt.want {
			t.Fatalf("arrival %d: Step(%+v) = %+v, %v; want %+v", i, tt.a, got, err, tt.want)
		}
	}
	if r.Pages() != 2 || r.Bytes() != 200 || r.Completion() != c {
		t.Errorf("%d pages, %d bytes, completion %v", r.Pages(), r.Bytes(), r.Completion())
	}
}

func TestReceiverRefuses(t *testing.T) {
	page0, page1 := Part{0, 0, 100}, Part{1, 0, 100}
	c := Completed{&brokerv1.Completion{}}
	broken := errors.New("connection reset")
	for _, tt := range []struct {
		name string
		in   []Arrival
		text string
	}{
		{"the second page first", []Arrival{page1}, "page 1 out of order, next is 0"},
		{"a page twice", []Arrival{page0, page0}, "page 0 out of order, next is 1"},
		{"a page once more at the end", []Arrival{page0, page1, page1}, "page 1 out of order, next is 2"},
		{"a page that is not expected", []Arrival{page0, page1, Part{2, 0, 100}}, "page 2, 2 expected"},
		{"a place far away", []Arrival{Part{1<<32 - 1, 0, 100}}, "page 4294967295, 2 expected"},
		{"a part twice", []Arrival{Part{0, 0, 50}, Part{0, 0, 50}}, "page 0 at offset 0, next is 50"},
		{"a gap", []Arrival{Part{0, 0, 50}, Part{0, 60, 40}}, "page 0 at offset 60, next is 50"},
		{"an overlap", []Arrival{Part{0, 0, 50}, Part{0, 49, 51}}, "page 0 at offset 49, next is 50"},
		{"a start inside", []Arrival{Part{0, 1, 99}}, "page 0 at offset 1, next is 0"},
		{"an empty part", []Arrival{Part{0, 0, 0}}, "page 0 with an empty part"},
		{"a byte too many", []Arrival{Part{0, 0, 101}}, "page 0 with 101 bytes at offset 0, a page has 100"},
		{"a byte too many in the last part", []Arrival{Part{0, 0, 50}, Part{0, 50, 51}}, "51 bytes at offset 50"},
		{"a length beyond all", []Arrival{Part{0, 0, 50}, Part{0, 50, 1<<64 - 1}}, "18446744073709551615 bytes at offset 50"},
		{"a short page, then the next", []Arrival{Part{0, 0, 99}, page1}, "page 0 is short: 99 of 100 bytes, then page 1"},
		{"a short page, then sent", []Arrival{page0, Part{1, 0, 99}, Sent{2}}, "page 1 is short: 99 of 100 bytes"},
		{"sent too early", []Arrival{page0, Sent{2}}, "2 pages sent, 1 arrived, 2 expected"},
		{"sent with fewer", []Arrival{page0, page1, Sent{1}}, "1 pages sent, 2 arrived, 2 expected"},
		{"sent with more", []Arrival{page0, page1, Sent{3}}, "3 pages sent"},
		{"sent at once", []Arrival{Sent{0}}, "0 pages sent, 0 arrived, 2 expected"},
		{"sent twice", []Arrival{page0, page1, Sent{2}, Sent{2}}, "sent twice"},
		{"a part after sent", []Arrival{page0, page1, Sent{2}, page1}, "part of page 1 after all 2 were sent"},
		{"a completion before sent", []Arrival{page0, page1, c}, "completion after 2 of 2 pages"},
		{"a completion twice", []Arrival{page0, page1, Sent{2}, c, c}, "a second completion"},
		{"a completion of nothing", []Arrival{page0, page1, Sent{2}, Completed{}}, "an empty completion"},
		{"an end without a completion", []Arrival{page0, page1, Sent{2}, Ended{}}, "ended without a completion"},
		{"an end at once", []Arrival{Ended{}}, "after 0 of 2 pages"},
		{"a broken stream", []Arrival{page0, Ended{broken}}, "connection reset"},
		{"a broken stream after the completion", []Arrival{page0, page1, Sent{2}, c, Ended{broken}}, "connection reset"},
		{"anything after the end", []Arrival{page0, page1, Sent{2}, c, Ended{}, Ended{}}, "after the end"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := NewReceiver(twoPages())
			var err error
			for i, a := range tt.in {
				if _, err = r.Step(a); (err != nil) != (i == len(tt.in)-1) {
					t.Fatalf("arrival %d of %d: %v", i, len(tt.in), err)
				}
			}
			if !strings.Contains(err.Error(), tt.text) || errs.KindOf(err) != errs.Corrupt && !errors.Is(err, broken) {
				t.Errorf("error %v (%v), want Corrupt with %q", err, errs.KindOf(err), tt.text)
			}
			for _, a := range []Arrival{page0, page1, Sent{2}, c, Ended{}} { // the first error is final
				if p, again := r.Step(a); !errors.Is(again, err) || p != (Progress{}) {
					t.Errorf("Step(%T) after the error = %+v, %v", a, p, again)
				}
			}
		})
	}
}

func TestUnknownArrivalIsABug(t *testing.T) {
	if _, err := NewReceiver(twoPages()).Step(nil); errs.KindOf(err) != errs.Internal {
		t.Errorf("Step(nil) = %v, want Internal", err)
	}
}

// TestReceiverTakesEveryByteOnce: whatever comes, in whatever order, a receiver that ends well has let each byte of each page
// be stored exactly once, and in order.
func TestReceiverTakesEveryByteOnce(t *testing.T) {
	good := 0
	rapid.Check(t, func(t *rapid.T) {
		e := &Expectation{Pages: rapid.Uint32Range(1, 3).Draw(t, "pages"), PageBytes: 12}
		in := stream(t, e)
		if rapid.Bool().Draw(t, "harmed") {
			in = harmed(t, in)
		}
		r := NewReceiver(e)
		var stored []string
		for _, a := range in {
			progress, err := r.Step(a)
			if err != nil {
				return
			}
			if p, ok := a.(Part); ok {
				for i := range p.Length {
					stored = append(stored, fmt.Sprintf("%d:%d", p.Place, uint64(p.Offset)+i))
				}
			}
			if progress.Done {
				good++
				var want []string
				for place := range e.Pages {
					for i := range e.PageBytes {
						want = append(want, fmt.Sprintf("%d:%d", place, i))
					}
				}
				if d := cmp.Diff(want, stored); d != "" || r.Bytes() != uint64(len(want)) {
					t.Fatalf("stored (-want +got), %d bytes counted:\n%s", r.Bytes(), d)
				}
			}
		}
	})
	if good == 0 {
		t.Error("no stream ended well")
	}
}

// stream draws a good one, cut into parts at random.
func stream(t *rapid.T, e *Expectation) (in []Arrival) {
	for place := range e.Pages {
		for at := uint64(0); at < e.PageBytes; {
			n := rapid.Uint64Range(1, e.PageBytes-at).Draw(t, "length")
			in = append(in, Part{place, uint32(at), n})
			at += n
		}
	}
	return append(in, Sent{e.Pages}, Completed{&brokerv1.Completion{}}, Ended{})
}

func harmed(t *rapid.T, in []Arrival) []Arrival {
	i, j := rapid.IntRange(0, len(in)-1).Draw(t, "i"), rapid.IntRange(0, len(in)-1).Draw(t, "j")
	switch rapid.IntRange(0, 3).Draw(t, "harm") {
	case 0:
		in[i], in[j] = in[j], in[i]
	case 1:
		return append(in[:i:i], in[i+1:]...)
	case 2:
		return append(in[:i:i], append([]Arrival{in[j]}, in[i:]...)...)
	case 3:
		if p, ok := in[i].(Part); ok {
			p.Length += rapid.Uint64Range(0, 2).Draw(t, "more")
			p.Offset += rapid.Uint32Range(0, 2).Draw(t, "later")
			in[i] = p
		}
	}
	return in
}
