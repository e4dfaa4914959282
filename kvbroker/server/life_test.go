package server

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"google.golang.org/grpc"

	"leasehold.dev/kvbroker/attach"
	"leasehold.dev/kvbroker/client"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

func (n *node) dial(t *testing.T) brokerv1.WorkerServiceClient {
	t.Helper()
	c, err := grpc.NewClient("unix:"+filepath.Join(n.dir, attach.WorkerName), grpc.WithTransportCredentials(attach.Credentials(uint32(os.Geteuid()))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return brokerv1.NewWorkerServiceClient(c)
}

func TestNewRefusesWhatCannotWork(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"no name":                 func(c *Config) { c.Name = "" },
		"no directory":            func(c *Config) { c.Dir = "" },
		"no pages":                func(c *Config) { c.Pages = 0 },
		"no numerics class":       func(c *Config) { c.NumericsClass = "" },
		"half a key":              func(c *Config) { c.AdmissionKey = c.AdmissionKey[:16] },
		"half an instance":        func(c *Config) { c.Instance = make([]byte, 8) },
		"a check share over 1":    func(c *Config) { c.CheckShare = 1.5 },
		"a layout without heads":  func(c *Config) { c.Layout.KVHeads = 0 },
		"a directory open to all": func(c *Config) { os.MkdirAll(c.Dir, 0o755) },
	} {
		t.Run(name, func(t *testing.T) {
			c := Config{Name: "b", Dir: filepath.Join(t.TempDir(), "run"), Layout: small, NumericsClass: "ref-1", Pages: 1,
				AdmissionKey: routerKey.Public().(ed25519.PublicKey), CheckShare: 1}
			change(&c)
			if b, err := New(c); err == nil {
				b.Close()
				t.Error("New takes it")
			}
		})
	}
}

func TestDrainGrantsNothingAndWaitsForLeases(t *testing.T) {
	f := newFleet(t)
	n := newNode(t, f, "b1", 8)
	d := n.attach(t, "d0")
	l, err := d.Reserve(t.Context(), newRequest(t, 100, 29, none).solo())
	if err != nil {
		t.Fatal(err)
	}
	drained := make(chan struct{})
	go func() { defer close(drained); n.Drain(t.Context()) }()
	eventually(t, "Watch says draining", func() bool { return d.Pool().Draining })
	_, err = d.Reserve(t.Context(), newRequest(t, 10, 4, none).solo())
	wantKind(t, "Reserve while draining", err, errs.Unavailable)
	select {
	case <-drained:
		t.Error("drained over a live lease")
	default:
	}
	retire(t, l, true)
	within(t, "drain", drained)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	n.Drain(ended)
}

func TestBrokerGoneEndsTheClient(t *testing.T) {
	f := newFleet(t)
	n := newNode(t, f, "b1", 8)
	d := n.attach(t, "d0")
	l, err := d.Reserve(t.Context(), newRequest(t, 100, 29, none).solo())
	if err != nil {
		t.Fatal(err)
	}
	d.Mapping().Page(l.Pages[0])[0] = 1
	n.stopAll()
	within(t, "Done", d.Done())
	within(t, "Revoked", l.Revoked())
	wantKind(t, "RevokeErr", l.RevokeErr(), errs.Unavailable)
	d.Mapping().Page(l.Pages[0])[0] = 2 // still mapped until Close
	_, err = d.Reserve(t.Context(), newRequest(t, 10, 4, none).solo())
	wantKind(t, "Reserve at a dead handle", err, errs.Unavailable)
}

func TestOneWatchAHandle(t *testing.T) {
	f := newFleet(t)
	n := newNode(t, f, "b1", 8)
	w, token := n.raw(t, "d0") // its client watches
	s, err := w.Watch(t.Context(), &brokerv1.WatchRequest{Attach: token})
	if err == nil {
		_, err = s.Recv()
	}
	wantKind(t, "a second Watch", errs.FromStatus(err), errs.Invalid)
}

// TestThousandsOfRequestsLeaveNothing mixes movers, lengths and bad ends, four at a time.
func TestThousandsOfRequestsLeaveNothing(t *testing.T) {
	f := newFleet(t)
	b0, b1 := newNode(t, f, "b0", 32), newNode(t, f, "b1", 64)
	p0, p1, d := b0.attach(t, "p0"), b1.attach(t, "p0"), b1.attach(t, "d0")
	one := func(seed uint64) {
		rng := rand.New(rand.NewPCG(seed, 0))
		m, p := meshv1.Mover_MOVER_GRPC, p0
		if rng.IntN(2) == 0 {
			m, p = meshv1.Mover_MOVER_LOCAL, p1
		}
		r := newRequest(t, uint32(2+rng.IntN(250)), uint32(1+rng.IntN(40)), m)
		dst, err := d.Reserve(t.Context(), client.Reservation{Admission: r.s, Role: roleDest, TokenIDs: r.ids, Pages: r.life()})
		if err != nil {
			if k := errs.KindOf(err); k != errs.Exhausted {
				t.Errorf("seed %d: reserve destination: %v", seed, err)
			}
			return
		}
		end := rng.IntN(6)
		defer func() { retire(t, dst, end > 2) }()
		if end == 0 {
			return
		}
		src, err := p.Reserve(t.Context(), client.Reservation{Admission: r.s, Role: roleSource, TokenIDs: r.ids, Pages: r.moved()})
		if errs.KindOf(err) == errs.Exhausted && err != nil {
			p.Refuse(t.Context(), r.s, err)
			return
		}
		if err != nil {
			t.Errorf("seed %d: reserve source: %v", seed, err)
			return
		}
		defer func() { retire(t, src, end > 1) }()
		if end == 1 {
			return
		}
		fill(t, p, src, r)
		if end == 2 {
			return
		}
		if _, err := bothLooks(t, dst); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	run := func(from, to uint64) {
		var wg sync.WaitGroup
		next := make(chan uint64)
		for range 4 {
			wg.Go(func() {
				for seed := range next {
					one(seed)
				}
			})
		}
		for seed := from; seed < to; seed++ {
			next <- seed
		}
		close(next)
		wg.Wait()
		b0.baseline(t)
		b1.baseline(t)
	}
	run(0, 200)
	before := settled(t)
	run(200, 2000)
	eventually(t, "goroutines and descriptors as before", func() bool { return usage() == before })
	for _, n := range []*node{b0, b1} {
		if got := n.count(t, MetricIncidents, "", ""); got != 0 {
			t.Errorf("%s: %d incidents, want none", n.cfg.Name, got)
		}
		n.mu.Lock()
		for _, h := range n.handles {
			if len(h.calls) != 0 || len(h.revokes) != 0 {
				t.Errorf("%s: handle of %s keeps %d calls and %d revokes", n.cfg.Name, h.worker, len(h.calls), len(h.revokes))
			}
		}
		n.mu.Unlock()
	}
}

// settled is the usage once it was the same a hundred times running: an ending goroutine of the load is still counted.
func settled(t *testing.T) string {
	t.Helper()
	last, same := "", 0
	eventually(t, "a steady number of goroutines and descriptors", func() bool {
		if now := usage(); now != last {
			last, same = now, 0
		}
		same++
		return same == 100
	})
	return last
}

func usage() string {
	fds, _ := os.ReadDir("/proc/self/fd")
	return fmt.Sprint(runtime.NumGoroutine(), " goroutines, ", len(fds), " descriptors")
}
