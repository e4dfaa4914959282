package runner

import (
	"testing"
	"time"

	"leasehold.dev/gpu/layout"
)

func TestHeartbeat(t *testing.T) {
	began := time.Unix(1000, 0)
	for _, tt := range []struct {
		name  string
		begin bool
		after time.Duration
		want  string
	}{
		{"an idle loop just came round", false, 100 * time.Millisecond, ""},
		{"an idle loop is late, but not stuck", false, beatLimit, ""},
		{"the loop is stuck outside a step", false, beatLimit + time.Second, "engine: the loop has not come round for 4s, most is 3s"},
		{"a long step runs", true, 50 * time.Second, ""},
		{"a step never ends", true, 61 * time.Second, "engine: one step has run for 1m1s, most is 1m0s"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var h heartbeat
			if h.idle(began); tt.begin {
				h.begin(began)
			}
			err := h.check(began.Add(tt.after), time.Minute)
			if got := text(err); got != tt.want {
				t.Errorf("check = %q, want %q", got, tt.want)
			}
		})
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestALoopThatIsStuckIsNotHealthy(t *testing.T) {
	g := newRig(t, layout.Ref, roomy)
	if err := g.Healthy(); err != nil {
		t.Fatalf("an idle loop: %v", err)
	}
	stuck, free := make(chan struct{}), make(chan struct{})
	defer close(free)
	go func() { _ = g.onLoop(func() { close(stuck); <-free }) }()
	<-stuck
	if err := g.beat.check(time.Now().Add(beatLimit+time.Second), time.Minute); err == nil {
		t.Error("a stuck loop is healthy")
	}
}
