package haul

import (
	"context"
	"net"
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
	s *Sources
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
	return errs.ToStatus(mover.Serve(stream, src, uint32(p.s.Load.PageBytes)))
}

func serveGRPC(_ context.Context, o Options, s *Sources) (Address, func(), error) {
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
	brokerv1.RegisterPeerServiceServer(srv, &grpcPeer{s: s})
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(ln) }()
	return a, func() { srv.Stop(); <-done }, nil
}

// grpcPuller is the receiving broker's connection.
type grpcPuller struct {
	conn *grpc.ClientConn
	to   *Pages
}

func dialGRPC(_ context.Context, o Options, a Address, to *Pages) (Puller, error) {
	if o.Conns > 1 {
		return nil, errs.New(errs.NotFound, "missing: the mover has one connection")
	}
	creds := insecure.NewCredentials()
	if o.TLS {
		conf, err := clientTLS(a.Cert)
		if err != nil {
			return nil, err
		}
		creds = credentials.NewTLS(conf)
	}
	conn, err := grpc.NewClient("passthrough:///"+a.Net, append(rpc.BulkDial(), grpc.WithTransportCredentials(creds), grpc.WithDisableRetry())...)
	if err != nil {
		return nil, err
	}
	return &grpcPuller{conn, to}, nil
}

// Pull implements Puller.
func (p *grpcPuller) Pull(ctx context.Context, open *brokerv1.PullOpen, rx *transfer.Receiver) (Pulled, error) {
	s, err := mover.Open(ctx, p.conn, open)
	if err != nil {
		return Pulled{}, err
	}
	to := &landed{Pages: p.to}
	c, _, err := s.Receive(to, rx)
	return Pulled{Completion: c, Landed: to.last, End: s.End}, err
}

// Close implements Puller.
func (p *grpcPuller) Close() error { return p.conn.Close() }

// landed implements mover.Destination and knows when the last page came.
type landed struct {
	*Pages
	last time.Time
}

func (d *landed) Page(place uint32) ([]byte, error) { return d.Place(int(place)), nil }

func (d *landed) Landed(uint32) error {
	d.last = time.Now()
	return nil
}

// Copy refuses: what a stream brings needs none.
func (d *landed) Copy(uint32, []byte) error {
	return errs.New(errs.Internal, "a page without its bytes")
}
