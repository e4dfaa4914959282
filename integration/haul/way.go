package haul

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	warmUps = 1
	// Runs of each way that count.
	Runs = 7
)

// Timing of one run.
type Timing struct {
	Moved    time.Duration // until the last byte was in its place
	Verified time.Duration // until it was proven right; 0: the way proves nothing
}

// Way moves one load again and again. One goroutine uses it.
type Way interface {
	// Clear empties the destination.
	Clear(context.Context) error
	Run(context.Context) (Timing, error)
	// Check compares what lies at the destination with the load.
	Check(context.Context) error
	Close() error
}

// Maker makes a way.
type Maker struct {
	Name string
	// Checked says how what arrived is looked at: "digest" in every run, "content" after the last, or why it is not.
	Checked string
	Open    func(context.Context, Load) (Way, error)
}

// Row is what was measured of one way with one load. Rates are in GB/s, 10^9 bytes.
type Row struct {
	Way       string    `json:"way"`
	PageBytes int       `json:"page_bytes"`
	Order     string    `json:"order"`
	Bytes     int       `json:"bytes"`
	Moved     float64   `json:"gb_s,omitempty"` // median
	Least     float64   `json:"gb_s_min,omitempty"`
	Most      float64   `json:"gb_s_max,omitempty"`
	Verified  float64   `json:"gb_s_verified,omitempty"` // median, its proof included
	Checked   string    `json:"checked,omitempty"`
	Runs      []float64 `json:"runs,omitempty"` // rates of moving, in their order
	Proofs    []float64 `json:"proofs,omitempty"`
	Error     string    `json:"error,omitempty"`
}

// Measure opens the makers' ways and lets their runs alternate. A way that fails has a row that says so.
func Measure(ctx context.Context, l Load, makers ...Maker) []Row {
	rows := make([]Row, len(makers))
	ways := make([]Way, len(makers))
	for i, m := range makers {
		rows[i] = Row{Way: m.Name, PageBytes: l.PageBytes, Order: l.Order(), Bytes: l.Size(), Checked: m.Checked}
		var err error
		if ways[i], err = m.Open(ctx, l); err != nil {
			rows[i].fail(err)
		}
	}
	for n := range warmUps + Runs {
		for i := range ways {
			if rows[i].Error != "" {
				continue
			}
			if err := rows[i].run(ctx, ways[i], n >= warmUps); err != nil {
				rows[i].fail(err)
			}
		}
	}
	for i, w := range ways {
		if w == nil {
			continue
		}
		if rows[i].Error == "" {
			if err := w.Check(ctx); err != nil {
				rows[i].fail(fmt.Errorf("check: %w", err))
			}
		}
		if err := w.Close(); err != nil && rows[i].Error == "" {
			rows[i].fail(err)
		}
		rows[i].close()
	}
	return rows
}

func (r *Row) fail(err error) {
	*r = Row{Way: r.Way, PageBytes: r.PageBytes, Order: r.Order, Bytes: r.Bytes, Error: err.Error()}
}

func (r *Row) run(ctx context.Context, w Way, counts bool) error {
	if err := errors.Join(ctx.Err(), w.Clear(ctx)); err != nil {
		return err
	}
	t, err := w.Run(ctx)
	if err != nil || !counts {
		return err
	}
	r.Runs = append(r.Runs, r.rate(t.Moved))
	if t.Verified > 0 {
		r.Proofs = append(r.Proofs, r.rate(t.Verified))
	}
	return nil
}

func (r *Row) rate(d time.Duration) float64 { return float64(r.Bytes) / d.Seconds() / 1e9 }

func (r *Row) close() {
	if len(r.Runs) == 0 {
		return
	}
	r.Moved, r.Least, r.Most = Median(r.Runs), slices.Min(r.Runs), slices.Max(r.Runs)
	if len(r.Proofs) > 0 {
		r.Verified = Median(r.Proofs)
	}
}

// Median of an odd number of figures, or the upper of the two in the middle.
func Median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}
