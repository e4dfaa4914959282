package server

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/gpu/pool"
	"leasehold.dev/kvbroker/attach"
	"leasehold.dev/kvbroker/client"
	"leasehold.dev/kvbroker/lease"
	"leasehold.dev/kvbroker/mover"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

// What a helper in mode "reader" needs beside a directory and a ticket.
const (
	helperPeer = "KVBROKER_TEST_PEER" // where the broker in helperDir serves brokers
	helperSelf = "KVBROKER_TEST_SELF" // its own instance
	readerMode = "reader"
)

// readerHelper is broker b1 as far as b0 can see: it attaches as a reader, opens the ticket's Pull, and then does what its
// stdin says, with one line of answer each.
type readerHelper struct {
	self    []byte
	ticket  *meshv1.SignedAdmission
	a       *meshv1.Admission
	session *attach.Session
	view    *pool.View
	conn    *grpc.ClientConn
	stream  grpc.ClientStream
	broken  context.CancelFunc
}

func runReader() int {
	h := &readerHelper{ticket: &meshv1.SignedAdmission{}, a: &meshv1.Admission{}}
	answer := func(s string, err error) {
		if err != nil {
			s = "error: " + err.Error()
		}
		os.Stdout.WriteString(s + "\n")
	}
	self, err := hex.DecodeString(os.Getenv(helperSelf))
	if err != nil {
		return 1
	}
	ticket, err := hex.DecodeString(os.Getenv(helperTicket))
	if err != nil || proto.Unmarshal(ticket, h.ticket) != nil || proto.Unmarshal(h.ticket.Admission, h.a) != nil {
		return 1
	}
	h.self = self
	answer("open", h.open())
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		words := strings.Fields(in.Text())
		answer(h.do(words[0], words[1:]))
	}
	return 0
}

func (h *readerHelper) attach() (err error) {
	h.session, err = attach.DialReader(context.Background(), os.Getenv(helperDir), "b1", h.self, attach.Want{})
	return err
}

func (h *readerHelper) open() (err error) {
	if err = h.attach(); err != nil {
		return err
	}
	if h.view, err = pool.OpenView(h.session.Pool, h.session.Pages, h.session.PageBytes); err != nil {
		return err
	}
	if h.conn, err = grpc.NewClient(os.Getenv(helperPeer), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		return err
	}
	var ctx context.Context
	ctx, h.broken = context.WithCancel(context.Background())
	h.stream, err = h.conn.NewStream(ctx, &brokerv1.PeerService_ServiceDesc.Streams[0], brokerv1.PeerService_Pull_FullMethodName, grpc.CallContentSubtype(mover.Subtype))
	if err != nil {
		return err
	}
	open := &brokerv1.PullOpen{Admission: h.ticket, Secret: readerSecret, FromInstance: h.self, ToInstance: h.session.Instance,
		Rows: h.a.PromptTokens - 1, Pages: proof.Pages(h.a.PromptTokens, 0)}
	if err := h.stream.SendMsg(&brokerv1.PullRequest{Kind: &brokerv1.PullRequest_Open{Open: open}}); err != nil {
		return err
	}
	return h.stream.RecvMsg(&brokerv1.PullResponse{})
}

func (h *readerHelper) do(what string, args []string) (string, error) {
	switch what {
	case "take": // the next message
		return "took", h.stream.RecvMsg(&brokerv1.PullResponse{})
	case "hang-up":
		return "hung up", h.session.Close()
	case "attach":
		return "attached", h.attach()
	case "break":
		h.broken()
		return "broke", nil
	case "read":
		page, err := strconv.Atoi(args[0])
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%x", h.view.Page(uint32(page))[:32]), nil
	case "drained":
		_, err := brokerv1.NewPeerServiceClient(h.conn).Drained(context.Background(), &brokerv1.DrainedRequest{From: "b1", FromInstance: h.self, AdmissionId: h.a.Id, Secret: readerSecret})
		return "told", err
	}
	return "", fmt.Errorf("no command %q", what)
}

// readerSecret is that of the helper's Pull.
var readerSecret = make([]byte, proof.SecretSize)

// reading is a broker b0 whose first page of a request is lent to b1, another process, that may be reading it.
type reading struct {
	b0   *node
	p    *client.Client
	src  *client.Lease
	r    *request
	self []byte
	*process
}

func startReader(t *testing.T, f *fleet, b0 *node, self []byte, r *request) *process {
	t.Helper()
	ticket, err := proto.Marshal(r.s)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), helperMode+"="+readerMode, helperDir+"="+b0.dir, helperTicket+"="+hex.EncodeToString(ticket),
		helperPeer+"="+f.conns["b0"].Target(), helperSelf+"="+hex.EncodeToString(self))
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
	return p
}

// say gives the helper a command and wants that answer.
func (p *process) say(t *testing.T, command, want string) {
	t.Helper()
	fmt.Fprintln(p.in, command)
	if got := p.line(t); got != want {
		t.Fatalf("the reader answers %q with %q, want %q", command, got, want)
	}
}

func newReading(t *testing.T) *reading {
	t.Helper()
	f := newFleet(t)
	k := &reading{b0: newNode(t, f, "b0", 8), r: newRequest(t, 100, 4, shm), self: proof.NewID()}
	k.p = k.b0.attach(t, "p0")
	k.process = startReader(t, f, k.b0, k.self, k.r)
	if got := k.line(t); got != "open" {
		t.Fatalf("the reader says %q", got)
	}
	k.src = k.r.prefill(t, k.p)
	if err := k.src.Seal(t.Context(), []client.Seal{compute(t, k.p, k.src, k.r.ids, 0, 64)}); err != nil {
		t.Fatal(err)
	}
	k.say(t, "take", "took")
	return k
}

// quarantined waits until the request is over at b0 for everybody but the reader, and checks that its pages are nobody
// else's, and as they were.
func (k *reading) quarantined(t *testing.T) {
	t.Helper()
	eventually(t, "quarantine at P", func() bool {
		k.b0.mu.Lock()
		defer k.b0.mu.Unlock()
		return len(k.b0.parked) == 0 && len(k.b0.undrained) == 1
	})
	k.stays(t)
}

// stays asks for every page that is free: what the reader may read is not among them.
func (k *reading) stays(t *testing.T) {
	t.Helper()
	free := 8 - k.r.moved()
	if s := k.b0.states(); s[lease.Quarantine] != k.r.moved() || s[lease.Free] != free {
		t.Errorf("states at P = %v, want %d in quarantine and %d free", s, k.r.moved(), free)
	}
	if got := k.b0.count(t, MetricPages, "state", "quarantine"); got != int64(k.r.moved()) {
		t.Errorf("the metric says %d pages in quarantine, want %d", got, k.r.moved())
	}
	if isZero(k.b0.pool.Page(k.src.Pages[0])) {
		t.Error("the page was cleared")
	}
}

func (k *reading) firstBytes() string {
	return fmt.Sprintf("%x", k.b0.pool.Page(k.src.Pages[0])[:32])
}

func TestStoppedReaderKeepsPagesUntilItIsKilled(t *testing.T) {
	k := newReading(t)
	k.cmd.Process.Signal(syscall.SIGSTOP)
	retire(t, k.src, false) // the sender gives up; its reader cannot say anything
	k.quarantined(t)
	k.kill(t)
	k.b0.baseline(t)
}

func TestReaderKilledInItsPullFreesThePages(t *testing.T) {
	k := newReading(t)
	k.kill(t)
	within(t, "P's lease is revoked", k.src.Revoked())
	retire(t, k.src, false)
	k.b0.baseline(t)
}

func TestReaderThatHangsUpKeepsThePages(t *testing.T) {
	for _, end := range []string{"killed", "drained", "drained after it has attached again", "killed after it has attached again"} {
		t.Run(end, func(t *testing.T) {
			k := newReading(t)
			before := k.firstBytes()
			k.say(t, "hang-up", "hung up")
			k.b0.mu.Lock()
			conn := k.b0.readers[string(k.self)].conn
			k.b0.mu.Unlock()
			within(t, "b0 sees the closed socket", conn.Closed())
			k.say(t, "break", "broke")
			retire(t, k.src, false)
			k.quarantined(t)
			k.say(t, fmt.Sprint("read ", k.src.Pages[0]), before) // it lives, and still can
			if strings.HasSuffix(end, "again") {
				k.say(t, "attach", "attached")
				k.stays(t)
			}
			if strings.HasPrefix(end, "killed") {
				k.kill(t)
			} else {
				k.say(t, "drained", "told")
			}
			k.b0.baseline(t)
		})
	}
}

// A word may be late: an admission whose first Pull was given up before anybody computed has a second.
func TestWordOfAnotherPullDrainsNothing(t *testing.T) {
	k := newReading(t)
	others := func() {
		for name, req := range map[string]*brokerv1.DrainedRequest{
			"of another instance":  {From: "b1", FromInstance: proof.NewID(), AdmissionId: k.r.a.Id, Secret: readerSecret},
			"of another admission": {From: "b1", FromInstance: k.self, AdmissionId: proof.NewID(), Secret: readerSecret},
			"of an earlier Pull":   {From: "b1", FromInstance: k.self, AdmissionId: k.r.a.Id, Secret: proof.NewSecret()},
			"of no Pull":           {From: "b1", FromInstance: k.self, AdmissionId: k.r.a.Id},
		} {
			if _, err := (&peerService{b: k.b0.Broker}).Drained(t.Context(), req); err != nil {
				t.Errorf("Drained %s = %v", name, err)
			}
		}
	}
	others()
	k.say(t, "break", "broke")
	retire(t, k.src, false)
	k.quarantined(t)
	others()
	k.stays(t)
	k.say(t, "drained", "told")
	k.b0.baseline(t)
}

func TestInstanceOfALivingReaderIsItsOwn(t *testing.T) {
	k := newReading(t)
	claim := func() error {
		s, err := attach.DialReader(t.Context(), k.b0.dir, "b1", k.self, attach.Want{})
		if err == nil {
			s.Pool.Close()
			s.Close()
		}
		return err
	}
	wantKind(t, "another process's attach", claim(), errs.Denied)
	k.say(t, "hang-up", "hung up")
	wantKind(t, "and once the socket is closed", claim(), errs.Denied)
	k.say(t, "attach", "attached")
	k.kill(t)
	retire(t, k.src, false)
	k.b0.baseline(t)
	if err := claim(); err != nil {
		t.Errorf("once it is gone: %v", err)
	}
}

func TestReaderIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		with option
		as   attach.Want
		self []byte
		want errs.Kind
	}{
		{"by a broker that lends nothing", func(c *Config) { c.Movers = []meshv1.Mover{meshv1.Mover_MOVER_GRPC} }, attach.Want{}, proof.NewID(), errs.Denied},
		{"by a broker of no host", func(c *Config) { c.Host = "" }, attach.Want{}, proof.NewID(), errs.Denied},
		{"of a user that is not allowed", func(c *Config) { c.UIDs = []uint32{uint32(os.Geteuid()) + 1} }, attach.Want{}, proof.NewID(), errs.Denied},
		{"with pages of another layout", func(*Config) {}, attach.Want{LayoutHash: make([]byte, 32)}, proof.NewID(), errs.Invalid},
		{"with other weights", func(*Config) {}, attach.Want{ModelRevision: make([]byte, 32)}, proof.NewID(), errs.Invalid},
		{"with half an instance", func(*Config) {}, attach.Want{}, proof.NewID()[:8], errs.Invalid},
		{"with an empty instance", func(*Config) {}, attach.Want{}, []byte{}, errs.Invalid},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := newNode(t, newFleet(t), "b0", 8, tt.with)
			s, err := attach.DialReader(t.Context(), n.dir, "b1", tt.self, tt.as)
			wantKind(t, "DialReader", err, tt.want)
			if err == nil {
				s.Close()
			}
			n.mu.Lock()
			defer n.mu.Unlock()
			if len(n.readers) > 0 {
				t.Errorf("%d readers are left", len(n.readers))
			}
		})
	}
}

// A reader that hangs up counts on: its process may still read.
func TestReadersAreBounded(t *testing.T) {
	n := newNode(t, newFleet(t), "b0", 8)
	dial := func(self []byte) error {
		s, err := attach.DialReader(t.Context(), n.dir, "b1", self, attach.Want{})
		if err == nil {
			s.Pool.Close()
			s.Close()
		}
		return err
	}
	last := proof.NewID()
	for i := range maxReaders {
		self := proof.NewID()
		if i == maxReaders-1 {
			self = last
		}
		if err := dial(self); err != nil {
			t.Fatalf("reader %d: %v", i, err)
		}
	}
	wantKind(t, "one more", dial(proof.NewID()), errs.Exhausted)
	if err := dial(last); err != nil {
		t.Errorf("one of them anew: %v", err)
	}
}

func TestPagesAreSharedOnOneHostOnly(t *testing.T) {
	for name, host := range map[string]string{"another": "that one", "none": ""} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t)
			b0, b1 := newNode(t, f, "b0", 8), newNode(t, f, "b1", 12)
			b0.peers.Stop() // b0 says that it is on another host
			id := b0.identity()
			id.Host = host
			f.list(t, "b0", func(s grpc.ServiceRegistrar) {
				brokerv1.RegisterPeerServiceServer(s, &elsewhere{&peerService{b: b0.Broker}, id})
			})
			r := newRequest(t, 100, 4, shm)
			_, err := b1.attach(t, "d0").Reserve(t.Context(), client.Reservation{Admission: r.s, Role: roleDest, TokenIDs: r.ids, Pages: r.life()})
			wantKind(t, "Reserve", err, errs.Invalid)
			b0.baseline(t)
			b1.baseline(t)
			if n := views(t); n > 0 {
				t.Errorf("%d pools are mapped", n)
			}
		})
	}
}

// elsewhere is a broker with another identity.
type elsewhere struct {
	*peerService
	id *brokerv1.BrokerIdentity
}

func (e *elsewhere) Handshake(context.Context, *brokerv1.HandshakeRequest) (*brokerv1.HandshakeResponse, error) {
	return &brokerv1.HandshakeResponse{From: e.id}, nil
}

// views counts the pools that this process has mapped read-only.
func views(t *testing.T) (n int) {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(maps) {
		if f := bytes.Fields(line); len(f) > 5 && string(f[1]) == "r--s" && bytes.Contains(line, []byte("/memfd:leasehold-pool")) {
			n++
		}
	}
	return n
}

func TestRestartedNeighbourIsMetAnewAndItsOldPoolUnmapped(t *testing.T) {
	k := newPair(t, shm)
	serveOne := func(p *client.Client) {
		t.Helper()
		r := newRequest(t, 100, 4, shm)
		dst := r.decode(t, k.d)
		src := r.prefill(t, p)
		fill(t, p, src, r)
		if _, err := dst.AwaitOwned(t.Context()); err != nil {
			t.Fatal(err)
		}
		retire(t, src, true)
		retire(t, dst, true)
	}
	p, b0 := k.p, k.b0
	for i := range 4 {
		serveOne(p)
		serveOne(p)
		eventually(t, fmt.Sprintf("one pool is mapped, start %d of b0", i), func() bool { return views(t) == 1 })
		b0.baseline(t)
		b0.stopAll()
		within(t, "P's client notices", p.Done())
		eventually(t, "none is", func() bool { return views(t) == 0 })
		b0 = startNode(t, k.fleet, "b0", 8, b0.dir)
		p = b0.attach(t, "p0")
	}
	serveOne(p)
	b0.baseline(t)
	k.b1.baseline(t)
	k.b1.stopAll()
	if n := views(t); n > 0 {
		t.Errorf("%d pools are mapped by a broker that is closed", n)
	}
}
