package transfer

import (
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/pagesum"
)

func TestExpectNumbers(t *testing.T) {
	for _, tt := range []struct {
		n           int
		from        uint32
		rows, pages uint32
		last        uint32 // rows of the last page
	}{
		{2, 0, 1, 1, 1}, {64, 0, 63, 1, 63}, {65, 0, 64, 1, 64}, {66, 0, 65, 2, 1}, {129, 0, 128, 2, 64}, {130, 0, 129, 3, 1},
		{129, 64, 64, 1, 64}, {130, 64, 65, 2, 1}, {2001, 1984, 16, 1, 16},
	} {
		e := newPair(t, tt.n, tt.from).e
		if e.Rows != tt.rows || e.Pages != tt.pages || e.RowsOf(e.Pages-1) != tt.last {
			t.Errorf("Expect(%d tokens, from %d) = %d rows in %d pages, the last has %d; want %d in %d, %d", tt.n, tt.from, e.Rows, e.Pages,
				e.RowsOf(e.Pages-1), tt.rows, tt.pages, tt.last)
		}
		var sum uint32
		for i := range e.Pages + 2 {
			sum += e.RowsOf(i)
		}
		if sum != e.Rows {
			t.Errorf("Expect(%d tokens, from %d): the pages' rows add up to %d, want %d", tt.n, tt.from, sum, e.Rows)
		}
	}
	huge := Expectation{Rows: math.MaxUint32, Pages: 1 << 26}
	if got := huge.RowsOf(huge.Pages - 1); got != 63 {
		t.Errorf("the last of 2^26 pages has %d rows, want 63", got)
	}
}

func TestExpectRefuses(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func(*meshv1.Admission, *Broker, *[]int32, *uint32)
		kind   errs.Kind
		text   string
	}{
		{"one token: nothing to move", func(a *meshv1.Admission, _ *Broker, ids *[]int32, _ *uint32) {
			a.PromptTokens, *ids = 1, (*ids)[:1]
		}, errs.Invalid, "no row to move of 1 tokens"},
		{"no token", func(a *meshv1.Admission, _ *Broker, ids *[]int32, _ *uint32) { a.PromptTokens, *ids = 0, nil },
			errs.Invalid, "no row to move of 0 tokens"},
		{"all rows are held", func(_ *meshv1.Admission, _ *Broker, _ *[]int32, from *uint32) { *from = 149 },
			errs.Invalid, "no row to move of 150 tokens from 149"},
		{"a start past the end", func(_ *meshv1.Admission, _ *Broker, _ *[]int32, from *uint32) { *from = math.MaxUint32 },
			errs.Invalid, "no row to move"},
		{"a start inside a page", func(_ *meshv1.Admission, _ *Broker, _ *[]int32, from *uint32) { *from = 63 },
			errs.Invalid, "from row 63"},
		{"fewer ids than admitted", func(_ *meshv1.Admission, _ *Broker, ids *[]int32, _ *uint32) { *ids = (*ids)[1:] },
			errs.Corrupt, "149 token ids presented, 150 admitted"},
		{"one other id", func(_ *meshv1.Admission, _ *Broker, ids *[]int32, _ *uint32) { (*ids)[70]++ },
			errs.Corrupt, "prompt digest differs"},
		{"an admission of another tenant's digest", func(a *meshv1.Admission, _ *Broker, _ *[]int32, _ *uint32) { a.Tenant = "globex" },
			errs.Corrupt, "prompt digest differs"},
		{"other weights here", func(_ *meshv1.Admission, b *Broker, _ *[]int32, _ *uint32) { b.ModelRevision = hash32("newer") },
			errs.Invalid, "admission for weights"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPair(t, 150, 0)
			a, own, ids, from := proto.Clone(p.admission).(*meshv1.Admission), p.d, p.ids, uint32(0)
			tt.change(a, &own, &ids, &from)
			e, err := Expect(a, own, ids, from)
			if e != nil || errs.KindOf(err) != tt.kind || err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Errorf("Expect = %+v, %v (%v), want %v with %q", e, err, errs.KindOf(err), tt.kind, tt.text)
			}
		})
	}
	if _, err := Expect(nil, Broker{}, nil, 0); errs.KindOf(err) != errs.Invalid {
		t.Errorf("Expect(nil) = %v, want Invalid", err)
	}
}

// TestOwnViewComesFirst: when everything is wrong, the receiver names what it sees itself.
func TestOwnViewComesFirst(t *testing.T) {
	p := newPair(t, 150, 0)
	full := []Found{{pagesum.Digest{1}, 64}, {pagesum.Digest{2}, 64}, {pagesum.Digest{3}, 21}}
	for _, tt := range []struct {
		name  string
		found []Found
		text  string
	}{
		{"no pages, no completion", nil, "0 pages arrived, 3 expected"},
		{"a page too many, no completion", append(full[:3:3], full[0]), "4 pages arrived, 3 expected"},
		{"a row missing, no completion", []Found{full[0], {pagesum.Digest{2}, 63}, full[2]}, "page 1 arrived with 63 rows written, 64 expected"},
		{"a row too many, no completion", []Found{full[0], full[1], {pagesum.Digest{3}, 22}}, "page 2 arrived with 22 rows written, 21 expected"},
		{"all there, no completion", full, "no completion"},
	} {
		err := Verify(p.e, p.p, p.secret, nil, tt.found)
		if errs.KindOf(err) != errs.Corrupt || err == nil || !strings.Contains(err.Error(), tt.text) {
			t.Errorf("%s: Verify = %v, want Corrupt with %q", tt.name, err, tt.text)
		}
	}
}
