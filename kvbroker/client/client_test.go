package client

import (
	"context"
	"crypto/ed25519"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
	"leasehold.dev/kvbroker/attach"
	"leasehold.dev/kvbroker/server"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	key   = ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	small = layout.Layout{Layers: 1, KVHeads: 1, HeadDim: 64, DType: layout.BF16, Order: layout.Plain}
)

func startBroker(t *testing.T, dir string) *server.Broker {
	t.Helper()
	b, err := server.New(server.Config{Name: "b1", Dir: dir, Layout: small, ModelRevision: [32]byte{1}, NumericsClass: "ref-1",
		Pages: 4, AdmissionKey: key.Public().(ed25519.PublicKey), CheckShare: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func runtimeDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "lh") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "run")
}

func attached(t *testing.T, dir string) *Client {
	t.Helper()
	c, err := Attach(t.Context(), Config{Dir: dir, Worker: "d0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func solo(t *testing.T, n uint32) Reservation {
	t.Helper()
	ids, rev := make([]int32, n), [32]byte{1}
	a := &meshv1.Admission{Id: proof.NewID(), Tenant: "t", ModelRevision: rev[:], PromptTokens: n, MaxNewTokens: 1, Nonce: proof.NewID(),
		Decode: "d0", DecodeBroker: "b1", Mover: meshv1.Mover_MOVER_NONE, DeadlineUnixMs: time.Now().Add(time.Minute).UnixMilli()}
	a.PromptDigest = proof.PromptDigest(a.Nonce, a.Tenant, rev[:], ids)
	s, err := proof.Sign(key, a)
	if err != nil {
		t.Fatal(err)
	}
	return Reservation{Admission: s, Role: brokerv1.Role_ROLE_SOLO, TokenIDs: ids, Pages: (n + 63) / 64}
}

func TestInfoIsTheBrokers(t *testing.T) {
	dir := runtimeDir(t)
	b := startBroker(t, dir)
	c := attached(t, dir)
	i, hash := c.Info(), small.Hash()
	if i.Broker != "b1" || string(i.Instance) != string(b.Instance()) || i.Epoch != 1 || string(i.LayoutHash) != string(hash[:]) ||
		i.NumericsClass != "ref-1" || i.PoolPages != 4 || i.PageBytes != small.PageBytes() {
		t.Errorf("Info = %+v", i)
	}
	if c.Mapping().Pages() != 4 || c.Pool() != (PoolState{Pages: 4, Free: 4}) {
		t.Errorf("mapping of %d pages, pool %+v", c.Mapping().Pages(), c.Pool())
	}
	if again := attached(t, dir); again.Info().Epoch != 2 {
		t.Errorf("epoch of the second attach = %d, want 2", again.Info().Epoch)
	}
}

func TestAttachFails(t *testing.T) {
	t.Run("without a broker", func(t *testing.T) {
		dir := runtimeDir(t)
		if err := attach.PrepareDir(dir); err != nil {
			t.Fatal(err)
		}
		if _, err := Attach(t.Context(), Config{Dir: dir, Worker: "d0"}); errs.KindOf(err) != errs.Unavailable {
			t.Errorf("Attach = %v, want unavailable", err)
		}
	})
	t.Run("in a directory open to others", func(t *testing.T) {
		dir := runtimeDir(t)
		startBroker(t, dir)
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := Attach(t.Context(), Config{Dir: dir, Worker: "d0"}); errs.KindOf(err) != errs.Denied {
			t.Errorf("Attach = %v, want denied", err)
		}
	})
	t.Run("without a name", func(t *testing.T) {
		dir := runtimeDir(t)
		startBroker(t, dir)
		if _, err := Attach(t.Context(), Config{Dir: dir}); errs.KindOf(err) != errs.Invalid {
			t.Errorf("Attach = %v, want invalid", err)
		}
	})
}

func TestCloseRevokesAndRepeats(t *testing.T) {
	dir := runtimeDir(t)
	startBroker(t, dir)
	c := attached(t, dir)
	l, err := c.Reserve(t.Context(), solo(t, 100))
	if err != nil {
		t.Fatal(err)
	}
	if l.RevokeErr() != nil {
		t.Errorf("RevokeErr = %v of a live lease", l.RevokeErr())
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	<-c.Done()
	<-l.Revoked()
	if errs.KindOf(l.RevokeErr()) != errs.Unavailable {
		t.Errorf("RevokeErr = %v, want unavailable", l.RevokeErr())
	}
	if err := c.Close(); err != nil {
		t.Errorf("a second Close = %v", err)
	}
	// The process lives: what the handle held stays in quarantine, and the next handle sees it.
	next := attached(t, dir)
	if got := next.Pool().Free; got != 2 {
		t.Errorf("%d pages free after a handle with 2 was closed, want 2", got)
	}
}

func TestEarlyRevokeIsKeptForItsLease(t *testing.T) {
	dir := runtimeDir(t)
	startBroker(t, dir)
	c := attached(t, dir)
	id := proof.NewID()
	revoked := &brokerv1.WatchResponse{Event: &brokerv1.WatchResponse_Revoked{Revoked: &brokerv1.Revoked{Lease: id,
		Code: uint32(errs.Corrupt.Code()), Reason: "test"}}}
	c.news(revoked) // of a lease that nobody waits for
	n := begun(t, c)
	c.news(revoked)
	l := c.end(n, &brokerv1.ReserveResponse{Lease: id})
	<-l.Revoked()
	if errs.KindOf(l.RevokeErr()) != errs.Corrupt {
		t.Errorf("RevokeErr = %v, want corrupt", l.RevokeErr())
	}
	if len(c.early) != 0 {
		t.Errorf("%d early revokes are kept for ever", len(c.early))
	}
	if l := c.end(begun(t, c), &brokerv1.ReserveResponse{Lease: proof.NewID()}); l.RevokeErr() != nil {
		t.Errorf("another lease is revoked: %v", l.RevokeErr())
	}
}

func begun(t *testing.T, c *Client) uint64 {
	t.Helper()
	n, err := c.begin()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Under steady load there is always a Reserve in flight.
func TestEarlyRevokesAreForgottenUnderLoad(t *testing.T) {
	dir := runtimeDir(t)
	startBroker(t, dir)
	c := attached(t, dir)
	last := begun(t, c)
	for range 1000 {
		next := begun(t, c)
		c.news(&brokerv1.WatchResponse{Event: &brokerv1.WatchResponse_Revoked{Revoked: &brokerv1.Revoked{Lease: proof.NewID()}}})
		c.end(last, nil)
		last = next
	}
	if n := len(c.early); n > 1 {
		t.Errorf("%d early revokes are kept with 1 Reserve in flight, want at most 1", n)
	}
	mine := proof.NewID()
	c.news(&brokerv1.WatchResponse{Event: &brokerv1.WatchResponse_Revoked{Revoked: &brokerv1.Revoked{Lease: mine}}})
	c.end(begun(t, c), nil) // a newer one returns first
	if l := c.end(last, &brokerv1.ReserveResponse{Lease: mine}); l.RevokeErr() == nil {
		t.Error("a revoke was forgotten while its Reserve was in flight")
	}
	if n := len(c.early) + len(c.inflight); n != 0 {
		t.Errorf("%d are kept with nothing in flight", n)
	}
}

func TestLostAnswerIsUndone(t *testing.T) {
	dir := runtimeDir(t)
	startBroker(t, dir)
	c := attached(t, dir)
	r := solo(t, 100)
	req := &brokerv1.ReserveRequest{RequestId: proof.NewID(), Attach: c.token, Admission: r.Admission, Role: r.Role, TokenIds: r.TokenIDs, Pages: r.Pages}
	if _, err := c.rpc.Reserve(t.Context(), req); err != nil {
		t.Fatal(err)
	}
	c.undo(req) // as after an answer that did not come
	free := func() uint32 { return c.Pool().Free }
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for free() != 4 {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d of 4 pages free after 10 s", free())
		}
	}
}

func TestRetireIsSaidAfterTheCallerHasGivenUp(t *testing.T) {
	dir := runtimeDir(t)
	startBroker(t, dir)
	c := attached(t, dir)
	l, err := c.Reserve(t.Context(), solo(t, 10))
	if err != nil {
		t.Fatal(err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Retire(gone, true, "", nil); err != nil {
		t.Errorf("Retire with an ended context = %v", err)
	}
	if err := l.Seal(t.Context(), nil); err == nil {
		t.Error("a retired lease takes seals")
	}
}

func TestOwnedIsMadeOfWhatWasVerifiedOnly(t *testing.T) {
	full := func() *brokerv1.AwaitOwnedResponse {
		return &brokerv1.AwaitOwnedResponse{ExpectedPages: 2, Rows: 70, Pages: []*brokerv1.PageGrant{{Page: 5, Tag: 9}, {Page: 6, Tag: 10}, {Page: 7, Tag: 11}},
			Completion: &brokerv1.Completion{Digests: [][]byte{make([]byte, 16), append(make([]byte, 15), 3)}}, TransferUs: 1500}
	}
	o, err := newOwned(full())
	if err != nil {
		t.Fatal(err)
	}
	if len(o.Pages()) != 3 || o.Tags()[2] != 11 || o.Rows() != 70 || o.StartDigest() == nil || o.StartDigest()[15] != 3 || o.TransferTime() != 1500*time.Microsecond {
		t.Errorf("Owned = %+v", o)
	}
	whole := full()
	whole.Rows = 128
	if o, err := newOwned(whole); err != nil || o.StartDigest() != nil {
		t.Errorf("start digest %v, %v with whole pages only, want none", o.StartDigest(), err)
	}
	for name, spoil := range map[string]func(*brokerv1.AwaitOwnedResponse){
		"no completion":          func(r *brokerv1.AwaitOwnedResponse) { r.Completion = nil },
		"fewer digests":          func(r *brokerv1.AwaitOwnedResponse) { r.Completion.Digests = r.Completion.Digests[:1] },
		"fewer pages than moved": func(r *brokerv1.AwaitOwnedResponse) { r.Pages = r.Pages[:1] },
		"half a digest":          func(r *brokerv1.AwaitOwnedResponse) { r.Completion.Digests[1] = make([]byte, 8) },
	} {
		r := full()
		spoil(r)
		if _, err := newOwned(r); errs.KindOf(err) != errs.Corrupt {
			t.Errorf("%s: newOwned = %v, want corrupt", name, err)
		}
	}
}

// Fault records of a lease that the broker has taken back are explained by that; those of a live lease are not.
func TestFaultRecordsAreExplainedByTheLeasesEnd(t *testing.T) {
	dir := runtimeDir(t)
	startBroker(t, dir)
	c := attached(t, dir)
	l, err := c.Reserve(t.Context(), solo(t, 64))
	if err != nil {
		t.Fatal(err)
	}
	tagged := errs.New(errs.Corrupt, "a page is another's")
	faults := []engine.Fault{{Kind: engine.FaultRead}}
	if got := l.Explain(t.Context(), tagged, faults); !errors.Is(got, tagged) {
		t.Errorf("of a live lease: %v, want %v", got, tagged)
	}
	if err := l.Retire(t.Context(), true, "", nil); err != nil {
		t.Fatal(err)
	}
	if got := l.Explain(t.Context(), tagged, faults); errs.KindOf(got) != errs.Stale {
		t.Errorf("of a lease that is over: %v, want stale", got)
	}
	if got := l.Explain(t.Context(), tagged, nil); !errors.Is(got, tagged) {
		t.Errorf("without fault records: %v, want %v", got, tagged)
	}
}
