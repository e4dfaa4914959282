package server

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/proto"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/kvbroker/client"
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// The test binary is also a worker process: helperMode says what it does with the lease that it reserves from the broker
// in helperDir, for the admission in helperTicket.
const (
	helperMode   = "KVBROKER_TEST_MODE"
	helperDir    = "KVBROKER_TEST_DIR"
	helperTicket = "KVBROKER_TEST_TICKET"
)

// helper is a prefill worker that reserves its source, says so, and then holds it, or closes its handle and lives on.
func helper(mode string) int {
	if mode == readerMode {
		return runReader()
	}
	say := func(s string) { os.Stdout.WriteString(s + "\n") }
	c, err := client.Attach(context.Background(), client.Config{Dir: os.Getenv(helperDir), Worker: "p0"})
	if err != nil {
		say(err.Error())
		return 1
	}
	ticket, err := hex.DecodeString(os.Getenv(helperTicket))
	if err != nil {
		return 1
	}
	req := client.Reservation{Admission: &meshv1.SignedAdmission{}, Role: roleSource}
	var a meshv1.Admission
	if proto.Unmarshal(ticket, req.Admission) != nil || proto.Unmarshal(req.Admission.Admission, &a) != nil {
		return 1
	}
	r := &request{a: &a, ids: make([]int32, a.PromptTokens)}
	for i := range r.ids {
		r.ids[i] = int32(i*7 + 3)
	}
	req.TokenIDs, req.Pages = r.ids, r.moved()
	l, err := c.Reserve(context.Background(), req)
	if err != nil {
		say(err.Error())
		return 1
	}
	page := c.Mapping().Page(l.Pages[0])
	if mode == "hang up" {
		c.Mapping() // stays mapped: only the sockets go
		closeSockets()
	}
	say(fmt.Sprintf("holds %d", l.Pages[0]))
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		page[7] = 0xee // a late write, whenever the test asks for one
		say("wrote")
	}
	return 0
}

// closeSockets ends every connection of the process without its libraries' help, as a crash of a part of it might.
func closeSockets() {
	for fd := 3; fd < 256; fd++ {
		if typ, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_TYPE); err == nil && typ != 0 {
			syscall.Shutdown(fd, syscall.SHUT_RDWR)
		}
	}
}

type process struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startWorker(t *testing.T, n *node, r *request, mode string) *process {
	t.Helper()
	ticket, err := proto.Marshal(r.s)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), helperMode+"="+mode, helperDir+"="+n.dir, helperTicket+"="+hex.EncodeToString(ticket))
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.cmd.Process.Kill(); p.cmd.Wait() })
	if line := p.line(t); !strings.HasPrefix(line, "holds ") {
		t.Fatalf("worker process says %q", line)
	}
	return p
}

func (p *process) line(t *testing.T) string {
	t.Helper()
	s, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(s)
}

func (p *process) kill(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
}

// remotePair is a pair whose prefill worker is another process.
func remotePair(t *testing.T, opts ...option) *pair {
	t.Helper()
	f := newFleet(t)
	k := &pair{b0: newNode(t, f, "b0", 8, opts...), b1: newNode(t, f, "b1", 12, opts...)}
	k.d = k.b1.attach(t, "d0")
	return k
}

func TestKilledPrefillWorkerFreesItsPagesAndFailsTheRequest(t *testing.T) {
	k := remotePair(t)
	r := newRequest(t, 100, 4, meshv1.Mover_MOVER_GRPC)
	dst := r.decode(t, k.d)
	p := startWorker(t, k.b0, r, "hold")
	if k.b0.states()[lease.Writing] != r.moved() {
		t.Errorf("states at P = %v, want %d writing", k.b0.states(), r.moved())
	}
	p.kill(t)
	_, err := dst.AwaitOwned(t.Context())
	wantKind(t, "AwaitOwned", err, errs.Unavailable)
	retire(t, dst, false)
	k.baseline(t)
}

func TestStoppedWorkerKeepsItsPagesInQuarantine(t *testing.T) {
	k := remotePair(t)
	r := newRequest(t, 100, 4, meshv1.Mover_MOVER_GRPC)
	dst := r.decode(t, k.d)
	p := startWorker(t, k.b0, r, "hold")
	p.cmd.Process.Signal(syscall.SIGSTOP)
	retire(t, dst, false) // D gives up; P cannot answer
	eventually(t, "quarantine at P", func() bool { return k.b0.states()[lease.Quarantine] == r.moved() })
	k.b1.baseline(t)
	if free := k.b0.states()[lease.Free]; free != 8-r.moved() {
		t.Errorf("%d pages free while their writer is stopped, want %d", free, 8-r.moved())
	}
	p.kill(t)
	k.baseline(t)
}

func TestClosedHandleOfALivingProcessFreesNothing(t *testing.T) {
	k := remotePair(t)
	r := newRequest(t, 100, 4, meshv1.Mover_MOVER_GRPC)
	dst := r.decode(t, k.d)
	p := startWorker(t, k.b0, r, "hang up")
	_, err := dst.AwaitOwned(t.Context())
	wantKind(t, "AwaitOwned", err, errs.Unavailable)
	retire(t, dst, false)
	k.b1.baseline(t)
	eventually(t, "quarantine at P", func() bool { return k.b0.states()[lease.Quarantine] == r.moved() })
	fmt.Fprintln(p.in, "write late")
	if got := p.line(t); got != "wrote" {
		t.Fatalf("worker process says %q", got)
	}
	if k.b0.states()[lease.Quarantine] != r.moved() {
		t.Errorf("states at P = %v, want %d in quarantine: the process lives", k.b0.states(), r.moved())
	}
	p.kill(t)
	k.baseline(t)
}

func TestLateWriteIsFoundAtTheNextGrant(t *testing.T) {
	f := newFleet(t)
	n := newNode(t, f, "b1", 4)
	d := n.attach(t, "d0")
	page := uint32(2)
	d.Mapping().Page(page)[99] = 1 // nobody's page
	r := newRequest(t, 100, 157, meshv1.Mover_MOVER_NONE)
	solo := client.Reservation{Admission: r.s, Role: roleSolo, TokenIDs: r.ids, Pages: r.life()}
	_, err := d.Reserve(t.Context(), solo)
	wantKind(t, "Reserve over a written page", err, errs.Unavailable)
	eventually(t, "the page is withheld, the rest free", func() bool {
		s := n.states()
		return s[lease.Free] == 3 && s[lease.Zeroing] == 1
	})
	if got := n.count(t, MetricIncidents, "kind", "late_write"); got != 1 {
		t.Errorf("%d late write incidents, want 1", got)
	}
	if got := n.count(t, MetricWithheld, "", ""); got != 1 {
		t.Errorf("%d pages withheld, want 1", got)
	}
}

// A page that came whole is nobody's to write any more, however its lease ends.
func TestLateWriteIsFoundBeforeClearing(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, k *pair, l *client.Lease){
		"the request went well": func(t *testing.T, _ *pair, l *client.Lease) { retire(t, l, true) },
		"it was cancelled":      func(t *testing.T, _ *pair, l *client.Lease) { retire(t, l, false) },
		"it expired": func(t *testing.T, k *pair, l *client.Lease) {
			k.b1.report(lease.Expire{Lease: lease.ID(l.ID)})
			retire(t, l, true)
		},
		"it was revoked": func(t *testing.T, k *pair, l *client.Lease) {
			k.b1.report(lease.Revoke{Lease: lease.ID(l.ID), Kind: errs.Unavailable, Reason: "test"})
			retire(t, l, false)
		},
	} {
		for _, m := range movers {
			t.Run(name+", "+m.String(), func(t *testing.T) {
				k := newPair(t, m)
				r := newRequest(t, 100, 4, m)
				dst := r.decode(t, k.d)
				src := r.prefill(t, k.p)
				fill(t, k.p, src, r)
				o, err := bothLooks(t, dst)
				if err != nil {
					t.Fatal(err)
				}
				k.b0.baseline(t)
				k.d.Mapping().Page(o.Pages()[0])[5] ^= 1
				end(t, k, dst)
				eventually(t, "the page is withheld, the rest free", func() bool {
					s := k.b1.states()
					return s[lease.Free] == 11 && s[lease.Zeroing] == 1
				})
				if got := k.b1.count(t, MetricIncidents, "kind", "late_write"); got != 1 {
					t.Errorf("%d late write incidents, want 1", got)
				}
			})
		}
	}
}

func TestWithheldPageIsFreeAgainWhenEverySuspectIsGone(t *testing.T) {
	k := remotePair(t)
	r := newRequest(t, 100, 4, meshv1.Mover_MOVER_GRPC)
	dst := r.decode(t, k.d)
	p := startWorker(t, k.b0, r, "hold")
	k.b0.pool.Page(7)[0] = 1 // written by nobody that is known
	k.b0.mu.Lock()
	k.b0.dirtied[7] = struct{}{}
	k.b0.mu.Unlock()
	k.b0.clearLease(lease.Zero{Pages: []uint32{7}})
	if got := k.b0.count(t, MetricWithheld, "", ""); got != 1 {
		t.Errorf("%d pages withheld while a suspect lives, want 1", got)
	}
	p.kill(t)
	_, err := dst.AwaitOwned(t.Context())
	wantKind(t, "AwaitOwned", err, errs.Unavailable)
	retire(t, dst, false)
	eventually(t, "acquittal", func() bool { return k.b0.count(t, MetricWithheld, "", "") == 0 && isZero(k.b0.pool.Page(7)) })
}

func TestFaultsOfAnEndedLeaseAreExplained(t *testing.T) {
	f := newFleet(t)
	n := newNode(t, f, "b1", 8)
	d := n.attach(t, "d0")
	fault := []engine.Fault{{Kind: engine.FaultRead, Page: 1, Want: 2, Got: 3}}
	reserve := func() *client.Lease {
		r := newRequest(t, 10, 4, meshv1.Mover_MOVER_NONE)
		l, err := d.Reserve(t.Context(), client.Reservation{Admission: r.s, Role: roleSolo, TokenIDs: r.ids, Pages: r.life()})
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := reserve()
	n.step(lease.Revoke{Lease: lease.ID(l.ID), Kind: errs.Unavailable, Reason: "test"})
	within(t, "revoke", l.Revoked())
	if err := l.Retire(t.Context(), false, "revoked", fault); err != nil {
		t.Fatal(err)
	}
	if got := n.count(t, MetricFaults, "explained", "true"); got != 1 {
		t.Errorf("%d explained faults, want 1", got)
	}
	l = reserve()
	if err := l.Retire(t.Context(), false, "fault", fault); err != nil {
		t.Fatal(err)
	}
	if got, inc := n.count(t, MetricFaults, "explained", "false"), n.count(t, MetricIncidents, "kind", "fault"); got != 1 || inc != 1 {
		t.Errorf("%d unexplained faults and %d incidents, want 1 and 1", got, inc)
	}
	n.baseline(t)
}
