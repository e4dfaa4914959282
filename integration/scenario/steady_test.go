package scenario

import (
	"bytes"
	"runtime/pprof"
	"strings"
	"testing"
)

func TestProfileCountsEveryGoroutine(t *testing.T) {
	look := func() profile {
		var b bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
			t.Fatal(err)
		}
		p, err := parseProfile(&b)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	before := look()
	started, stop, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	for range 3 {
		go waits(started, stop, ended)
		<-started
	}
	got := look().since(before)
	close(stop)
	for range 3 {
		<-ended
	}
	if !strings.Contains(got, "+3 leasehold.dev/integration/scenario.waits") {
		t.Errorf("three more: %q", got)
	}
}

func waits(started, stop, ended chan struct{}) {
	started <- struct{}{}
	<-stop
	ended <- struct{}{}
}

func TestProfileOfWhichPartIsMissingIsRefused(t *testing.T) {
	if _, err := parseProfile(strings.NewReader("goroutine profile: total 3\n2 @ 0x1\n#\t0x1\tmain.f+0x1\tf.go:1\n\n")); err == nil {
		t.Error("2 of 3 goroutines: no error")
	}
	if _, err := parseProfile(strings.NewReader("")); err == nil {
		t.Error("nothing: no error")
	}
}
