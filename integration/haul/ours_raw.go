package haul

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"net"
	"sync"
	"time"

	"leasehold.dev/kvbroker/mover"
	"leasehold.dev/kvbroker/transfer"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
)

func init() { register("grpc_raw", Mover{Serve: serveRaw, Dial: dialRaw}) }

// serveRaw is the mover grpc with a listener for raw lanes.
func serveRaw(_ context.Context, o Options, s *Sources) (Address, func(), error) {
	p := &grpcPeer{s: s}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return Address{}, nil, err
	}
	a, end, err := servePeer(o, p)
	if err != nil {
		_ = ln.Close()
		return a, nil, err
	}
	a.Data = ln.Addr().String()
	if o.TLS {
		conf, err := serverTLS()
		if err != nil {
			_ = ln.Close()
			end()
			return a, nil, err
		}
		conf.DynamicRecordSizingDisabled = true // as a broker's are
		a.DataCert, ln = conf.Certificates[0].Certificate[0], tls.NewListener(ln, conf)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { p.lane(c) })
		}
	})
	return a, func() { _ = ln.Close(); end(); wg.Wait() }, nil
}

// lane serves one raw lane. What goes wrong, the Pull says.
func (p *grpcPeer) lane(c net.Conn) {
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(mover.RawLaneOpening))
	pre, err := mover.ReadPreamble(c)
	l := p.lanes.Load()
	if err != nil || l == nil || subtle.ConstantTimeCompare(pre.Token[:], l.Token()) != 1 {
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	_ = l.ServeRaw(c, pre.Lane)
}

// rawPuller opens its lanes anew for each Pull, as a broker does: that is in the time.
type rawPuller struct {
	*grpcPuller
	lanes int
	data  Address
}

func dialRaw(ctx context.Context, o Options, a Address, to *Pages) (Puller, error) {
	n := max(o.Conns, 1)
	o.Conns = 1
	p, err := dialGRPC(ctx, o, a, to)
	if err != nil {
		return nil, err
	}
	return &rawPuller{p.(*grpcPuller), n, Address{Net: a.Data, Cert: a.DataCert}}, nil
}

// Pull implements Puller.
func (p *rawPuller) Pull(ctx context.Context, open *brokerv1.PullOpen, rx *transfer.Receiver) (Pulled, error) {
	s, err := mover.OpenRaw(ctx, p.conns[0], open, p.lanes, func(ctx context.Context) (net.Conn, error) { return dial(ctx, p.data) })
	if err != nil {
		return Pulled{}, err
	}
	return p.receive(s, rx)
}
