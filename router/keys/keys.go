package keys

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// Every is how often the file is looked at.
const Every = time.Second

// maxFile bounds the file in bytes.
const maxFile = 16 << 20

// Ring is the keys of the newest good file. It is safe for concurrent use.
type Ring struct {
	path    string
	entries atomic.Pointer[[]entry]
	last    []byte // as read, good or bad; only Watch changes it
}

// Open reads path for the first time.
func Open(path string) (*Ring, error) {
	r := &Ring{path: path}
	b, err := read(path)
	if err != nil {
		return nil, err
	}
	es, err := parse(b)
	if err != nil {
		return nil, err
	}
	r.last = b
	r.entries.Store(&es)
	return r, nil
}

func read(path string) ([]byte, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.Size() > maxFile {
		return nil, errors.New("key file is too large")
	}
	return os.ReadFile(path)
}

// Watch takes over changes of the file until ctx ends. The content is compared, so neither a clock that stands still
// nor a rename hides a change.
func (r *Ring) Watch(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.reload(log)
		}
	}
}

func (r *Ring) reload(log *slog.Logger) {
	b, err := read(r.path)
	switch {
	case err != nil:
		if r.last != nil {
			log.Error("key file cannot be read; the last good one stays", "err", err)
		}
		r.last = nil
		return
	case r.last != nil && bytes.Equal(b, r.last):
		return
	}
	r.last = b
	es, err := parse(b)
	if err != nil {
		log.Error("key file is not usable; the last good one stays", "err", err)
		return
	}
	r.entries.Store(&es)
	log.Info("key file taken over", "keys", len(es))
}

// Authenticate takes the value of an Authorization header, and returns the key's tenant, or nil. Its time depends on
// the number of keys, not on which one matches or how far.
func (r *Ring) Authenticate(authorization string) *Tenant {
	scheme, key, ok := strings.Cut(authorization, " ")
	if !ok || !strings.EqualFold(scheme, "bearer") {
		return nil
	}
	digest := sha256.Sum256([]byte(strings.TrimSpace(key)))
	var found *Tenant
	for _, e := range *r.entries.Load() {
		if subtle.ConstantTimeCompare(digest[:], e.digest[:]) == 1 {
			found = e.tenant
		}
	}
	return found
}
