package lease

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"leasehold.dev/gpu/pool"
	"leasehold.dev/protos/errs"
)

func newTable(t testing.TB, c Config) *Table {
	t.Helper()
	tab, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	must(t, tab, Attached{Attach: name16[Attach]("w"), Worker: "w", Epoch: 7})
	return tab
}

func must(t testing.TB, tab *Table, ev Event) []Effect {
	t.Helper()
	effects, err := tab.Step(ev)
	if err != nil {
		t.Fatalf("Step(%+v): %v", ev, err)
	}
	return effects
}

func solo(name string, pages uint32) Reserve {
	return Reserve{Lease: name16[ID](name), Attach: name16[Attach]("w"), Role: Solo, Tenant: "acme", Admission: name16[Admission](name), Pages: pages}
}

func retire(name string) Retired {
	return Retired{Ref: Ref{name16[ID](name), name16[Attach]("w"), 7}, OK: true}
}

func TestNewRefusesAnEmptyPool(t *testing.T) {
	if _, err := New(Config{}); errs.KindOf(err) != errs.Invalid {
		t.Errorf("New(0 pages) = %v, want an Invalid error", err)
	}
}

func TestUnknownEventIsABug(t *testing.T) {
	tab := newTable(t, Config{Pages: 1})
	for _, ev := range []Event{nil, &Expire{}} {
		if _, err := tab.Step(ev); errs.KindOf(err) != errs.Internal {
			t.Errorf("Step(%T) = %v, want an Internal error", ev, err)
		}
	}
}

// TestGenerationsWrapButNeverRepeat starts at the top of the 40 bits.
func TestGenerationsWrapButNeverRepeat(t *testing.T) {
	tab := newTable(t, Config{Pages: 2, Generation: pool.MaxGeneration - 1})
	effects := must(t, tab, solo("a", 2))
	want := []PageTag{{0, pool.MakeTag(1, pool.MaxGeneration-1)}, {1, pool.MakeTag(1, 0)}}
	if d := cmp.Diff(WriteTags{want}, effects[0]); d != "" {
		t.Errorf("granted (-want +got):\n%s", d)
	}
	effects = must(t, tab, retire("a"))
	want = []PageTag{{0, pool.MakeTag(pool.Nobody, pool.MaxGeneration)}, {1, pool.MakeTag(pool.Nobody, 1)}}
	if d := cmp.Diff(WriteTags{want}, effects[0]); d != "" {
		t.Errorf("released (-want +got):\n%s", d)
	}
}

// TestNoTagIsLeft: an instance that has used up its generations grants nothing more.
func TestNoTagIsLeft(t *testing.T) {
	tab := newTable(t, Config{Pages: 4})
	tab.pairs = (pool.MaxGeneration+1)/2 - 3
	if _, err := tab.Step(solo("a", 4)); errs.KindOf(err) != errs.Exhausted || !strings.Contains(err.Error(), "3 tags left") {
		t.Errorf("4 pages with 3 tags left: %v, want Exhausted", err)
	}
	must(t, tab, Reserve{Lease: name16[ID]("s"), Attach: name16[Attach]("w"), Role: Source, Tenant: "acme", Pages: 1, Rows: 1})
	must(t, tab, Reserve{Lease: name16[ID]("d"), Attach: name16[Attach]("w"), Role: Destination, Tenant: "acme", Pages: 3, Moved: 1, Rows: 1,
		FromSource: true})
	must(t, tab, Finish{Ref: Ref{name16[ID]("s"), name16[Attach]("w"), 7}, Seals: []PageSeal{sealOf(0, 1)}, Rows: 1})
	if _, err := tab.Step(Handover{name16[ID]("s"), name16[ID]("d")}); errs.KindOf(err) != errs.Exhausted {
		t.Errorf("handover of a tail with no tag left: %v, want Exhausted", err)
	}
	if err := tab.selfCheck(); err != nil {
		t.Error(err)
	}
}

func TestNoSlotIsLeft(t *testing.T) {
	tab := newTable(t, Config{Pages: 2})
	must(t, tab, solo("a", 1))
	tab.slots = pool.MaxSlot
	other := solo("b", 1)
	other.Tenant = "globex"
	if _, err := tab.Step(other); errs.KindOf(err) != errs.Exhausted {
		t.Errorf("a tenant too many: %v, want Exhausted", err)
	}
	must(t, tab, solo("b", 1)) // a tenant that has its slot
}

// TestEndingsAreForgottenInOrder: memory for leases that are no more is bounded, the oldest goes first.
func TestEndingsAreForgottenInOrder(t *testing.T) {
	tab := newTable(t, Config{Pages: 1})
	name := func(i int) string { return string([]byte{'n', byte(i), byte(i >> 8), 1}) }
	for i := range rememberedEndings + 2 {
		must(t, tab, solo(name(i), 1))
		must(t, tab, retire(name(i)))
		must(t, tab, Zeroed{[]uint32{0}})
	}
	if len(tab.ended.of) != rememberedEndings || len(tab.ended.ring) != rememberedEndings {
		t.Errorf("%d endings of %d ids remembered, want %d", len(tab.ended.of), len(tab.ended.ring), rememberedEndings)
	}
	for i, known := range map[int]bool{0: false, 1: false, 2: true, rememberedEndings + 1: true} {
		effects, err := tab.Step(retire(name(i)))
		if known && !has[Ignored](effects) || !known && errs.KindOf(err) != errs.NotFound {
			t.Errorf("retiring lease %d once more: %v, %v; remembered should be %v", i, effects, err, known)
		}
	}
}

// TestAnotherWorkerLearnsNothing: not even that a lease has been there.
func TestAnotherWorkerLearnsNothing(t *testing.T) {
	tab := newTable(t, Config{Pages: 1})
	must(t, tab, solo("a", 1))
	stranger := Ref{name16[ID]("a"), name16[Attach]("v"), 7}
	for _, state := range []string{"live", "ended"} {
		for _, ev := range []Event{Seal{Ref: stranger}, Finish{Ref: stranger}, Retired{Ref: stranger}} {
			if _, err := tab.Step(ev); errs.KindOf(err) != errs.NotFound {
				t.Errorf("%T of a stranger's %s lease: %v, want NotFound", ev, state, err)
			}
		}
		if err := tab.Check(stranger); errs.KindOf(err) != errs.NotFound {
			t.Errorf("Check of a stranger's %s lease: %v, want NotFound", state, err)
		}
		if state == "live" {
			must(t, tab, retire("a"))
		}
	}
}

func TestViewsAreCopies(t *testing.T) {
	tab := newTable(t, Config{Pages: 2})
	granted := must(t, tab, solo("a", 2))[1].(Granted)
	pages := tab.Pages(name16[ID]("a"))
	if d := cmp.Diff(granted.Pages, pages); d != "" {
		t.Errorf("granted and later (-granted +Pages):\n%s", d)
	}
	granted.Pages[0], pages[1] = PageTag{9, 9}, PageTag{9, 9}
	if got := tab.Pages(name16[ID]("a")); got[0].Page != 0 || got[1].Page != 1 {
		t.Errorf("Pages = %v after a caller changed its copies", got)
	}
	if got := tab.Pages(name16[ID]("b")); got != nil {
		t.Errorf("Pages of no lease = %v, want nil", got)
	}
	if info, ok := tab.Get(name16[ID]("a")); !ok || info.State != Writing || info.Worker != "w" || info.Epoch != 7 {
		t.Errorf("Get = %+v, %v", info, ok)
	}
	if _, ok := tab.Get(name16[ID]("b")); ok || tab.Free() != 0 {
		t.Errorf("Get of no lease = %v, with %d free", ok, tab.Free())
	}
}

func TestNames(t *testing.T) {
	for _, tt := range []struct{ got, want string }{
		{Quarantine.String(), "quarantine"}, {State(77).String(), "state(77)"}, {Source.String(), "source"}, {Role(0).String(), "role(0)"},
		{Role(9).String(), "role(9)"}, {WasHandedOver.String(), "handed-over"}, {RecordKind(99).String(), "record(99)"},
		{ID{}.String(), Attach{}.String()}, {Admission{0xab}.String(), "ab000000000000000000000000000000"},
	} {
		if tt.got != tt.want {
			t.Errorf("name %q, want %q", tt.got, tt.want)
		}
	}
	if strings.Contains(name16[ID]("secret").String(), "736563") {
		t.Error("a lease id shows in its String")
	}
}

// BenchmarkReserveRelease is one life of a lease in a pool of 10^6 pages, in ns for each of its pages.
func BenchmarkReserveRelease(b *testing.B) {
	for _, bb := range []struct {
		name  string
		pages uint32
	}{{"1 page", 1}, {"64 pages", 64}, {"10^4 pages", 10_000}, {"10^6 pages", 1_000_000}} {
		b.Run(bb.name, func(b *testing.B) {
			tab := newTable(b, Config{Pages: 1_000_000})
			r := solo("a", bb.pages)
			var n uint64
			for b.Loop() {
				n++
				for i := range 8 {
					r.Lease[i] = byte(n >> (8 * i))
				}
				r.Admission = Admission(r.Lease)
				must(b, tab, r)
				effects := must(b, tab, Retired{Ref: Ref{r.Lease, r.Attach, 7}, OK: true})
				must(b, tab, Zeroed{effects[2].(Zero).Pages})
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n)/float64(bb.pages), "ns/page")
		})
	}
}
