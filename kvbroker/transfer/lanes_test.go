package transfer

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

// over is a whole page of 100 bytes over a lane.
func over(lane, place uint32) LanePart { return LanePart{Part{place, 0, 100}, lane} }

func fivePagesOver(t *testing.T, lanes uint32) *Receiver {
	t.Helper()
	r := NewReceiver(&Expectation{Rows: 5 * 64, Pages: 5, PageBytes: 100})
	if err := r.Split(lanes); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLanesComeInAnyOrderOfEachOther(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		lanes := rapid.Uint32Range(1, 5).Draw(rt, "lanes")
		r := fivePagesOver(t, lanes)
		next := make([]uint32, lanes)
		for i := range next {
			next[i] = uint32(i)
		}
		half := make([]bool, lanes)
		for left := int(lanes); left > 0; {
			lane := rapid.Uint32Range(0, lanes-1).Draw(rt, "lane")
			switch {
			case next[lane] >= 5+lanes:
				continue
			case next[lane] >= 5:
				if lane > 0 {
					if _, err := r.Step(LaneEnded{Lane: lane}); err != nil {
						rt.Fatal(err)
					}
				}
				next[lane], left = 5+lanes, left-1
				continue
			}
			a := LanePart{Part{next[lane], 0, 60}, lane}
			if half[lane] {
				a.Offset, a.Length = 60, 40
			}
			p, err := r.Step(a)
			if err != nil || p.Landed != half[lane] || p.Landed && p.Place != next[lane] {
				rt.Fatalf("Step(%+v) = %+v, %v", a, p, err)
			}
			if half[lane] = !half[lane]; p.Landed {
				next[lane] += lanes
			}
		}
		for _, a := range []Arrival{Sent{5}, Completed{&brokerv1.Completion{}}, Ended{}} {
			if _, err := r.Step(a); err != nil {
				rt.Fatalf("Step(%+v): %v", a, err)
			}
		}
		if r.Pages() != 5 || r.Bytes() != 500 || r.Completion() == nil {
			rt.Errorf("%d pages, %d bytes, completion %v", r.Pages(), r.Bytes(), r.Completion())
		}
	})
}

func TestLanesAreRefused(t *testing.T) {
	cut := errs.New(errs.Unavailable, "connection reset")
	for _, tt := range []struct {
		name string
		in   []Arrival
		text string
	}{
		{"a page of another lane", []Arrival{over(0, 1)}, "page 1 over lane 0 of 2, where it does not belong"},
		{"another lane's next page", []Arrival{over(0, 0), over(1, 2)}, "page 2 over lane 1 of 2, where it does not belong"},
		{"a page that both lanes bring", []Arrival{over(0, 0), over(1, 0)}, "page 0 over lane 1 of 2"},
		{"a repeated page", []Arrival{over(1, 1), over(1, 1)}, "page 1 out of order, next is 3"},
		{"a gap in a lane", []Arrival{over(0, 0), over(1, 3)}, "page 3 out of order, next is 1"},
		{"a lane that is not there", []Arrival{over(2, 2)}, "page 2 over lane 2 of 2"},
		{"a lane far away", []Arrival{over(1<<32-1, 2)}, "over lane 4294967295 of 2"},
		{"a short page in a lane", []Arrival{LanePart{Part{1, 0, 99}, 1}, over(1, 3)}, "page 1 is short: 99 of 100 bytes, then page 3"},
		{"an end in the middle of a page", []Arrival{LanePart{Part{1, 0, 99}, 1}, LaneEnded{Lane: 1}}, "page 1 is short: 99 of 100"},
		{"an end before the last page", []Arrival{over(1, 1), LaneEnded{Lane: 1}}, "lane 1 ended before page 3 of 5"},
		{"an end without any page", []Arrival{LaneEnded{Lane: 1}}, "lane 1 ended before page 1 of 5"},
		{"two ends", []Arrival{over(1, 1), over(1, 3), LaneEnded{Lane: 1}, LaneEnded{Lane: 1}}, "lane 1 ended twice"},
		{"a part after the end", []Arrival{over(1, 1), over(1, 3), LaneEnded{Lane: 1}, over(1, 3)}, "part of page 3 after the end of lane 1"},
		{"the end of the Pull's own lane", []Arrival{LaneEnded{}}, "the end of lane 0 of 2"},
		{"the end of a lane that is not there", []Arrival{LaneEnded{Lane: 2}}, "the end of lane 2 of 2"},
		{"all sent while a lane goes on", []Arrival{over(0, 0), over(0, 2), over(0, 4), over(1, 1), over(1, 3), Sent{5}}, "all sent, and lane 1 has not ended"},
		{"all sent and a page missing", []Arrival{over(0, 0), over(0, 2), over(1, 1), over(1, 3), LaneEnded{Lane: 1}, Sent{5}}, "5 pages sent, 4 arrived, 5 expected"},
		{"a lane that was cut", []Arrival{over(1, 1), over(1, 3), LaneEnded{Lane: 1, Err: cut}}, "connection reset"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := fivePagesOver(t, 2)
			for i, a := range tt.in {
				_, err := r.Step(a)
				if last := i == len(tt.in)-1; (err != nil) != last {
					t.Fatalf("arrival %d: Step(%+v) = %v", i, a, err)
				} else if last && !strings.Contains(err.Error(), tt.text) {
					t.Errorf("Step(%+v) = %v, want %q", a, err, tt.text)
				}
			}
			if _, err := r.Step(over(0, 0)); err == nil {
				t.Error("the receiver goes on after its error")
			}
		})
	}
}

func TestSplitIsForAFreshReceiverAndNoMoreLanesThanPages(t *testing.T) {
	for _, lanes := range []uint32{0, 6, 1<<32 - 1} {
		if err := NewReceiver(&Expectation{Pages: 5, PageBytes: 100}).Split(lanes); errs.KindOf(err) != errs.Internal {
			t.Errorf("Split(%d) of 5 pages = %v", lanes, err)
		}
	}
	r := fivePagesOver(t, 1)
	if _, err := r.Step(over(0, 0)); err != nil {
		t.Fatal(err)
	}
	if err := r.Split(2); err == nil {
		t.Error("Split after a part is taken")
	}
	if err := fivePagesOver(t, 2).Split(3); err == nil {
		t.Error("a second Split is taken")
	}
}

func TestACloneOfLanesGoesItsOwnWay(t *testing.T) {
	r := fivePagesOver(t, 2)
	c := r.Clone()
	if _, err := c.Step(LaneEnded{Lane: 1, Err: errors.New("cut")}); err == nil {
		t.Fatal("the clone goes on")
	}
	c = r.Clone()
	for _, a := range []Arrival{over(1, 1), over(1, 3)} {
		if _, err := c.Step(a); err != nil {
			t.Fatal(err)
		}
	}
	if p, err := r.Step(over(1, 1)); err != nil || !p.Landed {
		t.Errorf("the original went with its clone: %+v, %v", p, err)
	}
}
