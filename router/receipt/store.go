package receipt

import (
	"container/list"
	"encoding/hex"
	"sync"
	"time"

	"leasehold.dev/protos/errs"
)

// Limits bound a Store; each is above 0.
type Limits struct {
	Keep  time.Duration // a receipt's time
	Count int
	Bytes int64 // of the JWS, and overhead for each
}

// DefaultLimits keep a day's receipts of a busy router.
var DefaultLimits = Limits{Keep: 24 * time.Hour, Count: 100_000, Bytes: 512 << 20}

// overhead is what an entry takes beside its JWS: its place in map and list, id and tenant.
const overhead = 512

// ID names a receipt: 128 random bits.
type ID [16]byte

// String is the id in headers and paths.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// ParseID is the inverse of [ID.String]; ok is false for every other spelling.
func ParseID(s string) (id ID, ok bool) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(id) {
		return ID{}, false
	}
	copy(id[:], b)
	return id, id.String() == s
}

// Store keeps receipts until they are too old, too many or too large together; the oldest go first. It is safe for
// concurrent use, and has no clock of its own.
type Store struct {
	limits Limits

	mu      sync.Mutex
	byID    map[ID]*list.Element
	order   *list.List // of entry, the oldest first
	bytes   int64
	dropped Dropped
}

// Dropped counts receipts that are no longer kept, by the limit that they were over.
type Dropped struct{ Age, Count, Bytes int64 }

type entry struct {
	id     ID
	tenant string
	jws    string
	until  time.Time
}

func (e *entry) size() int64 { return int64(len(e.jws)) + overhead }

// NewStore is Invalid when a limit is not above 0.
func NewStore(l Limits) (*Store, error) {
	if l.Keep <= 0 || l.Count <= 0 || l.Bytes <= 0 {
		return nil, errs.New(errs.Invalid, "receipts are kept for %v, at most %d in %d bytes: each must be above 0", l.Keep, l.Count, l.Bytes)
	}
	return &Store{limits: l, byID: map[ID]*list.Element{}, order: list.New()}, nil
}

// Put keeps a receipt of tenant's. An id is there once: a second one is a bug of the caller's.
func (s *Store) Put(now time.Time, id ID, tenant, jws string) error {
	e := &entry{id, tenant, jws, now.Add(s.limits.Keep)}
	if e.size() > s.limits.Bytes {
		return errs.New(errs.Internal, "a receipt of %d bytes, all together may have %d", e.size(), s.limits.Bytes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.byID[id]; ok {
		return errs.New(errs.Internal, "receipt %v is kept already", id)
	}
	s.expire(now)
	for s.order.Len() >= s.limits.Count {
		s.drop(&s.dropped.Count)
	}
	for s.bytes+e.size() > s.limits.Bytes {
		s.drop(&s.dropped.Bytes)
	}
	s.byID[id] = s.order.PushBack(e)
	s.bytes += e.size()
	return nil
}

// Get is a receipt of tenant's, or NotFound, with one text for all reasons.
func (s *Store) Get(now time.Time, id ID, tenant string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire(now)
	if at, ok := s.byID[id]; ok {
		if e := at.Value.(*entry); e.tenant == tenant {
			return e.jws, nil
		}
	}
	return "", errs.New(errs.NotFound, "no such receipt")
}

// Size is what is kept, and what no longer is.
func (s *Store) Size() (count int, bytes int64, dropped Dropped) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.order.Len(), s.bytes, s.dropped
}

func (s *Store) expire(now time.Time) {
	for at := s.order.Front(); at != nil && !now.Before(at.Value.(*entry).until); at = s.order.Front() {
		s.drop(&s.dropped.Age)
	}
}

func (s *Store) drop(why *int64) {
	e := s.order.Remove(s.order.Front()).(*entry)
	delete(s.byID, e.id)
	s.bytes -= e.size()
	*why++
}
