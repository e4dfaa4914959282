package worker

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/runner"
	"leasehold.dev/model"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
)

// Backoff of the attach loop: doubled from the first to the last after each failure.
const (
	MinBackoff = 20 * time.Millisecond
	MaxBackoff = time.Second
	dialTime   = 10 * time.Second
)

// Host is one worker process's engine and its attachment. Make one with Open, run it with Run, then Close it.
type Host[B Broker] struct {
	opened
	id      string
	conf    Config
	promise uint32
	dial    Dial[B]
	log     *slog.Logger
	runner  *runner.Runner
	metrics *metrics

	warm bool

	mu      sync.Mutex
	fitted  Fit
	link    *Link[B]
	reason  string        // why there is no link
	drains  bool          // no new request is taken
	changed chan struct{} // closed and renewed with link and reason
}

// Own are the parts of a process that a host uses. Zero values: logs and metrics go nowhere.
type Own struct {
	ID    string // this worker's instance id
	Warm  bool   // measure a [Fit] before the first attach
	Log   *slog.Logger
	Meter metric.Meter
}

// Open loads the model and opens the engine. It attaches nothing yet.
func Open[B Broker](c Config, own Own, dial Dial[B]) (*Host[B], error) {
	if own.ID == "" {
		return nil, errs.New(errs.Invalid, "worker: no instance id")
	}
	if own.Log == nil {
		own.Log = slog.New(slog.DiscardHandler)
	}
	if own.Meter == nil {
		own.Meter = noop.Meter{}
	}
	o, err := c.open()
	if err != nil {
		return nil, err
	}
	h := &Host[B]{
		opened: o, id: own.ID, conf: c, dial: dial, log: own.Log,
		reason: "not attached yet", changed: make(chan struct{}),
		promise: uint32(c.Promise), warm: own.Warm,
	}
	if h.promise == 0 {
		h.promise = o.model.Config.ContextLength
	}
	if err := h.start(own.Meter); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

func (h *Host[B]) start(m metric.Meter) (err error) {
	h.runner, err = runner.New(h.engine, runner.Options{
		Limits: h.conf.limits(), Observe: func(s runner.Stats) { h.metrics.step(s) },
	})
	if err != nil {
		return err
	}
	h.metrics, err = newMetrics(m, h.gauges)
	return err
}

// Close lets go of engine and model. Run has returned, or was never called.
func (h *Host[B]) Close() {
	if h.metrics != nil {
		h.metrics.close()
	}
	h.engine.Close()
	_ = h.model.Close()
}

// ID is this worker's instance id.
func (h *Host[B]) ID() string { return h.id }

// Model is the worker's model.
func (h *Host[B]) Model() *model.Model { return h.model }

// Engine is for what does not step: its layout, keys and class.
func (h *Host[B]) Engine() *engine.Engine { return h.engine }

// Digests says whether the engine digests what it appends.
func (h *Host[B]) Digests() bool { return !h.conf.GuardsOff }

// GuardsOn says whether every guard of this process, and of its broker as far as that has told, is on.
func (h *Host[B]) GuardsOn() bool {
	if h.conf.GuardsOff || fault.AnyOff() {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.link == nil || !h.dial.Pool(h.link.Broker).GuardsOff
}

// Promise is the most tokens of one request that clients are told.
func (h *Host[B]) Promise() uint32 { return h.promise }

// Run turns the engine's loop and keeps the host attached, until ctx ends. When it returns nothing is attached.
func (h *Host[B]) Run(ctx context.Context) {
	var loop sync.WaitGroup
	defer loop.Wait()
	looping, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	loop.Go(func() { h.runner.Run(looping) })
	if h.warm {
		f, err := h.warmUp(ctx)
		if err != nil {
			h.log.Warn("not measured: nobody can tell a prompt that was not computed by its time", "err", err)
		}
		h.mu.Lock()
		h.fitted = f
		h.mu.Unlock()
		h.log.Info("warm", "us_per_token", f.A, "us_per_token_squared", f.B, "tokens", f.Measured)
	}
	for wait := MinBackoff; ctx.Err() == nil; wait = min(2*wait, MaxBackoff) {
		attached, err := h.attach(ctx)
		if ctx.Err() != nil {
			return
		}
		if attached {
			wait = MinBackoff
		}
		h.publish(nil, err.Error())
		h.log.Warn("not attached", "err", err, "again_in", wait.String())
		pause(ctx, wait)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// attach holds one attachment from its beginning to its end. The error says why there is none now.
func (h *Host[B]) attach(ctx context.Context) (attached bool, err error) {
	fault.At(fault.WorkerAttach)
	dialing, cancel := context.WithTimeout(ctx, dialTime)
	b, err := h.dial.Attach(dialing, h.own())
	cancel()
	if err != nil {
		return false, err
	}
	defer func() { _ = b.Close() }()
	l := &Link[B]{Broker: b, Facts: h.dial.Facts(b), runner: h.runner}
	if err := h.agree(l.Facts); err != nil {
		return false, err
	}
	l.Limit = h.derive(l.Facts)
	if l.pool, err = h.runner.Attach(b.Mapping()); err != nil {
		return false, err
	}
	h.log.Info("attached", "broker", l.Facts.Broker, "pages", l.Facts.PoolPages, "limit", l.Limit)
	h.publish(l, "")
	select {
	case <-b.Done():
		err = errs.New(errs.Unavailable, "broker %s is gone", l.Facts.Broker)
	case <-ctx.Done():
		err = errs.New(errs.Unavailable, "worker %s stops", h.id)
	}
	h.publish(nil, err.Error())
	if failed := h.runner.Detach(l.pool, err); failed != nil {
		h.log.Error("engine did not let go of the pool", "err", failed)
	}
	l.held.Wait() // each request hears at once, and its lease is retired while the broker can still be told
	return true, err
}

// Link is the present attachment, held until its Release; Unavailable, with the reason, when there is none. Whether
// requests may be served on it is Ready's to say.
func (h *Host[B]) Link() (*Link[B], error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.link == nil {
		return nil, errs.New(errs.Unavailable, "worker %s is not attached: %s", h.id, h.reason)
	}
	h.link.held.Add(1)
	return h.link, nil
}

// Drain makes the host refuse new requests; running ones go on.
func (h *Host[B]) Drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.drains = true
	h.tell()
}

// tell wakes the watchers. h.mu is held.
func (h *Host[B]) tell() {
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *Host[B]) publish(l *Link[B], reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.link == l && h.reason == reason {
		return
	}
	h.link, h.reason = l, reason
	h.tell()
}
