package receipt_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"leasehold.dev/protos/errs"
	"leasehold.dev/router/receipt"
)

func number(n int) receipt.ID { return receipt.ID{byte(n), byte(n >> 8), 1} }

func store(t testing.TB, l receipt.Limits) *receipt.Store {
	t.Helper()
	s, err := receipt.NewStore(l)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAReceiptIsItsTenantsAlone(t *testing.T) {
	s := store(t, receipt.DefaultLimits)
	if err := s.Put(began, id, "acme", "jws"); err != nil {
		t.Fatal(err)
	}
	if jws, err := s.Get(began, id, "acme"); err != nil || jws != "jws" {
		t.Errorf("the owner gets %q, %v", jws, err)
	}
	_, none := s.Get(began, number(1), "acme")
	for _, other := range []string{"bolt", "", "acm", "acme ", "ACME"} {
		_, err := s.Get(began, id, other)
		if errs.KindOf(err) != errs.NotFound || err.Error() != none.Error() {
			t.Errorf("%q hears %v, of one that never was %v", other, err, none)
		}
	}
	if err := s.Put(began, id, "bolt", "another"); errs.KindOf(err) != errs.Internal {
		t.Errorf("the same id again: %v", err)
	}
	if jws, _ := s.Get(began, id, "acme"); jws != "jws" {
		t.Errorf("it became %q", jws)
	}
}

func TestEachLimitIsHeld(t *testing.T) {
	s := store(t, receipt.Limits{Keep: time.Minute, Count: 3, Bytes: 1 << 20})
	for i := range 5 {
		if err := s.Put(began.Add(time.Duration(i)*time.Second), number(i), "acme", "jws"); err != nil {
			t.Fatal(err)
		}
	}
	at := began.Add(5 * time.Second)
	for i := range 5 {
		if _, err := s.Get(at, number(i), "acme"); (err == nil) != (i >= 2) {
			t.Errorf("receipt %d of 5, 3 are kept: %v", i, err)
		}
	}
	if n, _, d := s.Size(); n != 3 || d != (receipt.Dropped{Count: 2}) {
		t.Errorf("%d kept, dropped %+v", n, d)
	}
	if _, err := s.Get(began.Add(time.Minute+2*time.Second-1), number(2), "acme"); err != nil {
		t.Errorf("just before its time: %v", err)
	}
	if _, err := s.Get(began.Add(time.Minute+2*time.Second), number(2), "acme"); errs.KindOf(err) != errs.NotFound {
		t.Errorf("at its time: %v", err)
	}
	if n, _, d := s.Size(); n != 2 || d != (receipt.Dropped{Count: 2, Age: 1}) {
		t.Errorf("%d kept, dropped %+v", n, d)
	}

	s = store(t, receipt.Limits{Keep: time.Minute, Count: 100, Bytes: 4000})
	long := strings.Repeat("a", 1500)
	for i := range 3 {
		if err := s.Put(began, number(i), "acme", long); err != nil {
			t.Fatal(err)
		}
	}
	n, b, d := s.Size()
	if _, err := s.Get(began, number(2), "acme"); err != nil || n != 1 || b > 4000 || b < 1500 || d != (receipt.Dropped{Bytes: 2}) {
		t.Errorf("%d kept in %d bytes, dropped %+v, %v", n, b, d, err)
	}
	if err := s.Put(began, number(9), "acme", strings.Repeat("a", 4000)); errs.KindOf(err) != errs.Internal {
		t.Errorf("one that is over the limit alone: %v", err)
	}
	if _, err := s.Get(began, number(2), "acme"); err != nil {
		t.Errorf("it pushed out another: %v", err)
	}
}

func TestLimitsThatAreRefused(t *testing.T) {
	for _, l := range []receipt.Limits{{}, {Keep: 1, Count: 1}, {Keep: 1, Bytes: 1}, {Count: 1, Bytes: 1}, {Keep: -1, Count: 1, Bytes: 1}} {
		if _, err := receipt.NewStore(l); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%+v: %v", l, err)
		}
	}
}

func TestIDs(t *testing.T) {
	if got, ok := receipt.ParseID(id.String()); !ok || got != id {
		t.Errorf("%v became %v, %v", id, got, ok)
	}
	for _, s := range []string{"", "00", id.String() + "00", id.String()[:31], strings.ToUpper(id.String()), "zz" + id.String()[2:], " " + id.String()[1:], "../" + id.String()[3:]} {
		if _, ok := receipt.ParseID(s); ok {
			t.Errorf("%q is taken", s)
		}
	}
}

// A model beside it: whatever is put and asked, limits hold, and what is given out is what its tenant put.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := receipt.Limits{Keep: 10, Count: rapid.IntRange(1, 6).Draw(t, "count"), Bytes: rapid.Int64Range(1000, 4000).Draw(t, "bytes")}
		s, err := receipt.NewStore(l)
		if err != nil {
			t.Fatal(err)
		}
		type put struct {
			tenant string
			at     time.Time
		}
		all := map[int]put{}
		now := began
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				n, tenant := len(all), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "tenant")
				if err := s.Put(now, number(n), tenant, tenant+strings.Repeat("x", rapid.IntRange(0, 400).Draw(t, "size"))); err != nil {
					t.Fatal(err)
				}
				all[n] = put{tenant, now}
				if _, err := s.Get(now, number(n), tenant); err != nil {
					t.Fatalf("what was just put: %v", err)
				}
			},
			"wait": func(t *rapid.T) { now = now.Add(time.Duration(rapid.IntRange(0, 6).Draw(t, "d"))) },
			"": func(t *rapid.T) {
				found := 0
				for n, p := range all {
					for _, tenant := range []string{"a", "b"} {
						jws, err := s.Get(now, number(n), tenant)
						if err != nil {
							continue
						}
						found++
						if tenant != p.tenant || jws[:1] != tenant || now.Sub(p.at) >= l.Keep {
							t.Fatalf("%s gets receipt %d of %s after %v", tenant, n, p.tenant, now.Sub(p.at))
						}
					}
				}
				n, b, d := s.Size()
				if n != found || n > l.Count || b > l.Bytes || int64(n)+d.Age+d.Bytes+d.Count != int64(len(all)) {
					t.Fatalf("%d kept (%d found) in %d bytes, dropped %+v of %d, limits %+v", n, found, b, d, len(all), l)
				}
			},
		})
	})
}
