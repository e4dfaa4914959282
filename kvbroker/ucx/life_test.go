package ucx

import (
	"testing"
	"time"
)

func TestLife(t *testing.T) {
	start := time.Unix(1, 0)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	newLife := func(t *testing.T) *core {
		c := newCore(8, 64, 4, 1, statusText)
		if d := c.look(at(0)); d >= 0 {
			t.Fatalf("without transfers it looks again in %v", d)
		}
		if err := c.expect(Expectation{ID: ID{1}, Pages: []uint32{0}, Rows: []uint32{1}, Window: 1}); err != nil {
			t.Fatal(err)
		}
		return c
	}
	count := func(c *core) (probes, stuck int) {
		for _, x := range c.commands {
			if x.kind == probe {
				probes++
			}
		}
		for _, e := range c.events {
			if _, ok := e.(Stuck); ok {
				stuck++
			}
		}
		return probes, stuck
	}
	for _, tt := range []struct {
		name          string
		heard         time.Duration // 0: never
		looks         []time.Duration
		probes, stuck int
	}{
		{"quiet for less", 0, []time.Duration{0, quiet - 1}, 0, 0},
		{"quiet", 0, []time.Duration{0, quiet, quiet + 1, quiet + patient - 1}, 1, 0},
		{"no answer", 0, []time.Duration{0, quiet, quiet + patient, quiet + 2*patient, quiet + 9*patient}, 1, 1},
		{"an answer", quiet + 1, []time.Duration{0, quiet, quiet + 2, quiet + patient, quiet + 2*patient - 1}, 2, 0},
		{"the first look is late", 0, []time.Duration{9 * patient, 9*patient + quiet - 1}, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newLife(t)
			for _, d := range tt.looks {
				if tt.heard != 0 && d > tt.heard {
					c.heard()
					tt.heard = 0
				}
				c.look(at(d))
			}
			if probes, stuck := count(c); probes != tt.probes || stuck != tt.stuck {
				t.Errorf("%d probes and %d times stuck, want %d and %d", probes, stuck, tt.probes, tt.stuck)
			}
		})
	}
	t.Run("the transfer ends", func(t *testing.T) {
		c := newLife(t)
		c.look(at(0))
		c.look(at(quiet))
		if err := c.end(ID{1}); err != nil {
			t.Fatal(err)
		}
		if d := c.look(at(9 * patient)); d >= 0 {
			t.Errorf("without transfers it looks again in %v", d)
		}
		if _, stuck := count(c); stuck != 0 {
			t.Error("stuck without transfers")
		}
	})
}
