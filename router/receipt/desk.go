package receipt

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"time"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/proof"
)

// Most open reports: together, and of one tenant. One more is refused, and none is closed for it.
const (
	MaxReports       = 10_000
	MaxTenantReports = 100
	maxCloser        = 128 // bytes of a person's name
)

// What came of running a reported request again.
const (
	ReplayNone      = "none"          // no request was given
	ReplayNotRun    = "not_run"       // no worker could run it
	ReplayOther     = "other_request" // what was given is not what the receipt is about
	ReplayEqual     = "equal"
	ReplayDifferent = "different"
)

// severity orders them: a later report does not make an event look better.
var severity = map[string]int{ReplayNone: 0, ReplayNotRun: 1, ReplayEqual: 2, ReplayOther: 3, ReplayDifferent: 4}

// Report is a P1 event: a tenant says that an answer is not about its prompt.
type Report struct {
	ID      string    `json:"id"`
	Receipt string    `json:"receipt"` // its id
	Tenant  string    `json:"tenant"`
	JWS     string    `json:"jws"` // kept here for as long as the report is open
	Opened  time.Time `json:"opened"`
	Replay  string    `json:"replay"`
	Times   int       `json:"times"` // that it was reported
	Closer  string    `json:"closer,omitempty"`
}

// Change says what happened to a report. The set is closed.
type Change string

// The changes.
const (
	Opened   Change = "opened"
	Repeated Change = "repeated"
	Replayed Change = "replayed"
	Closed   Change = "closed"
)

// Desk keeps open reports in a file. It is safe for concurrent use.
type Desk struct {
	path   string
	notice func(Change, Report)

	mu   sync.Mutex
	open map[string]*Report // by id
	of   map[string]string  // receipt id -> report id
}

// OpenDesk reads the reports at path that are still open. notice is called for each change, after it is on the disk and
// before anybody is answered; it must not call the desk.
func OpenDesk(path string, notice func(Change, Report)) (*Desk, error) {
	d := &Desk{path: path, notice: notice, open: map[string]*Report{}, of: map[string]string{}}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return nil, errs.New(errs.Invalid, "reports: %w", err)
	}
	var all []*Report
	if err := json.Unmarshal(b, &all); err != nil { // an open report that is lost would be one that nobody closed
		return nil, errs.New(errs.Invalid, "reports: %s cannot be read: %w", path, err)
	}
	for _, r := range all {
		if r == nil || r.ID == "" || r.Receipt == "" || r.Tenant == "" || d.open[r.ID] != nil || d.of[r.Receipt] != "" {
			return nil, errs.New(errs.Invalid, "reports: %s has a report without id, receipt or tenant, or one twice", path)
		}
		d.open[r.ID], d.of[r.Receipt] = r, r.ID
	}
	return d, nil
}

// Open opens a report about a receipt, or counts one more for the one that is open.
func (d *Desk) Open(now time.Time, tenant string, receipt ID, jws string) (Report, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if id, ok := d.of[receipt.String()]; ok {
		return d.change(Repeated, id, func(r *Report) { r.Times++ })
	}
	own := 0
	for _, r := range d.open {
		if r.Tenant == tenant {
			own++
		}
	}
	if own >= MaxTenantReports || len(d.open) >= MaxReports {
		return Report{}, errs.New(errs.Exhausted, "%d reports are open, %d of them the tenant's own; at most %d and %d may be", len(d.open), own, MaxReports, MaxTenantReports)
	}
	r := &Report{ID: hex.EncodeToString(proof.NewID()), Receipt: receipt.String(), Tenant: tenant, JWS: jws, Opened: now.UTC(), Replay: ReplayNone, Times: 1}
	d.open[r.ID], d.of[r.Receipt] = r, r.ID
	if err := d.save(); err != nil {
		d.forget(r)
		return Report{}, err
	}
	d.notice(Opened, *r)
	return *r, nil
}

// Replayed notes what came of running the request again. What is worse stays.
func (d *Desk) Replayed(id, word string) (Report, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.change(Replayed, id, func(r *Report) {
		if severity[word] > severity[r.Replay] {
			r.Replay = word
		}
	})
}

// Close ends a report: a person says that it is dealt with. NotFound when it is not open, Invalid without a name.
func (d *Desk) Close(id, person string) (Report, error) {
	if person == "" || len(person) > maxCloser {
		return Report{}, errs.New(errs.Invalid, "reports: closed by a name of %d bytes, want 1 to %d", len(person), maxCloser)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.open[id]
	if r == nil {
		return Report{}, errs.New(errs.NotFound, "no such open report")
	}
	d.forget(r)
	if err := d.save(); err != nil {
		d.open[r.ID], d.of[r.Receipt] = r, r.ID
		return Report{}, err
	}
	done := *r
	done.Closer = person
	d.notice(Closed, done)
	return done, nil
}

// All open reports, the oldest first.
func (d *Desk) All() []Report {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := make([]Report, 0, len(d.open))
	for _, r := range d.open {
		out = append(out, *r)
	}
	slices.SortFunc(out, func(a, b Report) int { return cmp.Or(a.Opened.Compare(b.Opened), cmp.Compare(a.ID, b.ID)) })
	return out
}

// Len is the number of open reports.
func (d *Desk) Len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.open)
}

// change undoes f when it does not get to the disk.
func (d *Desk) change(what Change, id string, f func(*Report)) (Report, error) {
	r := d.open[id]
	if r == nil {
		return Report{}, errs.New(errs.NotFound, "no such open report")
	}
	before := *r
	f(r)
	if err := d.save(); err != nil {
		*r = before
		return Report{}, err
	}
	d.notice(what, *r)
	return *r, nil
}

func (d *Desk) forget(r *Report) {
	delete(d.open, r.ID)
	delete(d.of, r.Receipt)
}

func (d *Desk) save() error {
	all := make([]*Report, 0, len(d.open))
	for _, r := range d.open {
		all = append(all, r)
	}
	b, err := json.Marshal(all)
	if err != nil {
		return errs.New(errs.Internal, "reports: %w", err)
	}
	return replace(d.path, b)
}
