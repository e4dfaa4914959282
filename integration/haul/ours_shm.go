package haul

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"leasehold.dev/gpu/engine"
	"leasehold.dev/gpu/layout"
	"leasehold.dev/gpu/pool"
	"leasehold.dev/kvbroker/mover"
	"leasehold.dev/kvbroker/transfer"
	"leasehold.dev/mesh/rpc"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	"leasehold.dev/protos/pagesum"
)

// The shm mover, as brokers run it: each page is copied and digested in one pass. shm_copy digests after the last page instead, so
// that its rate of moving is that of copying alone.
func init() {
	register("shm", Mover{Serve: serveSHM, Dial: dialSHM(true)})
	register("shm_copy", Mover{Serve: serveSHM, Dial: dialSHM(false)})
}

// shmPeer is the sending broker's face.
type shmPeer struct {
	brokerv1.UnimplementedPeerServiceServer
	s *Sources
}

// Pull implements PeerService.
func (p *shmPeer) Pull(stream grpc.BidiStreamingServer[brokerv1.PullRequest, brokerv1.PullResponse]) error {
	open, err := mover.ReceiveOpen(stream)
	if err != nil {
		return errs.ToStatus(err)
	}
	src, err := p.s.Park(open)
	if err != nil {
		return errs.ToStatus(err)
	}
	return errs.ToStatus(mover.ServeShared(stream, shared{src}, uint32(p.s.Load.PageBytes)))
}

// shared is a Source whose pages are named. All are sealed: more come until the last.
type shared struct{ *Source }

// Lend implements mover.Lender.
func (s shared) Lend(place uint32) (page uint32, more bool, err error) {
	return s.of.At[place], s.next < len(s.of.At), nil
}

func serveSHM(_ context.Context, _ Options, s *Sources) (Address, func(), error) {
	var a Address
	f, err := s.Pool.ReadOnly()
	if err != nil {
		return a, nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return a, nil, errors.Join(err, f.Close())
	}
	a.Net, a.File = ln.Addr().String(), fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd())
	srv := grpc.NewServer(append(rpc.BulkServer(), grpc.WaitForHandlers(true))...)
	brokerv1.RegisterPeerServiceServer(srv, &shmPeer{s: s})
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(ln) }()
	return a, func() { srv.Stop(); <-done; _ = f.Close() }, nil
}

// shmPuller is the receiving broker, which has the sender's pool mapped.
type shmPuller struct {
	conn   *grpc.ClientConn
	view   *pool.View
	to     *Pages
	layout layout.Layout
	keys   *pagesum.Keys // nil: pages are copied, and digested later
}

func dialSHM(digest bool) func(context.Context, Options, Address, *Pages) (Puller, error) {
	return func(_ context.Context, _ Options, a Address, to *Pages) (Puller, error) {
		s, err := newSides(to)
		if err != nil {
			return nil, err
		}
		p := &shmPuller{to: to}
		if p.layout, err = to.Load.Layout(); err != nil {
			return nil, err
		}
		if digest {
			p.keys = s.keys
		}
		f, err := os.Open(a.File)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		if p.view, err = pool.OpenView(f, to.Pool.Pages(), to.Pool.PageBytes()); err != nil {
			return nil, err
		}
		p.conn, err = grpc.NewClient("passthrough:///"+a.Net, append(rpc.BulkDial(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDisableRetry())...)
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		return p, nil
	}
}

// Pull implements Puller.
func (p *shmPuller) Pull(ctx context.Context, open *brokerv1.PullOpen, rx *transfer.Receiver) (Pulled, error) {
	s, err := mover.OpenShared(ctx, p.conn, open, p.view)
	if err != nil {
		return Pulled{}, err
	}
	to := &copied{shmPuller: p}
	c, _, err := s.Receive(to, rx)
	return Pulled{Completion: c, Landed: to.last, Found: to.found, End: s.End}, err
}

// Close implements Puller.
func (p *shmPuller) Close() error {
	err := p.view.Close()
	if p.conn != nil {
		err = errors.Join(err, p.conn.Close())
	}
	return err
}

// copied implements mover.Destination.
type copied struct {
	*shmPuller
	found []transfer.Found
	last  time.Time
}

func (d *copied) Page(place uint32) ([]byte, error) { return d.to.Place(int(place)), nil }

// Landed refuses: pages are copied.
func (d *copied) Landed(uint32) error { return errs.New(errs.Internal, "a page that nobody copied") }

func (d *copied) Copy(place uint32, from []byte) error {
	to := d.to.Place(int(place))
	if d.keys == nil {
		copy(to, from)
	} else {
		sum, nonzero, err := engine.CopyPage(d.layout, to, from, pagesum.PageTokens, d.keys)
		if err != nil {
			return err
		}
		d.found = append(d.found, transfer.Found{Digest: sum, Nonzero: nonzero})
	}
	d.last = time.Now()
	return nil
}

// Digested refuses: there is no mover process.
func (d *copied) Digested(uint32, transfer.Found) error {
	return errs.New(errs.Internal, "a page that nobody copied")
}
