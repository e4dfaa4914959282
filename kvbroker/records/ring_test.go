package records_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"leasehold.dev/kvbroker/records"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

func numbers(rs []*brokerv1.LeaseRecord) string {
	var out []string
	for _, r := range rs {
		out = append(out, fmt.Sprint(r.Seq))
	}
	return strings.Join(out, " ")
}

func TestAfter(t *testing.T) {
	for _, c := range []struct {
		added int
		after uint64
		most  int
		want  string
	}{
		{0, 0, 9, ""},
		{1, 0, 9, "1"},
		{1, 1, 9, ""},
		{3, 0, 9, "1 2 3"},
		{3, 1, 1, "2"},
		{4, 0, 9, "1 2 3 4"},
		{5, 0, 9, "2 3 4 5"}, // 1 fell out: the reader sees a hole
		{5, 1, 9, "2 3 4 5"},
		{11, 0, 9, "8 9 10 11"},
		{11, 9, 9, "10 11"},
		{11, 11, 9, ""},
	} {
		g := records.New(4)
		for range c.added {
			g.Add(&brokerv1.LeaseRecord{})
		}
		got, err := g.After(c.after, c.most)
		if err != nil || numbers(got) != c.want || g.Head() != uint64(c.added) {
			t.Errorf("%d added, after %d: %q (%v), head %d; want %q", c.added, c.after, numbers(got), err, g.Head(), c.want)
		}
		if _, err := g.After(uint64(c.added)+1, 9); errs.KindOf(err) != errs.Stale {
			t.Errorf("%d added, after one more: %v, want stale", c.added, err)
		}
	}
}

// A reader that keeps up, in whatever steps, gets every record once and in order.
func TestAReaderThatKeepsUpMissesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 9).Draw(t, "size")
		g, last := records.New(size), uint64(0)
		for range rapid.IntRange(0, 40).Draw(t, "rounds") {
			for range rapid.IntRange(0, size).Draw(t, "added") {
				g.Add(&brokerv1.LeaseRecord{})
			}
			for last < g.Head() {
				got, err := g.After(last, rapid.IntRange(1, size).Draw(t, "most"))
				if err != nil || len(got) == 0 {
					t.Fatalf("after %d of %d: %v, %v", last, g.Head(), got, err)
				}
				for _, r := range got {
					if r.Seq != last+1 {
						t.Fatalf("%d follows %d", r.Seq, last)
					}
					last = r.Seq
				}
			}
		}
	})
}
