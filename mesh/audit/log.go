package audit

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"

	"leasehold.dev/protos/errs"
)

const (
	// DefaultFileSize is where a file ends and the next begins.
	DefaultFileSize = 16 << 20
	// SignEvery is how often a log with new records gets a head.
	SignEvery = time.Minute

	syncEvery    = time.Second // a power failure may take what was written since; a crash of the process takes nothing
	maxQueue     = 1 << 16     // records that wait to be written
	maxBatch     = 256 << 10   // bytes of one write, about
	lineOverhead = 300         // bytes of a line beside its fields, about
)

// Config of a log.
type Config struct {
	Dir      string
	Service  string
	Instance string
	FileSize int64 // 0: DefaultFileSize
	Keep     int   // files that rotation leaves; 0: all

	Meter metric.Meter // nil: none
	Log   *slog.Logger // nil: discard
}

// pending is a record that waits for its number.
type pending struct {
	kind   string
	at     time.Time
	fields json.RawMessage
}

// Log is one process's log. A nil Log takes everything and keeps nothing: it stands for a process without one. Its methods
// are safe for concurrent use.
type Log struct {
	c       Config
	store   *store // of the owner goroutine
	syncs   time.Time
	signs   time.Time
	dirty   bool // written since the last sync
	metrics *metrics

	wake chan struct{}
	stop chan struct{}
	done chan struct{}
	once func() error

	mu       sync.Mutex
	room     *sync.Cond // of the queue
	queue    []pending
	closed   bool
	failure  error
	lost     uint64 // records that are in no file and will not be
	told     uint64 // of lost, how many a record speaks of
	head     Head
	unsigned time.Time // of the oldest record without a head; zero: there is none
}

// Open claims c.Dir, continues its chain, and signs a head, so that there is one from the beginning. Corrupt: the records
// there are not what the last run left.
func Open(c Config) (*Log, error) {
	if c.FileSize < 0 || c.Keep < 0 {
		return nil, errs.New(errs.Invalid, "audit: files of %d bytes, %d to keep", c.FileSize, c.Keep)
	}
	if c.FileSize == 0 {
		c.FileSize = DefaultFileSize
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Meter == nil {
		c.Meter = noop.Meter{}
	}
	s, err := openStore(c.Dir)
	if err != nil {
		return nil, err
	}
	l := &Log{c: c, store: s, head: s.head, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	l.room = sync.NewCond(&l.mu)
	l.once = sync.OnceValue(l.end)
	if l.metrics, err = newMetrics(c.Meter, l); err != nil {
		s.close()
		return nil, err
	}
	l.Append(opened{PID: os.Getpid(), Key: KeyID(publicOf(s.key))})
	for _, t := range s.torn {
		c.Log.Warn("audit: a line was torn by the end of the last run", "file", t.File, "offset", t.Offset, "bytes", len(t.Bytes))
		l.Append(t)
	}
	if err := errors.Join(l.flush(), l.sign()); err != nil {
		l.metrics.close()
		s.close()
		return nil, err
	}
	go l.run()
	return l, nil
}

// Append adds a record. It costs the event's JSON and a lock; writing is another goroutine's. It waits while more than
// 65,536 records wait to be written, but not while they cannot be written: then those that find no room are lost, which
// is counted, and recorded once there is room. e must encode, and hold no text of a tenant's.
func (l *Log) Append(e Event) {
	if l == nil {
		return
	}
	fields, err := json.Marshal(e)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.lose(errs.New(errs.Internal, "audit: a record of kind %s does not encode: %w", e.Kind(), err))
		return
	}
	for len(l.queue) >= maxQueue && l.failure == nil && !l.closed {
		l.room.Wait()
	}
	if l.closed || len(l.queue) >= maxQueue {
		l.lose(l.failure)
		return
	}
	now := time.Now()
	if l.unsigned.IsZero() {
		l.unsigned = now
	}
	l.queue = append(l.queue, pending{e.Kind(), now, fields})
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// lose counts a record that is nowhere. Callers hold mu.
func (l *Log) lose(why error) {
	l.lost++
	l.metrics.lose()
	if why == nil {
		why = errs.New(errs.Unavailable, "audit: the log is closed")
	}
	l.c.Log.Error("audit: a record is lost", "error", why)
}

// Head is the newest signed head; not ok where there is no log.
func (l *Log) Head() (Head, bool) {
	if l == nil {
		return Head{}, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head, l.head.Seq > 0
}

// Healthy is Unavailable while the log cannot be written, and after Close. A process without a log is healthy.
func (l *Log) Healthy(context.Context) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errs.New(errs.Unavailable, "the audit log is closed")
	}
	if l.failure != nil {
		return errs.New(errs.Unavailable, "the audit log is not written, %d records wait, %d are lost: %w", len(l.queue), l.lost, l.failure)
	}
	return nil
}

// Close writes and signs what is left. Records that come later are lost.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	return l.once()
}

func (l *Log) end() error {
	l.Append(closed{})
	l.mu.Lock()
	l.closed = true
	l.room.Broadcast()
	l.mu.Unlock()
	close(l.stop)
	<-l.done
	l.metrics.close()
	l.store.close()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failure != nil {
		return errs.New(errs.Unavailable, "audit: %s was closed with %d records unwritten and %d lost: %w", l.c.Dir, len(l.queue), l.lost, l.failure)
	}
	return nil
}

// run owns the store.
func (l *Log) run() {
	defer close(l.done)
	tick := time.NewTicker(syncEvery)
	defer tick.Stop()
	for {
		select {
		case <-l.wake:
			if l.failing() {
				continue // the ticker tries again
			}
			l.turn(time.Now())
		case now := <-tick.C:
			l.turn(now)
		case <-l.stop:
			l.settle(errors.Join(l.flush(), l.sign()))
			return
		}
	}
}

// turn does what is due.
func (l *Log) turn(now time.Time) {
	err := l.flush()
	if err == nil && l.dirty && now.Sub(l.syncs) >= syncEvery {
		if err = l.store.sync(); err == nil {
			l.syncs, l.dirty = now, false
		}
	}
	if err == nil && now.Sub(l.signs) >= SignEvery {
		err = l.sign()
	}
	l.settle(err)
}

func (l *Log) failing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure != nil
}

// settle keeps what a turn has come to.
func (l *Log) settle(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.metrics.fail()
		if l.failure == nil {
			l.c.Log.Error("audit: the log cannot be written", "error", err)
		}
	} else if l.failure != nil {
		l.c.Log.Info("audit: the log is written again", "lost", l.lost)
	}
	l.failure = err
	l.room.Broadcast()
}
