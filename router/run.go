package router

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"leasehold.dev/mesh"
	"leasehold.dev/mesh/boundary"
	"leasehold.dev/model"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/proof"
	"leasehold.dev/router/choose"
	"leasehold.dev/router/edge"
	"leasehold.dev/router/fleet"
	"leasehold.dev/router/flow"
	"leasehold.dev/router/keys"
	"leasehold.dev/router/limits"
	"leasehold.dev/router/meter"
	"leasehold.dev/router/prompt"
	"leasehold.dev/router/receipt"
	"leasehold.dev/router/reconcile"
	"leasehold.dev/router/record"
	"leasehold.dev/router/replay"
	"leasehold.dev/router/retry"
	"leasehold.dev/router/witness"
)

// retryBurst is how many retries may come at once.
const retryBurst = 10

// Run serves until ctx ends, then drains. It is called once.
func Run(ctx context.Context, c Config) error {
	if err := c.check(); err != nil {
		return err
	}
	file, err := model.Load(c.Model)
	if err != nil {
		return errs.New(errs.Invalid, "-model: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	served := choose.Model{Revision: string(file.Revision[:]), Tokenizer: string(file.TokenizerRevision[:]), Promise: promise(c, file)}
	c.Mesh.Meta = Meta(served)
	addrFile := c.Mesh.AddrFile // this process has one address more than the mesh knows of
	c.Mesh.AddrFile = ""
	m, err := mesh.New(ctx, c.Mesh)
	if err != nil {
		return err
	}
	defer func() { _ = m.Close() }() // Run has closed it, but for the returns before
	if m.Registry == nil {
		return errs.New(errs.Invalid, "-registry is needed")
	}
	key, err := proof.ReadPrivateKey(c.AdmissionKey)
	if err != nil {
		return err
	}
	ring, err := keys.Open(c.Keys)
	if err != nil {
		return errs.New(errs.Invalid, "-keys: %w", err)
	}

	issuer, err := openReceipts(c, m)
	if err != nil {
		return err
	}
	issuer.Head = auditHead(m.Audit)

	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	prefill, err := m.Peers(background, "prefill")
	if err != nil {
		return err
	}
	defer prefill.Close()
	decode, err := m.Peers(background, "decode")
	if err != nil {
		return err
	}
	defer decode.Close()
	brokers, err := m.Peers(background, "kvbroker")
	if err != nil {
		return err
	}
	defer brokers.Close()
	workers := fleet.New(prefill, decode, m.Log)
	metrics, err := meter.New(m.Meter, func() (int64, int64, int64) {
		f := workers.Snapshot()
		return up(f.Prefill), up(f.Decode), int64(choose.Effective(f, served))
	})
	if err != nil {
		return errs.New(errs.Internal, "metrics: %w", err)
	}
	checker, err := limits.New(workers, served, m.Meter, m.Boundary, m.Log)
	if err != nil {
		return errs.New(errs.Internal, "metrics: %w", err)
	}
	seen, err := witness.New(brokers, reconcile.Default, m.Meter, m.Boundary, m.Log)
	if err != nil {
		return errs.New(errs.Internal, "metrics: %w", err)
	}
	records := &record.Ring{}
	runner := &flow.Runner{Config: flow.Config{Fleet: workers, Key: key, Model: served, ModelName: file.Name, Default: uint32(c.MaxTokens),
		UnsplitBelow: uint32(c.UnsplitBelow), Times: c.Times, Budget: retry.NewBudget(c.RetryRatio, retryBurst), Meter: metrics,
		Boundary: m.Boundary, Witness: seen, Audit: m.Audit, Log: m.Log}}
	service := &edge.Service{Keys: ring, Runner: runner, Prompt: encoder(file), Vocab: uint32(file.Tokenizer.Vocab()),
		Special:  func(id int32) bool { return file.Tokenizer.IsControl(id) || file.Tokenizer.IsEOG(id) },
		Receipts: issuer, Records: records, Meter: metrics, Audit: m.Audit, Log: m.Log, Created: modified(c.Model), Fingerprint: fingerprint(file)}

	auditor, err := newAuditor(c, m, *runner)
	if err != nil {
		return err
	}
	service.Finished = func(id receipt.ID, ids []int32, a *flow.Account) { auditor.Finished(replay.Of(id.String(), ids, a)) }
	service.Again = auditor.Reported

	m.Check("pair", func(context.Context) error {
		if ok, why := choose.Ready(workers.Snapshot(), served); !ok {
			return errs.New(errs.Unavailable, "%s", why)
		}
		return nil
	})
	m.AdminMux().Handle("GET /debug/requests", records)
	m.AdminMux().Handle("GET /debug/replays", auditor)
	m.AdminMux().Handle("GET /debug/reports", issuer.Desk)
	m.AdminMux().Handle("POST /debug/reports/{id}/close", issuer.Desk)
	lis, err := net.Listen("tcp", c.HTTP)
	if err != nil {
		return errs.New(errs.Invalid, "-http: %w", err)
	}
	server, err := edge.NewServer(background, lis, service, m.AdminMux())
	if err != nil {
		return errors.Join(err, lis.Close())
	}
	defer server.Close()
	m.OnDrain(func(ctx context.Context) {
		if err := server.Shutdown(ctx); err != nil {
			m.Log.Warn("requests were still running after the drain time", "err", err)
		}
	})
	wg.Go(func() { workers.Run(background) })
	wg.Go(func() { checker.Run(background) })
	wg.Go(func() { seen.Run(background) })
	wg.Go(func() { runner.Expect(background) })
	wg.Go(func() { ring.Watch(background, m.Log) })
	wg.Go(func() { auditor.Run(background) })
	server.Serve()
	if err := writeAddresses(addrFile, m.Addr(), m.AdminAddr(), server.Addr()); err != nil {
		return err
	}
	m.Log.Info("router", "http", server.Addr(), "model", file.Name, "revision", hex.EncodeToString(file.Revision[:8]), "promise", served.Promise)
	return m.Run(ctx)
}

// openReceipts opens key, store and desk. A report is logged as an error: it is a P1 event.
func openReceipts(c Config, m *mesh.Server) (*receipt.Issuer, error) {
	keys, err := receipt.OpenRing(c.ReceiptKey)
	if err != nil {
		return nil, err
	}
	store, err := receipt.NewStore(c.Receipts)
	if err != nil {
		return nil, err
	}
	var metrics receipt.Metrics
	desk, err := receipt.OpenDesk(c.ReceiptKey+".reports", func(what receipt.Change, r receipt.Report) {
		metrics.Report(what, r)
		if what == receipt.Opened {
			m.Boundary.Incident(boundary.P1, boundary.ReceiptReport, "receipt "+r.Receipt)
		}
		m.Log.Error("P1: a tenant reports an answer", "change", string(what), "report", r.ID, "receipt", r.Receipt, "tenant", r.Tenant,
			"replay", r.Replay, "times", r.Times, "closer", r.Closer)
	})
	if err != nil {
		return nil, err
	}
	if err := metrics.Register(m.Meter, store, desk); err != nil {
		return nil, errs.New(errs.Internal, "metrics: %w", err)
	}
	return &receipt.Issuer{Ring: keys, Store: store, Desk: desk}, nil
}

// newAuditor has a runner of its own: replays are no requests of tenants in its metrics, and do not spend its retries.
func newAuditor(c Config, m *mesh.Server, runner flow.Runner) (*replay.Auditor, error) {
	runner.Meter, runner.Budget, runner.Boundary = &meter.Meter{}, retry.NewBudget(0, 0), nil
	a := replay.New(replay.Config{Policy: c.Replay, Runner: &runner, Boundary: m.Boundary, Log: m.Log})
	var err error
	if a.Metrics, err = replay.NewMetrics(m.Meter, a.Waiting); err != nil {
		return nil, errs.New(errs.Internal, "metrics: %w", err)
	}
	return a, nil
}

// encoder leaves out a template that the file does not have: a nil pointer in an interface is not nil.
func encoder(m *model.Model) *prompt.Encoder {
	if m.Template == nil {
		return prompt.New(m.Tokenizer, nil)
	}
	return prompt.New(m.Tokenizer, m.Template)
}

func promise(c Config, m *model.Model) uint32 {
	if c.Promise == 0 {
		return m.Config.ContextLength
	}
	return min(uint32(c.Promise), m.Config.ContextLength)
}

// Meta is what a router says in the registry: what it promises to tenants, and for which model.
func Meta(m choose.Model) map[string]string {
	return map[string]string{"promise": strconv.FormatUint(uint64(m.Promise), 10), "revision": hex.EncodeToString([]byte(m.Revision)),
		"tokenizer": hex.EncodeToString([]byte(m.Tokenizer))}
}

func fingerprint(m *model.Model) string { return "fp_" + hex.EncodeToString(m.Revision[:5]) }

func up(ws []choose.Worker) int64 {
	var n int64
	for _, w := range ws {
		if w.Up {
			n++
		}
	}
	return n
}

func modified(path string) time.Time {
	if st, err := os.Stat(path); err == nil {
		return st.ModTime()
	}
	return time.Now()
}

// writeAddresses writes the real addresses, all at once.
func writeAddresses(path, grpc, admin, http string) error {
	if path == "" {
		return nil
	}
	b, err := json.Marshal(map[string]string{"grpc": grpc, "admin": admin, "http": http})
	if err != nil {
		return errs.New(errs.Internal, "-addr-file: %w", err)
	}
	next := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".next")
	if err := os.WriteFile(next, b, 0o600); err != nil {
		return errs.New(errs.Invalid, "-addr-file: %w", err)
	}
	if err := os.Rename(next, path); err != nil {
		return errs.New(errs.Invalid, "-addr-file: %w", err)
	}
	return nil
}
