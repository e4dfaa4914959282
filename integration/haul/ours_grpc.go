package haul

import (
	"bytes"
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"leasehold.dev/kvbroker/mover"
	"leasehold.dev/kvbroker/transfer"
	"leasehold.dev/mesh/rpc"
	"leasehold.dev/protos/errs"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

func init() { register("grpc", Mover{Serve: serveGRPC, Dial: dialGRPC}) }

// grpcPeer is the sending broker's face.
type grpcPeer struct {
	brokerv1.UnimplementedPeerServiceServer
	s     *Sources
	lanes atomic.Pointer[mover.Lanes] // of the Pull that is served
}

// Pull implements PeerService.
func (p *grpcPeer) Pull(stream grpc.BidiStreamingServer[brokerv1.PullRequest, brokerv1.PullResponse]) error {
	open, err := mover.ReceiveOpen(stream)
	if err != nil {
		return errs.ToStatus(err)
	}
	src, err := p.s.Park(open)
	if err != nil {
		return errs.ToStatus(err)
	}
	size := uint32(p.s.Load.PageBytes)
	var l *mover.Lanes
	switch {
	case open.RawLanes:
		l, err = mover.NewRawLanes(open.Lanes, src, size)
	case open.Lanes > 1:
		l, err = mover.NewLanes(open.Lanes, src, size)
	default:
		return errs.ToStatus(mover.Serve(stream, src, size))
	}
	if err != nil {
		return errs.ToStatus(err)
	}
	p.lanes.Store(l)
	return errs.ToStatus(l.ServePull(stream))
}

// Lane implements PeerService.
func (p *grpcPeer) Lane(req *brokerv1.LaneRequest, stream grpc.ServerStreamingServer[brokerv1.LaneResponse]) error {
	l := p.lanes.Load()
	if l == nil || !bytes.Equal(l.Token(), req.LaneToken) {
		return errs.ToStatus(errs.New(errs.Unavailable, "no Pull has this token"))
	}
	return errs.ToStatus(l.Serve(stream, req.Lane))
}

func serveGRPC(_ context.Context, o Options, s *Sources) (Address, func(), error) {
	return servePeer(o, &grpcPeer{s: s})
}

func servePeer(o Options, p *grpcPeer) (Address, func(), error) {
	var a Address
	opts := append(rpc.BulkServer(), grpc.WaitForHandlers(true))
	if o.TLS {
		conf, err := serverTLS()
		if err != nil {
			return a, nil, err
		}
		a.Cert = conf.Certificates[0].Certificate[0]
		opts = append(opts, grpc.Creds(credentials.NewTLS(conf)))
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return a, nil, err
	}
	a.Net = ln.Addr().String()
	srv := grpc.NewServer(opts...)
	brokerv1.RegisterPeerServiceServer(srv, p)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(ln) }()
	return a, func() { srv.Stop(); <-done }, nil
}

// grpcPuller is the receiving broker's connections.
type grpcPuller struct {
	conns []*grpc.ClientConn
	more  []grpc.ClientConnInterface // all but the first
	to    *Pages
}

func dialGRPC(_ context.Context, o Options, a Address, to *Pages) (Puller, error) {
	creds := insecure.NewCredentials()
	if o.TLS {
		conf, err := clientTLS(a.Cert)
		if err != nil {
			return nil, err
		}
		creds = credentials.NewTLS(conf)
	}
	p := &grpcPuller{to: to}
	for i := range max(o.Conns, 1) {
		conn, err := grpc.NewClient("passthrough:///"+a.Net, append(rpc.BulkDial(), grpc.WithTransportCredentials(creds), grpc.WithDisableRetry())...)
		if err != nil {
			return nil, errors.Join(err, p.Close())
		}
		p.conns = append(p.conns, conn)
		if i > 0 {
			p.more = append(p.more, conn)
		}
	}
	return p, nil
}

// Pull implements Puller.
func (p *grpcPuller) Pull(ctx context.Context, open *brokerv1.PullOpen, rx *transfer.Receiver) (Pulled, error) {
	s, err := mover.Open(ctx, p.conns[0], open, p.more...)
	if err != nil {
		return Pulled{}, err
	}
	return p.receive(s, rx)
}

func (p *grpcPuller) receive(s *mover.Stream, rx *transfer.Receiver) (Pulled, error) {
	to := &landed{Pages: p.to}
	c, _, err := s.Receive(to, rx)
	return Pulled{Completion: c, Landed: time.Unix(0, to.last.Load()), End: s.End}, err
}

// Close implements Puller.
func (p *grpcPuller) Close() error {
	var all []error
	for _, c := range p.conns {
		all = append(all, c.Close())
	}
	return errors.Join(all...)
}

// landed implements mover.Destination and knows when the last page came. A broker digests each page beside what still comes; here
// that is after the last, so that the rate of moving is the mover's own, as the peers' is, and the rate with the proof is the
// least that a broker has.
type landed struct {
	*Pages
	last atomic.Int64 // ns; lanes write it
}

func (d *landed) Page(place uint32) ([]byte, error) { return d.Place(int(place)), nil }

func (d *landed) Landed(uint32) error {
	d.last.Store(time.Now().UnixNano())
	return nil
}

// Digested refuses: a stream digests nothing.
func (d *landed) Digested(uint32, transfer.Found) error {
	return errs.New(errs.Internal, "a page that somebody else has digested")
}

// Copy refuses: what a stream brings needs none.
func (d *landed) Copy(uint32, []byte) error {
	return errs.New(errs.Internal, "a page without its bytes")
}
