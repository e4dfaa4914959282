package receipt_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/protos/errs"
	"leasehold.dev/router/receipt"
)

// desk keeps what it was told of.
type desk struct {
	*receipt.Desk
	path  string
	heard []string
}

func openDesk(t *testing.T, path string) *desk {
	t.Helper()
	d := &desk{path: path}
	var err error
	d.Desk, err = receipt.OpenDesk(path, func(c receipt.Change, r receipt.Report) {
		d.heard = append(d.heard, fmt.Sprint(c, " ", r.Tenant, " ", r.Replay, " ", r.Times))
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *desk) report(t *testing.T, tenant string, n int) receipt.Report {
	t.Helper()
	r, err := d.Open(began, tenant, number(n), "jws")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestOnlyAPersonClosesAReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "reports")
	d := openDesk(t, path)
	r := d.report(t, "acme", 1)
	again := d.report(t, "acme", 1)
	if again.ID != r.ID || again.Times != 2 || d.Len() != 1 {
		t.Errorf("reported twice: %+v and %+v, %d open", r, again, d.Len())
	}
	synctest.Test(t, func(t *testing.T) { // no time closes it
		time.Sleep(10 * 365 * 24 * time.Hour)
		synctest.Wait()
		if d.Len() != 1 {
			t.Error("closed by time")
		}
	})
	d = openDesk(t, path) // and no restart does
	if all := d.All(); len(all) != 1 || all[0].ID != r.ID || all[0].JWS != "jws" || all[0].Times != 2 || !all[0].Opened.Equal(began) {
		t.Fatalf("after a restart: %+v", all)
	}
	if r := d.report(t, "acme", 1); r.Times != 3 {
		t.Errorf("reported again after a restart: %+v", r)
	}
	for _, nobody := range []string{"", strings.Repeat("x", 129)} {
		if _, err := d.Close(r.ID, nobody); errs.KindOf(err) != errs.Invalid {
			t.Errorf("closed by %d bytes: %v", len(nobody), err)
		}
	}
	if _, err := d.Close("no such", "ann"); errs.KindOf(err) != errs.NotFound {
		t.Errorf("one that is not open: %v", err)
	}
	closed, err := d.Close(r.ID, "ann")
	if err != nil || closed.Closer != "ann" || d.Len() != 0 {
		t.Errorf("%+v, %v, %d open", closed, err, d.Len())
	}
	if d := openDesk(t, path); d.Len() != 0 {
		t.Error("a closed one came back")
	}
	if fresh := d.report(t, "acme", 1); fresh.ID == r.ID || fresh.Times != 1 {
		t.Errorf("reported after it was closed: %+v, want a new one", fresh)
	}
	if want := []string{"repeated acme none 3", "closed acme none 3", "opened acme none 1"}; !slices.Equal(d.heard, want) {
		t.Errorf("heard %q, want %q", d.heard, want)
	}
}

func TestALaterReplayDoesNotMakeItBetter(t *testing.T) {
	d := openDesk(t, filepath.Join(t.TempDir(), "reports"))
	r := d.report(t, "acme", 1)
	for _, c := range []struct{ word, want string }{{receipt.ReplayNotRun, receipt.ReplayNotRun}, {receipt.ReplayEqual, receipt.ReplayEqual},
		{receipt.ReplayNotRun, receipt.ReplayEqual}, {receipt.ReplayDifferent, receipt.ReplayDifferent}, {receipt.ReplayEqual, receipt.ReplayDifferent},
		{receipt.ReplayOther, receipt.ReplayDifferent}} {
		if got, err := d.Replayed(r.ID, c.word); err != nil || got.Replay != c.want {
			t.Errorf("after %s: %s, %v; want %s", c.word, got.Replay, err, c.want)
		}
	}
	if _, err := d.Replayed("no such", receipt.ReplayEqual); errs.KindOf(err) != errs.NotFound {
		t.Errorf("one that is not open: %v", err)
	}
}

func TestATenantCannotFillTheDesk(t *testing.T) {
	d := openDesk(t, filepath.Join(t.TempDir(), "reports"))
	for i := range receipt.MaxTenantReports {
		d.report(t, "acme", i)
	}
	_, err := d.Open(began, "acme", number(receipt.MaxTenantReports), "jws")
	if errs.KindOf(err) != errs.Exhausted || d.Len() != receipt.MaxTenantReports {
		t.Errorf("one more: %v, %d open", err, d.Len())
	}
	if r := d.report(t, "acme", 0); r.Times != 2 {
		t.Errorf("a known one can still be repeated: %+v", r)
	}
	d.report(t, "bolt", 1000)
}

func TestReportsThatCannotBeReadStopTheRouter(t *testing.T) {
	for why, file := range map[string]string{"no JSON": "[", "null": "[null]", "no tenant": `[{"id":"a","receipt":"b"}]`,
		"twice": `[{"id":"a","receipt":"b","tenant":"c"},{"id":"a","receipt":"d","tenant":"c"}]`, "one receipt twice": `[{"id":"a","receipt":"b","tenant":"c"},{"id":"e","receipt":"b","tenant":"c"}]`} {
		path := filepath.Join(t.TempDir(), "reports")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := receipt.OpenDesk(path, nil); errs.KindOf(err) != errs.Invalid {
			t.Errorf("%s: %v", why, err)
		}
	}
}

// What is not on the disk did not happen.
func TestAFullDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d := openDesk(t, filepath.Join(dir, "reports"))
	r := d.report(t, "acme", 1)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	heard := len(d.heard)
	if _, err := d.Open(began, "acme", number(2), "jws"); errs.KindOf(err) != errs.Internal {
		t.Errorf("open: %v", err)
	}
	if _, err := d.Replayed(r.ID, receipt.ReplayEqual); errs.KindOf(err) != errs.Internal {
		t.Errorf("replayed: %v", err)
	}
	if _, err := d.Close(r.ID, "ann"); errs.KindOf(err) != errs.Internal {
		t.Errorf("close: %v", err)
	}
	if all := d.All(); len(all) != 1 || all[0].Replay != receipt.ReplayNone || len(d.heard) != heard {
		t.Errorf("%+v, heard %q", all, d.heard[heard:])
	}
}

func TestAdmin(t *testing.T) {
	d := openDesk(t, filepath.Join(t.TempDir(), "reports"))
	r := d.report(t, "acme", 1)
	mux := http.NewServeMux()
	mux.Handle("GET /debug/reports", d)
	mux.Handle("POST /debug/reports/{id}/close", d)
	for _, c := range []struct {
		method, path string
		code         int
		body         string
	}{
		{"GET", "/debug/reports", 200, r.ID},
		{"POST", "/debug/reports/" + r.ID + "/close", 400, "name"},
		{"POST", "/debug/reports/none/close?by=ann", 404, "no such"},
		{"POST", "/debug/reports/" + r.ID + "/close?by=ann", 200, `"closer":"ann"`},
		{"GET", "/debug/reports", 200, `{"reports":[]}`},
	} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.code || !strings.Contains(w.Body.String(), c.body) {
			t.Errorf("%s %s: %d %s, want %d with %q", c.method, c.path, w.Code, w.Body, c.code, c.body)
		}
		if c.code == 200 && !json.Valid(w.Body.Bytes()) {
			t.Errorf("%s %s: %s is no JSON", c.method, c.path, w.Body)
		}
	}
}
