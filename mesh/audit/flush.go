package audit

import (
	"crypto/ed25519"
	"encoding/json"
	"time"

	"leasehold.dev/protos/errs"
)

func publicOf(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

// flush writes what waits, and rotates. Records whose write has failed stay at the front of the queue.
func (l *Log) flush() error {
	for {
		if l.store.size >= l.c.FileSize {
			if err := l.rotate(); err != nil {
				return err
			}
		}
		batch, gone, why := l.take()
		n := len(batch)
		if gone > 0 {
			batch = append(batch, own(lost{gone, why}))
		}
		if len(batch) == 0 {
			return nil
		}
		if err := l.put(batch); err != nil {
			return err
		}
		l.took(n, gone)
	}
}

// take copies the front of the queue, which stays there until it is written; and says how many lost records no record
// speaks of yet.
func (l *Log) take() (batch []pending, gone uint64, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	size, most := 0, int(min(maxBatch, l.c.FileSize))
	for _, p := range l.queue {
		if size += len(p.fields) + lineOverhead; size > most && len(batch) > 0 {
			break
		}
		batch = append(batch, p)
	}
	if gone = l.lost - l.told; gone > 0 {
		why = "no room"
		if l.failure != nil {
			why = l.failure.Error()
		}
	}
	return batch, gone, why
}

// took removes n written records from the queue, after which gone more lost ones are on record.
func (l *Log) took(n int, gone uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told += gone
	clear(l.queue[:n])
	if l.queue = l.queue[n:]; len(l.queue) == 0 {
		l.queue = nil
	}
	l.room.Broadcast()
}

// own is a record of the log's own, which goes past the queue.
func own(e Event) pending {
	fields, err := json.Marshal(e)
	if err != nil { // a struct of numbers and strings
		fields = json.RawMessage("{}")
	}
	return pending{e.Kind(), time.Now(), fields}
}

// put writes the batch, all or none.
func (l *Log) put(batch []pending) error {
	var lines []byte
	last := l.store.last
	for _, p := range batch {
		var err error
		lines, last, err = encode(lines, body{Seq: last.Seq + 1, Time: p.at, Service: l.c.Service, Instance: l.c.Instance,
			Kind: p.kind, Fields: p.fields, Prev: last.Hash})
		if err != nil {
			return err
		}
	}
	if err := l.store.write(lines, last); err != nil {
		return err
	}
	l.dirty = true
	l.metrics.wrote(batch)
	return nil
}

// sign makes a head for the newest record, if it has none.
func (l *Log) sign() error {
	now := time.Now()
	if l.store.head.Seq < l.store.last.Seq {
		err := l.store.sign(headBody{Service: l.c.Service, Instance: l.c.Instance, Seq: l.store.last.Seq, Hash: l.store.last.Hash, Time: now})
		if err != nil {
			return errs.Mark(err, errs.Unavailable)
		}
	}
	l.signs = now
	l.mu.Lock()
	defer l.mu.Unlock()
	l.head = l.store.head
	l.unsigned = time.Time{}
	if len(l.queue) > 0 {
		l.unsigned = l.queue[0].at
	}
	return nil
}

// rotate ends the file. Files over the number to keep are named in a record, that record is signed, and then they go.
func (l *Log) rotate() error {
	if err := l.store.rotate(); err != nil {
		return err
	}
	// The next record begins a new file: with it there is one file more.
	over := len(l.store.all) + 1 - l.c.Keep
	if l.c.Keep == 0 || over <= 0 {
		return nil
	}
	out, err := l.store.oldest(over)
	if err != nil {
		return err
	}
	if err := l.put([]pending{own(out)}); err != nil {
		return err
	}
	if err := l.sign(); err != nil {
		return err
	}
	return l.store.remove(out)
}
