package local

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"leasehold.dev/protos/errs"
)

// childEnv makes the test binary a program of the mesh, which behaves as its value says.
const childEnv = "LEASEHOLD_TEST_CHILD"

func TestMain(m *testing.M) {
	if how := os.Getenv(childEnv); how != "" {
		os.Exit(child(how, os.Args[1:]))
	}
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("leasehold.dev/cli/local.spawnLoop"))
}

// child serves as the real programs do: it listens, writes its address file and ends at SIGTERM.
func child(how string, args []string) int {
	f := flag.NewFlagSet("child", flag.ContinueOnError)
	addrFile, listen := f.String("addr-file", "", ""), f.String("listen", "127.0.0.1:0", "")
	if err := f.Parse(args); err != nil {
		return 2
	}
	if how == "dies" {
		fmt.Fprintln(os.Stderr, "the pool holds 3 pages, 9 are promised")
		return 3
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	if how == "stubborn" {
		signal.Ignore(syscall.SIGTERM)
	}
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 4
	}
	defer l.Close()
	b, _ := json.Marshal(Addr{GRPC: l.Addr().String()})
	if how != "silent" {
		os.WriteFile(*addrFile+".new", b, 0o600)
		os.Rename(*addrFile+".new", *addrFile)
	}
	fmt.Fprintln(os.Stderr, "serves")
	<-stop
	if how == "fails at the end" {
		fmt.Fprintln(os.Stderr, "two calls were cut off")
		return 5
	}
	return 0
}

// process is a child that is not started yet, and is gone at the end of the test.
func process(t *testing.T, how string) *Process {
	t.Helper()
	t.Setenv(childEnv, how)
	p := newProcess("decode/decode-0", os.Args[0], t.TempDir(), nil)
	t.Cleanup(func() {
		if p.Exited() != nil {
			p.Kill()
		}
	})
	return p
}

func start(t *testing.T, p *Process) Addr {
	t.Helper()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	a, err := p.Addr(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func wantError(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", texts)
	}
	for _, s := range texts {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("error %q lacks %q", err, s)
		}
	}
}

func TestProcessServesAndStops(t *testing.T) {
	p := process(t, "serves")
	start(t, p)
	wantError(t, p.Start(), "runs already", fmt.Sprint(p.PID()))
	if err := p.Stop(10 * time.Second); err != nil {
		t.Errorf("Stop = %v", err)
	}
	if err := p.Stop(time.Second); err != nil || p.Err() != nil {
		t.Errorf("second Stop = %v, Err %v", err, p.Err())
	}
}

func TestProcessServesAgainOnItsAddress(t *testing.T) {
	p := process(t, "serves")
	first, pid := start(t, p), p.PID()
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if second := start(t, p); second != first || p.PID() == pid {
		t.Errorf("served at %v as %d, then at %v as %d", first, pid, second, p.PID())
	}
	if b, err := os.ReadFile(p.Log()); err != nil || strings.Count(string(b), "serves\n") != 2 {
		t.Errorf("log of two runs: %q, %v", b, err)
	}
}

// TestProcessOnAnotherHost: what enters the host becomes the program, and so is what is killed; it serves on the host's address.
func TestProcessOnAnotherHost(t *testing.T) {
	t.Setenv(childEnv, "serves")
	m := &Mesh{Config: Config{Dir: t.TempDir()}}
	m.Brokers = []Broker{{Name: "b", Host: Host{Enter: []string{"env", "ENTERED=1"}, IP: "127.0.0.2"}}}
	at := m.hostOf(Worker{Broker: "b"})
	p := newProcess("decode/decode-0", os.Args[0], m.Dir, []string{"-listen", at.any()})
	p.enter = at.Enter
	t.Cleanup(func() { p.Kill() })
	if a := start(t, p); !strings.HasPrefix(a.GRPC, "127.0.0.2:") {
		t.Errorf("it serves at %s", a.GRPC)
	}
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID()))
	if err != nil || !strings.Contains(string(env), "ENTERED=1") {
		t.Errorf("its environment is %q, %v", env, err)
	}
	if here := m.hostOf(Worker{Broker: "c"}); here.Enter != nil || here.any() != "127.0.0.1:0" {
		t.Errorf("a worker of a broker without a host is at %v", here)
	}
	if err := p.Stop(10 * time.Second); err != nil {
		t.Error(err)
	}
}

func TestKilledProcessIsNoErrorAtStop(t *testing.T) {
	p := process(t, "serves")
	start(t, p)
	if err := p.Kill(); err != nil || p.Err() == nil {
		t.Errorf("Kill = %v, Err = %v", err, p.Err())
	}
	if err := p.Stop(time.Second); err != nil {
		t.Errorf("Stop after Kill = %v", err)
	}
}

func TestProcessThatEndsBeforeItServes(t *testing.T) {
	p := process(t, "dies")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	_, err := p.Addr(t.Context())
	wantError(t, err, "decode/decode-0 ended before it served", "exit status 3", "3 pages, 9 are promised")
	if errs.KindOf(err) != errs.Unavailable {
		t.Errorf("kind %v", errs.KindOf(err))
	}
	if err := p.Stop(time.Second); err != nil {
		t.Errorf("Stop tells of it again: %v", err)
	}
}

func TestProcessThatDoesNotServeInTime(t *testing.T) {
	p := process(t, "silent")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(fmt.Errorf("not up within 90 s"))
	_, err := p.Addr(ctx)
	wantError(t, err, "does not serve yet", "not up within 90 s")
}

func TestStubbornProcessIsKilledAfterItsGrace(t *testing.T) {
	p := process(t, "stubborn")
	start(t, p)
	wantError(t, p.Stop(50*time.Millisecond), "did not stop within 50ms", "serves")
	select {
	case <-p.Exited():
	default:
		t.Error("it still runs")
	}
}

func TestProcessThatFailsAtTheEnd(t *testing.T) {
	p := process(t, "fails at the end")
	start(t, p)
	wantError(t, p.Stop(10*time.Second), "exit status 5", "two calls were cut off")
}

func TestProgramThatIsNotThere(t *testing.T) {
	p := newProcess("decode/decode-0", filepath.Join(t.TempDir(), "absent"), t.TempDir(), nil)
	wantError(t, p.Start(), "start decode/decode-0", "absent")
	if p.Exited() != nil {
		t.Error("it counts as started")
	}
}

func TestTailIsWholeLines(t *testing.T) {
	p := newProcess("a/b", "", t.TempDir(), nil)
	long := strings.Repeat("x", 99) + "\n"
	if err := os.WriteFile(p.Log(), []byte(strings.Repeat(long, 50)+"last\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := p.tail()
	if !strings.HasSuffix(got, "\nlast") || len(got) > tailBytes || len(strings.Split(got, "\n")[0]) != 99 {
		t.Errorf("tail of %d bytes: %.120q", len(got), got)
	}
}

func TestMeshWaitAndKill(t *testing.T) {
	p := process(t, "serves")
	start(t, p)
	m := &Mesh{procs: map[string]*Process{p.Name: p}, order: []string{p.Name}}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := m.Wait(ended); got != nil {
		t.Errorf("Wait at the end of its context = %v", got.Name)
	}
	if err := m.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := m.Wait(t.Context()); got != p {
		t.Errorf("Wait = %v, want the killed one", got)
	}
	wantError(t, p.Ended("by itself"), "ended by itself (signal: killed)")
}

func TestStartThatFailsLeavesNothingAndTellsOnce(t *testing.T) {
	t.Setenv(childEnv, "dies")
	c := Default()
	c.Dir, c.Bin = t.TempDir(), t.TempDir()
	for _, s := range []string{"kvbroker", "prefill", "decode", "router"} {
		if err := os.Symlink(os.Args[0], filepath.Join(c.Bin, "leasehold-"+s)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := Start(t.Context(), c)
	wantError(t, err, "kvbroker/broker-p ended before it served")
	if m != nil || strings.Count(err.Error(), "broker-p ended") != 1 {
		t.Errorf("mesh %v, error %v", m, err)
	}
}
