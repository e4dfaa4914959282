// Package witness is the shell around package reconcile: it follows the records of every broker, feeds them and the router's
// own views to the core, and says what it found to metrics, the log and the boundary.
package witness

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"google.golang.org/grpc"

	"leasehold.dev/mesh/boundary"
	"leasehold.dev/mesh/peers"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	"leasehold.dev/router/reconcile"
)

// Names of metrics. A broker's name is a label: brokers are as many as hosts.
const (
	Findings = "leasehold_reconcile_findings"                  // counter by field: see package reconcile. Each is an incident
	Open     = "leasehold_reconcile_open"                      // gauge: admissions that wait for a half
	Heard    = "leasehold_reconcile_broker_last_heard_seconds" // gauge by broker: Unix time of its last response
)

const (
	again = 200 * time.Millisecond // pause after a stream ended
	tick  = time.Second
)

// Witness is safe for concurrent use; a nil one takes nothing in.
type Witness struct {
	brokers  *peers.Set
	bound    *boundary.Recorder
	log      *slog.Logger
	findings metric.Int64Counter

	mu    sync.Mutex
	core  *reconcile.Core
	heard map[string]time.Time
}

// New makes the instruments on m. brokers stays the caller's.
func New(brokers *peers.Set, c reconcile.Config, m metric.Meter, b *boundary.Recorder, log *slog.Logger) (*Witness, error) {
	w := &Witness{brokers: brokers, bound: b, log: log, core: reconcile.New(c), heard: map[string]time.Time{}}
	var e [4]error
	w.findings, e[0] = m.Int64Counter(Findings, metric.WithDescription("Differences between the brokers' records and the router's view. Each is an incident."))
	open, err := m.Int64ObservableGauge(Open, metric.WithDescription("Admissions that wait for a broker's record."))
	e[1] = err
	heard, err := m.Float64ObservableGauge(Heard, metric.WithDescription("Unix time of a broker's last response."))
	e[2] = err
	if err := errors.Join(e[:]...); err != nil {
		return nil, err
	}
	_, e[3] = m.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		w.mu.Lock()
		n, at := w.core.Open(), maps.Clone(w.heard)
		w.mu.Unlock()
		o.ObserveInt64(open, int64(n))
		for broker, t := range at {
			o.ObserveFloat64(heard, float64(t.UnixMilli())/1000, metric.WithAttributes(attribute.String("broker", broker)))
		}
		return nil
	}, open, heard)
	return w, e[3]
}

// Saw takes in the router's own view of an admission, once it was decided before its first token.
func (w *Witness) Saw(v reconcile.View, answered bool) {
	if w != nil {
		w.step(reconcile.Decided{At: time.Now(), Answered: answered, View: v})
	}
}

func (w *Witness) step(ev reconcile.Event) {
	w.mu.Lock()
	r := w.core.Step(ev)
	w.mu.Unlock()
	for _, f := range r.Findings {
		w.findings.Add(context.Background(), 1, metric.WithAttributes(attribute.String("field", f.Field)))
		w.bound.Incident(property(f.Field), boundary.Reconciler, "admission "+f.Admission+", "+f.Field)
		w.log.Error("incident: records of one admission differ", "field", f.Field, "admission", f.Admission, "broker", f.Broker, "got", f.Got, "want", f.Want)
	}
	for _, m := range r.Matches {
		pair := boundary.Pair(m.Prefill, m.Decode)
		w.bound.Observed(boundary.P3, boundary.Reconciler, pair)
		w.bound.Observed(boundary.P4, boundary.Reconciler, pair)
	}
}

// property is the one that a finding speaks of: a half that failed beside one that did not is a borrowed success.
func property(field string) boundary.Property {
	if field == reconcile.FieldPrefillOutcome || field == reconcile.FieldDecodeOutcome {
		return boundary.P3
	}
	return boundary.P4
}

// Run follows the brokers until ctx ends.
func (w *Witness) Run(ctx context.Context) {
	type running struct {
		conn *grpc.ClientConn
		stop context.CancelFunc
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	have := map[string]running{}
	clock := time.NewTicker(tick)
	defer clock.Stop()
	for {
		changed := w.brokers.Changed()
		now := map[string]bool{}
		for _, p := range w.brokers.All() {
			now[p.ID] = true
			r, ok := have[p.ID]
			if ok && r.conn == p.Conn {
				continue
			}
			if ok {
				r.stop()
			}
			one, stop := context.WithCancel(ctx)
			have[p.ID] = running{p.Conn, stop}
			wg.Go(func() { w.listen(one, p.ID, p.Conn) })
		}
		for id, r := range have {
			if !now[id] {
				r.stop()
				delete(have, id)
				w.mu.Lock()
				delete(w.heard, id)
				w.mu.Unlock()
			}
		}
		for wait := true; wait; {
			select {
			case <-changed:
				wait = false
			case at := <-clock.C:
				w.step(reconcile.Tick{At: at})
			case <-ctx.Done():
				for _, r := range have {
					r.stop()
				}
				return
			}
		}
	}
}

// listen keeps one broker's stream open.
func (w *Witness) listen(ctx context.Context, broker string, conn *grpc.ClientConn) {
	for ctx.Err() == nil {
		err := w.stream(ctx, broker, conn)
		if ctx.Err() != nil {
			return
		}
		w.log.Warn("a broker's records are not followed", "broker", broker, "err", err)
		t := time.NewTimer(again)
		select {
		case <-ctx.Done():
		case <-t.C:
		}
		t.Stop()
	}
}

func (w *Witness) stream(ctx context.Context, broker string, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.mu.Lock()
	instance, last := w.core.Last(broker)
	w.mu.Unlock()
	s, err := brokerv1.NewRecordServiceClient(conn).Follow(ctx, &brokerv1.FollowRequest{Instance: []byte(instance), After: last})
	if err != nil {
		return err
	}
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		at := time.Now()
		w.mu.Lock()
		w.heard[broker] = at
		w.mu.Unlock()
		w.step(reconcile.Recorded{At: at, Broker: broker, Instance: string(m.GetInstance()), Records: m.GetRecords()})
	}
}
