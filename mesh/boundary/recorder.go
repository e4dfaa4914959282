package boundary

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// Recorder keeps when each detector last could tell, and counts incidents. It is safe for concurrent use; a nil one records
// nothing.
type Recorder struct {
	now       func() time.Time
	incidents metric.Int64Counter
	tell      func(Property, Detector, string) // nil: nobody

	mu    sync.Mutex
	seen  map[series]time.Time
	extra map[series]struct{} // what found no room in seen; itself bounded by MaxSeries
}

type series struct {
	property Property
	detector Detector
	pair     string
}

// New makes the instruments on m. now is the clock.
func New(m metric.Meter, now func() time.Time) (*Recorder, error) {
	r := &Recorder{now: now, seen: map[series]time.Time{}, extra: map[series]struct{}{}}
	var e [4]error
	r.incidents, e[0] = m.Int64Counter(Incidents, metric.WithDescription("What detectors of a property found. Each is for a person to close."))
	last, err := m.Float64ObservableGauge(LastObserved, metric.WithDescription("Unix time at which a detector last looked at a property and could tell."))
	e[1] = err
	untracked, err := m.Int64ObservableGauge(Untracked, metric.WithDescription("Detectors and pairs whose silence would not be noticed."))
	e[2] = err
	if err := errors.Join(e[:]...); err != nil {
		return nil, err
	}
	_, e[3] = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		r.mu.Lock()
		seen, extra := maps.Clone(r.seen), len(r.extra)
		r.mu.Unlock()
		for k, at := range seen {
			o.ObserveFloat64(last, float64(at.UnixMilli())/1000, metric.WithAttributes(attribute.String(LabelProperty, string(k.property)),
				attribute.String(LabelDetector, string(k.detector)), attribute.String(LabelPair, k.pair)))
		}
		o.ObserveInt64(untracked, int64(extra))
		return nil
	}, last, untracked)
	return r, e[3]
}

// Expect starts the clock of a detector: its silence counts from now, and its incidents from 0. Repeats change nothing.
func (r *Recorder) Expect(p Property, d Detector, pair string) {
	if r == nil || !watches(p, d) {
		return
	}
	r.mu.Lock()
	_, known := r.seen[series{p, d, pair}]
	if !known {
		r.set(series{p, d, pair}, r.now())
	}
	r.mu.Unlock()
	if !known {
		r.count(p, d, 0)
	}
}

// Observed says that the detector has just looked at the property and could tell. A detector that is about no pair gives "".
func (r *Recorder) Observed(p Property, d Detector, pair string) {
	if r == nil || !watches(p, d) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.set(series{p, d, pair}, r.now())
}

// set keeps the time if there is room. Callers hold mu.
func (r *Recorder) set(k series, at time.Time) {
	if _, known := r.seen[k]; !known && len(r.seen) >= MaxSeries {
		if len(r.extra) < MaxSeries {
			r.extra[k] = struct{}{}
		}
		return
	}
	r.seen[k] = at
}

// Incident counts a look at which the property did not hold, and tells it on. about names what was looked at, by its kind
// and its name: "request ...", "lease ...", "pair ...". It holds no text of a tenant's.
func (r *Recorder) Incident(p Property, d Detector, about string) {
	if r == nil {
		return
	}
	if !watches(p, d) {
		d = Unknown
	}
	r.count(p, d, 1)
	if r.tell != nil {
		r.tell(p, d, about)
	}
}

// Tell has f called at every incident from now on, from any goroutine. It is set once, before the first.
func (r *Recorder) Tell(f func(p Property, d Detector, about string)) {
	if r != nil {
		r.tell = f
	}
}

func (r *Recorder) count(p Property, d Detector, n int64) {
	r.incidents.Add(context.Background(), n, metric.WithAttributes(attribute.String(LabelProperty, string(p)), attribute.String(LabelDetector, string(d))))
}

// Forget ends the clocks of a pair that is gone for good.
func (r *Recorder) Forget(pair string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.seen, func(k series, _ time.Time) bool { return k.pair == pair })
	maps.DeleteFunc(r.extra, func(k series, _ struct{}) bool { return k.pair == pair })
}

// Last is when the detector last could tell; false when it is neither expected nor was it heard of.
func (r *Recorder) Last(p Property, d Detector, pair string) (time.Time, bool) {
	if r == nil {
		return time.Time{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.seen[series{p, d, pair}]
	return at, ok
}
