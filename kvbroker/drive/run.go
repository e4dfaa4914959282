package drive

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/kvbroker/attach"
	"leasehold.dev/kvbroker/ucx"
	"leasehold.dev/protos/errs"
	moverv1 "leasehold.dev/protos/gen/leasehold/mover/v1"
	"leasehold.dev/protos/pagesum"
	"leasehold.dev/protos/proof"
)

// Config of a mover process. Dir, Layout, ModelRevision and Transports are required.
type Config struct {
	Name          string // at the broker; default: mover
	Dir           string // the broker's runtime directory
	Layout        layout.Layout
	ModelRevision [sha256.Size]byte
	Transports    []string
	PlainTCP      bool         // for tests
	TCPDevice     string       // for tests; default: lo
	Digesters     int          // threads that digest; default 1
	Log           *slog.Logger // default: discard
}

// Run moves pages until ctx ends, the broker goes, or something breaks; it is the process's whole life. After it the process
// must end: operations that have not ended are only ended by that.
func Run(ctx context.Context, c Config) error {
	if c.Name == "" {
		c.Name = "mover"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if err := ucx.Missing(); err != nil { // before anything else: no setting helps
		return err
	}
	end, err := listen()
	if err != nil {
		return errs.Mark(err, errs.Invalid)
	}
	defer end()
	hash, instance := c.Layout.Hash(), proof.NewID()
	s, err := attach.DialMover(ctx, c.Dir, c.Name, instance, attach.Want{LayoutHash: hash[:], ModelRevision: c.ModelRevision[:],
		PageBytes: c.Layout.PageBytes()})
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	mapped, err := pool.Map(s.Pool, s.Tags, s.Pages, s.PageBytes)
	s.Pool.Close()
	s.Tags.Close()
	if err != nil {
		return err
	}
	keys := pagesum.Expand(hash[:], c.ModelRevision[:], c.Layout.Shape())
	m, err := ucx.Open(ucx.Config{Pool: mapped.Memory(), PageBytes: s.PageBytes, Transports: c.Transports, PlainTCP: c.PlainTCP, TCPDevice: c.TCPDevice,
		Digesters: c.Digesters, Digest: func(page, rows uint32) (pagesum.Digest, uint32, error) {
			return engine.PageSum(c.Layout, mapped.Page(page), rows, keys)
		}})
	if err != nil {
		_ = mapped.Close()
		return err
	}
	defer func() {
		if left := m.Close(); left > 0 { // the pool stays mapped: only the end of the process ends them
			c.Log.Warn("operations have not ended", "count", left)
			return
		}
		_ = mapped.Close()
	}()
	return c.serve(ctx, s, m, &moverv1.Hello{Attach: s.Attach, Instance: instance, Address: m.Address(), Transports: c.Transports, PageBytes: s.PageBytes})
}

// serve opens the stream and works until it ends.
func (c Config) serve(ctx context.Context, s *attach.Session, m *ucx.Mover, hello *moverv1.Hello) error {
	path, err := filepath.Abs(filepath.Join(c.Dir, attach.WorkerName))
	if err != nil {
		return errs.Mark(err, errs.Invalid)
	}
	conn, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(attach.Credentials(uint32(os.Geteuid()))), grpc.WithDisableRetry())
	if err != nil {
		return errs.Mark(err, errs.Internal)
	}
	defer conn.Close()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	stream, err := moverv1.NewMoverServiceClient(conn).Drive(ctx)
	if err != nil {
		return errs.FromStatus(err)
	}
	if err := send(stream, &moverv1.DriveRequest{Kind: &moverv1.DriveRequest_Hello{Hello: hello}}); err != nil {
		return err
	}
	c.Log.Info("mover attached", "broker", s.Broker, "transports", c.Transports)
	t := &teller{stream: stream, m: m, stop: stop}
	var wg sync.WaitGroup
	wg.Go(func() { t.events(ctx) })
	wg.Go(func() {
		defer stop(nil)
		select {
		case <-s.Closed():
		case <-ctx.Done():
		}
	})
	err = t.commands()
	stop(err)
	wg.Wait()
	if why := context.Cause(ctx); errs.KindOf(why) == errs.Unavailable { // what ended the stream from here
		return why
	}
	return err
}
