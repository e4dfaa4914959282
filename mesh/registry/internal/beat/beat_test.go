package beat

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// station records what is sent to it; it refuses while down.
type station struct {
	mu    sync.Mutex // the bubble's clock orders nothing in the eyes of the race detector
	start time.Time
	ill   error
	down  bool
	sent  []sent
	gone  int
}

type sent struct {
	at  time.Duration
	ill error
	ok  bool
}

func (s *station) beat(every time.Duration) Beat {
	s.start = time.Now()
	return Beat{
		Every: every, Log: slog.New(slog.DiscardHandler),
		Check: func(context.Context) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.ill
		},
		Send: func(_ context.Context, ill error) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.sent = append(s.sent, sent{time.Since(s.start), ill, !s.down})
			if s.down {
				return errors.New("down")
			}
			return nil
		},
		Remove: func(context.Context) error { s.gone++; return nil },
	}
}

func (s *station) set(ill error, down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ill, s.down = ill, down
}

func TestBeatsComeAtOnceAndThenEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &station{}
		leave := s.beat(time.Second).Start(t.Context())
		time.Sleep(3500 * time.Millisecond)
		if err := leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, b := range s.sent {
			if b.at != time.Duration(i)*time.Second {
				t.Errorf("beat %d at %v", i, b.at)
			}
		}
		if len(s.sent) != 4 || s.gone != 1 {
			t.Errorf("%d beats and %d removals, want 4 and 1", len(s.sent), s.gone)
		}
	})
}

func TestIllnessIsSentAtTheNextBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &station{}
		leave := s.beat(time.Second).Start(t.Context())
		synctest.Wait()
		s.set(errors.New("no broker"), false)
		time.Sleep(time.Second)
		synctest.Wait()
		s.set(nil, false)
		time.Sleep(100 * time.Millisecond) // an ill process is not ill for longer than it must
		synctest.Wait()
		if len(s.sent) != 3 || s.sent[0].ill != nil || s.sent[1].ill == nil || s.sent[2].ill != nil {
			t.Errorf("sent %+v, want well, ill, well", s.sent)
		}
		_ = leave(t.Context())
	})
}

func TestRefusedBeatsAreRepeatedSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &station{down: true}
		leave := s.beat(time.Second).Start(t.Context())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		failed := len(s.sent)
		// 10 s of waits between a half and a whole second, after the first, shorter ones.
		if failed < 10 || failed > 26 {
			t.Errorf("%d attempts in 10 s, want 10 to 26", failed)
		}
		s.set(nil, false)
		time.Sleep(time.Second)
		synctest.Wait()
		if !s.sent[len(s.sent)-1].ok {
			t.Error("no beat within a second of the registry's return")
		}
		_ = leave(t.Context())
	})
}

func TestLeaveWaitsForTheBeatAndIsDoneOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &station{}
		b := s.beat(time.Second)
		inside := false
		b.Send = func(ctx context.Context, _ error) error {
			inside = true
			<-ctx.Done()
			inside = false
			return ctx.Err()
		}
		b.Remove = func(context.Context) error {
			if inside {
				t.Error("removed during a beat: the beat could list it again")
			}
			s.gone++
			return nil
		}
		leave := b.Start(t.Context())
		synctest.Wait()
		_ = leave(t.Context())
		_ = leave(t.Context())
		if s.gone != 1 {
			t.Errorf("removed %d times", s.gone)
		}
	})
}

func TestAHangingRegistryIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, tries := &station{}, 0
		b := s.beat(time.Second)
		b.Send = func(ctx context.Context, _ error) error { tries++; <-ctx.Done(); return ctx.Err() }
		leave := b.Start(t.Context())
		time.Sleep(10 * time.Second)
		_ = leave(t.Context())
		if tries < 3 {
			t.Errorf("%d attempts in 10 s: one that hangs holds the others up", tries)
		}
	})
}

func TestTheEndOfTheContextEndsTheBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &station{}
		ctx, cancel := context.WithCancel(t.Context())
		s.beat(time.Second).Start(ctx)
		synctest.Wait()
		cancel()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(s.sent) != 1 || s.gone != 0 {
			t.Errorf("%d beats and %d removals, want 1 and 0: the entry goes with its TTL", len(s.sent), s.gone)
		}
	})
}
