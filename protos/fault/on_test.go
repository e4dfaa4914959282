//go:build faults

package fault

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestArmedPoints(t *testing.T) {
	for _, tt := range []struct {
		name string
		arm  string
		want []Action
	}{
		{"nothing is armed", "", []Action{None, None}},
		{"every time", "arm point:mover/page drop", []Action{Drop, Drop, Drop}},
		{"once", "arm point:mover/page corrupt times=1", []Action{Corrupt, None, None}},
		{"from the third on, twice", "arm point:mover/page late-write after=2 times=2", []Action{None, None, LateWrite, LateWrite, None}},
		{"another point", "arm point:mover/read drop", []Action{None}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := newKit()
			if tt.arm != "" {
				if got := k.do(tt.arm); got != "ok" {
					t.Fatal(got)
				}
			}
			fired := 0
			for i, want := range tt.want {
				if got := k.at(MoverPage); got != want {
					t.Errorf("passing %d: %v, want %v", i, got, want)
				}
				if want != None {
					fired++
				}
			}
			if c := k.counts(); c.Passed[MoverPage] != len(tt.want) || c.Fired[MoverPage] != fired {
				t.Errorf("counts %+v, want %d passed and %d fired", c, len(tt.want), fired)
			}
		})
	}
}

func TestDelayAndHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKit()
		k.do("arm point:runner/step delay for=3s times=1")
		began := time.Now()
		if a := k.at(RunnerStep); a != None || time.Since(began) != 3*time.Second {
			t.Errorf("a delay gave %v after %v, want nothing after 3s", a, time.Since(began))
		}
		k.do("arm point:runner/step hold")
		done := make(chan struct{})
		go func() { defer close(done); k.at(RunnerStep) }()
		synctest.Wait()
		select {
		case <-done:
			t.Error("nothing was held")
		default:
		}
		k.do("disarm point:runner/step")
		<-done
	})
}

func TestPauseAndKillSignalTheOwnProcess(t *testing.T) {
	k := newKit()
	var got []syscall.Signal
	k.signal = func(s syscall.Signal) { got = append(got, s) }
	for _, line := range []string{"arm point:prefill/finish pause times=1", "arm point:prefill/finish kill times=1"} {
		k.do(line)
		if a := k.at(PrefillFinish); a != None {
			t.Errorf("%s: the caller is told %v", line, a)
		}
	}
	if want := []syscall.Signal{syscall.SIGSTOP, syscall.SIGKILL}; !slices.Equal(got, want) {
		t.Errorf("signals %v, want %v", got, want)
	}
}

func TestGuardsTurnOffAndOn(t *testing.T) {
	defer own.turn(Digest, false)
	if got := own.do("off guard:digest"); got != "ok" || !Off(Digest) || Off(MAC) || !AnyOff() {
		t.Errorf("%q: digest off %v, mac off %v, any off %v", got, Off(Digest), Off(MAC), AnyOff())
	}
	if got := own.do("on guard:digest"); got != "ok" || Off(Digest) || AnyOff() || len(TurnedOff()) > 0 {
		t.Errorf("%q: still off: %v", got, TurnedOff())
	}
}

func TestWrongLinesChangeNothing(t *testing.T) {
	k := newKit()
	for _, line := range []string{"", "what", "off guard:none", "off guard:digest guard:none", "on digest", "arm", "arm point:mover/page",
		"arm point:none drop", "arm point:mover/page explode", "arm point:mover/page drop times=-1", "arm point:mover/page drop times",
		"arm point:mover/page drop size=1", "arm point:mover/page delay", "arm point:mover/page delay for=soon", "disarm point:none"} {
		if got := k.do(line); !strings.HasPrefix(got, "error: ") {
			t.Errorf("%q is answered %q, want an error", line, got)
		}
	}
	if got := k.do("counts"); got != `{"passed":{},"fired":{},"off":null}` {
		t.Errorf("after wrong lines: %s", got)
	}
	if k.at(MoverPage) != None {
		t.Error("a wrong line has armed a point")
	}
}

func TestControlSocket(t *testing.T) {
	dir, err := os.MkdirTemp("", "fault") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "start"), []byte("off guard:mac\narm point:mover/page hold\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	k := newKit()
	c, err := k.listen(dir, "7")
	if err != nil {
		t.Fatal(err)
	}
	held := make(chan struct{})
	go func() { defer close(held); k.at(MoverPage) }()
	conn, err := net.Dial("unix", filepath.Join(dir, "7"))
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	for _, tt := range []struct{ line, want string }{
		{"on guard:none", `error: no guard "guard:none"`},
		{"arm point:mover/read drop", "ok"},
		{"off guard:zero", "ok"},
	} {
		fmt.Fprintln(conn, tt.line)
		if got, err := in.ReadString('\n'); err != nil || strings.TrimSpace(got) != tt.want {
			t.Errorf("%q is answered %q, %v, want %q", tt.line, got, err, tt.want)
		}
	}
	if want := []Guard{MAC, Zero}; !slices.Equal(k.turnedOff(), want) {
		t.Errorf("off: %v, want %v", k.turnedOff(), want)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	<-held // Close lets go of it
	if _, err := in.ReadString('\n'); err == nil {
		t.Error("the connection outlived Close")
	}
}

func TestABadStartFileStopsTheProcess(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "start"), []byte("off everything\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := newKit().listen(dir, "1"); err == nil {
		c.Close()
		t.Error("a start file that nobody understands is no error")
	}
	t.Setenv(Environ, "")
	if c, err := Listen(); c != nil || err != nil {
		t.Errorf("Listen without %s = %v, %v, want nothing", Environ, c, err)
	}
}
