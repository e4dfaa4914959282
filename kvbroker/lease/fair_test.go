package lease

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"leasehold.dev/protos/errs"
)

// flood reserves single pages for a tenant until it is refused, and returns how many it got.
func flood(t testing.TB, tab *Table, tenant string, at *int) (got uint32) {
	t.Helper()
	for {
		r := solo(fmt.Sprintf("%d", *at), 1)
		*at++
		r.Tenant = tenant
		if _, err := tab.Step(r); err != nil {
			if errs.KindOf(err) != errs.Exhausted {
				t.Fatalf("%s: %v, want Exhausted", tenant, err)
			}
			return got
		}
		got++
	}
}

// TestAFloodLeavesRoom is T6 at one broker: whoever floods, the next tenant finds pages at once, and has more of them the sooner
// the flood's leases end.
func TestAFloodLeavesRoom(t *testing.T) {
	for _, tt := range []struct {
		share, pages uint32
		want         []uint32 // of each tenant that floods, one after the other
		free         uint32
	}{
		{0, 100, []uint32{100, 0}, 0},
		{4, 100, []uint32{80, 16, 3}, 1},
		{2, 90, []uint32{60, 20, 6}, 4},
		{1, 64, []uint32{32, 16, 8, 4, 2}, 2},
		{1, 1, []uint32{1, 0}, 0}, // its first request may have all
	} {
		tab, at := newTable(t, Config{Pages: tt.pages, Share: tt.share}), 0
		for i, want := range tt.want {
			if got := flood(t, tab, fmt.Sprint("tenant ", i), &at); got != want {
				t.Errorf("share %d of %d pages: tenant %d got %d, want %d", tt.share, tt.pages, i, got, want)
			}
		}
		if tab.Free() != tt.free {
			t.Errorf("share %d of %d pages: %d free, want %d", tt.share, tt.pages, tab.Free(), tt.free)
		}
	}
}

// TestFloodsComeToEqualParts: leases end and are asked for again, a tenant at a time; in the end all have the same.
func TestFloodsComeToEqualParts(t *testing.T) {
	const pages, share, tenants = 130, 4, 3 // 4 parts of 13 for each, and one stays free
	tab, at := newTable(t, Config{Pages: pages, Share: share}), 0
	for round := range 40 * tenants {
		name := fmt.Sprint("tenant ", round%tenants)
		ended := 0
		for _, l := range tab.Snapshot().Leases {
			if l.Tenant == name && ended < 8 {
				page := tab.Pages(l.Lease)[0].Page
				must(t, tab, Retired{Ref: Ref{l.Lease, l.Attach, l.Epoch}, OK: true})
				must(t, tab, Zeroed{[]uint32{page}})
				ended++
			}
		}
		flood(t, tab, name, &at)
	}
	for _, u := range tab.Snapshot().Tenants {
		if u.Pages < 37 || u.Pages > 43 {
			t.Errorf("%s has %d pages, want about 40", u.Tenant, u.Pages)
		}
	}
	if free := tab.Free(); free < 8 || free > 14 {
		t.Errorf("%d pages stay free, want about 10", free)
	}
}

// TestOneRequestMayHaveAll: what needs the whole pool gets it, on both sides of a handover too; a second request does not.
func TestOneRequestMayHaveAll(t *testing.T) {
	tab := newTable(t, Config{Pages: 4, Share: 1})
	to := Reserve{Lease: name16[ID]("d"), Attach: name16[Attach]("w"), Role: Destination, Tenant: "acme", Admission: name16[Admission]("q"),
		Pages: 4, Moved: 3, Rows: 3 * pageTokens, FromSource: true}
	must(t, tab, to)
	from := to
	from.Lease, from.Role, from.Pages, from.Moved, from.FromSource = name16[ID]("s"), Source, 3, 0, false
	must(t, tab, from)
	if tab.Free() != 0 {
		t.Errorf("%d pages are free", tab.Free())
	}
	tab = newTable(t, Config{Pages: 4, Share: 1})
	must(t, tab, solo("a", 2))
	if _, err := tab.Step(solo("b", 1)); errs.KindOf(err) != errs.Exhausted {
		t.Errorf("a second request of the tenant: %v, want Exhausted", err)
	}
	other := solo("c", 2)
	other.Tenant = "globex"
	must(t, tab, other)
	must(t, tab, retire("a"))
	must(t, tab, Zeroed{[]uint32{0, 1}})
	must(t, tab, solo("b", 1)) // its only one now
}

// TestANewcomerFindsRoom: at any share, after any single flood of single pages, a part stays free.
func TestANewcomerFindsRoom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		share, pages := rapid.Uint32Range(1, 8).Draw(rt, "share"), rapid.Uint32Range(2, 300).Draw(rt, "pages")
		tab, at := newTable(t, Config{Pages: pages, Share: share}), 0
		flood(t, tab, "flood", &at)
		if free := tab.Free(); free*(share+1) < pages {
			rt.Fatalf("%d of %d pages are free beside one flood at share %d", free, pages, share)
		}
	})
}
