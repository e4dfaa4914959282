package prefill

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/runner"
	"leasehold.dev/kvbroker/client"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/pagesum"
)

func sum(place, rows uint32) pagesum.Digest { return pagesum.Digest{byte(place), byte(rows), 1} }

// outcome is a step that appends rows [from, to).
func outcome(from, to uint32) runner.Outcome {
	o := runner.Outcome{Length: to}
	for i := from; i < to; i++ {
		o.Fed = append(o.Fed, int32(i))
	}
	for place := from / 64; place*64 < to; place++ {
		rows := min(to-place*64, 64)
		o.Pages = append(o.Pages, engine.PageDigest{Place: place, Rows: rows, Digest: sum(place, rows)})
	}
	return o
}

// Whatever the chunks: full pages can be taken as they fill, the last is left for the end, and all is counted.
func TestPagesCountWhatStepsAppend(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Uint32Range(1, 400).Draw(t, "rows")
		last := (total+63)/64 - 1
		least := rapid.IntRange(1, 4).Draw(t, "least")
		p := newPages()
		if rapid.Bool().Draw(t, "guards off") {
			p.sum = func(place, rows uint32) (pagesum.Digest, error) { return sum(place, rows), nil }
		}
		var seals []client.Seal
		for at := uint32(0); at < total; {
			to := min(total, at+rapid.Uint32Range(1, 200).Draw(t, "chunk"))
			o := outcome(at, to)
			if p.sum != nil {
				o.Pages = nil
			}
			if _, _, err := p.Step(o); err != nil {
				t.Fatal(err)
			}
			at = to
			if rapid.Bool().Draw(t, "take") {
				got := p.take(last, least)
				if n := len(got); n > 0 && n < least && uint32(len(seals)+n) < last {
					t.Fatalf("%d pages were taken, want at least %d", n, least)
				}
				seals = append(seals, got...)
			}
		}
		for _, s := range seals {
			if s.Rows != 64 || s.Index >= last {
				t.Fatalf("page %d of %d rows was taken before the end, the last is %d", s.Index, s.Rows, last)
			}
		}
		seals = append(seals, p.rest()...)
		for i, s := range seals {
			want := client.Seal{Index: uint32(i), Rows: min(total-uint32(i)*64, 64)}
			want.Digest = sum(want.Index, want.Rows)
			if s != want {
				t.Fatalf("seal %d is %+v, want %+v", i, s, want)
			}
		}
		pages, rows, fed := p.counted()
		if pages != last+1 || int(pages) != len(seals) || rows != total || len(fed) != int(total) || !slices.IsSorted(fed) {
			t.Fatalf("%d pages, %d rows and %d ids are counted, want %d, %d, %d", pages, rows, len(fed), last+1, total, total)
		}
	})
}

func TestPagesRefuseWhatCannotBe(t *testing.T) {
	d := func(place, rows uint32) engine.PageDigest {
		return engine.PageDigest{Place: place, Rows: rows, Digest: sum(place, rows)}
	}
	for _, tt := range []struct {
		name string
		then []engine.PageDigest // after a first step of 10 rows
	}{
		{"a page is left out", []engine.PageDigest{d(1, 3)}},
		{"a page goes on before it is full", []engine.PageDigest{d(0, 63), d(1, 1)}},
		{"rows that are fewer than before", []engine.PageDigest{d(0, 9)}},
		{"rows that do not grow", []engine.PageDigest{d(0, 10)}},
		{"more rows than a page has", []engine.PageDigest{d(0, 65)}},
		{"a full page is appended to", []engine.PageDigest{d(0, 64), d(0, 64)}},
		{"a digest of nothing", []engine.PageDigest{{Place: 0, Rows: 20}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPages()
			if _, _, err := p.Step(outcome(0, 10)); err != nil {
				t.Fatal(err)
			}
			if _, _, err := p.Step(runner.Outcome{Length: 100, Pages: tt.then}); errs.KindOf(err) != errs.Corrupt || err == nil {
				t.Errorf("Step = %v, want corrupt", err)
			}
		})
	}
}

func TestPagesAtRestPassErrorsOn(t *testing.T) {
	p := newPages()
	p.sum = func(uint32, uint32) (pagesum.Digest, error) {
		return pagesum.Digest{}, errs.New(errs.Internal, "no such page")
	}
	if _, _, err := p.Step(runner.Outcome{Length: 3}); err == nil || err.Error() != "no such page" {
		t.Errorf("Step = %v", err)
	}
}
