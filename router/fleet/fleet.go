package fleet

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/mesh/peers"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	prefillv1 "leasehold.dev/protos/gen/leasehold/prefill/v1"
	"leasehold.dev/router/choose"
)

// Stale is how long a status holds. Workers send one at least once a second.
const Stale = 3 * time.Second

// again is the pause after a Watch stream ended.
const again = 200 * time.Millisecond

// Fleet is safe for concurrent use.
type Fleet struct {
	Prefill, Decode *peers.Set
	log             *slog.Logger
	now             func() time.Time

	mu      sync.Mutex
	status  map[key]*seen
	open    map[key]uint32
	changed chan struct{} // closed and renewed when membership or what a worker can hold changed
}

type key struct{ service, id string }

type seen struct {
	worker choose.Worker
	at     time.Time
}

// New follows both sets. The sets stay the caller's.
func New(prefill, decode *peers.Set, log *slog.Logger) *Fleet {
	return &Fleet{Prefill: prefill, Decode: decode, log: log, now: time.Now, status: map[key]*seen{}, open: map[key]uint32{}, changed: make(chan struct{})}
}

// Changed is closed at the next change of who is listed, of readiness, or of a worker's promise, limit or broker. Ask for it
// before the Snapshot.
func (f *Fleet) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.changed
}

// tell closes Changed. f.mu is held.
func (f *Fleet) tell() {
	close(f.changed)
	f.changed = make(chan struct{})
}

// Run watches the workers until ctx ends.
func (f *Fleet) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { f.follow(ctx, "prefill", f.Prefill, watchPrefill) })
	wg.Go(func() { f.follow(ctx, "decode", f.Decode, watchDecode) })
	wg.Wait()
}

// Snapshot is what can be picked from now, and what cannot, in order of their ids.
func (f *Fleet) Snapshot() choose.Fleet {
	return choose.Fleet{Prefill: f.list("prefill", f.Prefill), Decode: f.list("decode", f.Decode)}
}

func (f *Fleet) list(service string, set *peers.Set) []choose.Worker {
	var out []choose.Worker
	for _, p := range set.All() {
		f.mu.Lock()
		k := key{service, p.ID}
		w := choose.Worker{ID: p.ID, Reason: "it has sent no status"}
		if s := f.status[k]; s != nil {
			w = s.worker
			if age := f.now().Sub(s.at); w.Up && age > Stale {
				w.Up, w.Reason = false, "its last status is old"
			}
		}
		w.Open = f.open[k]
		f.mu.Unlock()
		if w.Up && p.Open() {
			w.Up, w.Reason = false, "its breaker is open"
		}
		out = append(out, w)
	}
	return out
}

// Use counts a call to a worker until done is called.
func (f *Fleet) Use(service, id string) (done func()) {
	k := key{service, id}
	f.mu.Lock()
	f.open[k]++
	f.mu.Unlock()
	return sync.OnceFunc(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.open[k]--; f.open[k] == 0 {
			delete(f.open, k)
		}
	})
}

// Lost forgets a worker's status after a call that never reached it, until it is heard of again.
func (f *Fleet) Lost(service, id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, known := f.status[key{service, id}]; known {
		delete(f.status, key{service, id})
		f.tell()
	}
}

type watch func(ctx context.Context, c *grpc.ClientConn) (recv func() (*meshv1.WorkerStatus, error), err error)

func watchPrefill(ctx context.Context, c *grpc.ClientConn) (func() (*meshv1.WorkerStatus, error), error) {
	s, err := prefillv1.NewPrefillServiceClient(c).Watch(ctx, &prefillv1.WatchRequest{})
	if err != nil {
		return nil, err
	}
	return func() (*meshv1.WorkerStatus, error) { m, err := s.Recv(); return m.GetStatus(), err }, nil
}

func watchDecode(ctx context.Context, c *grpc.ClientConn) (func() (*meshv1.WorkerStatus, error), error) {
	s, err := decodev1.NewDecodeServiceClient(c).Watch(ctx, &decodev1.WatchRequest{})
	if err != nil {
		return nil, err
	}
	return func() (*meshv1.WorkerStatus, error) { m, err := s.Recv(); return m.GetStatus(), err }, nil
}

// follow keeps one goroutine for each peer of set.
func (f *Fleet) follow(ctx context.Context, service string, set *peers.Set, w watch) {
	type running struct {
		conn *grpc.ClientConn
		stop context.CancelFunc
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	have := map[string]running{}
	for {
		changed := set.Changed()
		now := map[string]bool{}
		for _, p := range set.All() {
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
			wg.Go(func() { f.listen(one, key{service, p.ID}, p.Conn, w) })
		}
		for id, r := range have {
			if !now[id] {
				r.stop()
				delete(have, id)
				f.Lost(service, id)
			}
		}
		f.mu.Lock()
		f.tell() // the set may be another
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			for _, r := range have {
				r.stop()
			}
			return
		}
	}
}

// listen keeps one Watch stream open.
func (f *Fleet) listen(ctx context.Context, k key, conn *grpc.ClientConn, w watch) {
	for ctx.Err() == nil {
		f.stream(ctx, k, conn, w)
		f.Lost(k.service, k.id)
		select {
		case <-ctx.Done():
		case <-time.After(again):
		}
	}
}

func (f *Fleet) stream(ctx context.Context, k key, conn *grpc.ClientConn, w watch) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	recv, err := w(ctx, conn)
	for err == nil {
		var s *meshv1.WorkerStatus
		if s, err = recv(); err == nil {
			f.heard(k, s)
		}
	}
}

func (f *Fleet) heard(k key, s *meshv1.WorkerStatus) {
	w := choose.FromStatus(s)
	if w.ID != k.id {
		w.Up, w.Reason, w.ID = false, "it calls itself by another id than the registry", k.id
	}
	f.mu.Lock()
	before := f.status[k]
	f.status[k] = &seen{w, f.now()}
	if before == nil || holds(before.worker) != holds(w) {
		f.tell()
	}
	f.mu.Unlock()
	if before == nil || before.worker.Up != w.Up || before.worker.Reason != w.Reason {
		f.log.Info("worker", "service", k.service, "worker", k.id, "ready", w.Up, "reason", w.Reason)
	}
}

// holds is the part of a status that Changed is about.
func holds(w choose.Worker) (part struct {
	up              bool
	promised, limit uint32
	broker, layout  string
}) {
	part.up, part.promised, part.limit = w.Up, w.Promised, w.Limit
	part.broker, part.layout = w.Instance, w.LayoutHash
	return part
}
