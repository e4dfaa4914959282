package identity

import (
	"context"
	"crypto/tls"
	"net"

	"leasehold.dev/protos/errs"
)

// bareProtocol is what both ends of a bare connection speak, so that none is taken for gRPC's.
const bareProtocol = "leasehold-bare"

// bare makes conf one for bulk: its records are of full size from the first on.
func bare(conf *tls.Config) *tls.Config {
	conf.NextProtos, conf.DynamicRecordSizingDisabled = []string{bareProtocol}, true
	return conf
}

// Accept does the server's part of a connection without gRPC: see [Identity.ServerCreds]. It names the verified caller; of a
// plain one both names are empty. It returns by the end of ctx. Whatever it returns, the caller closes c.
func (i *Identity) Accept(ctx context.Context, c net.Conn) (conn net.Conn, service, id string, err error) {
	if i.dir == "" {
		conn, _, err = handshake(c)
		return conn, "", "", err
	}
	t := tls.Server(c, bare(i.serverTLS()))
	if err := t.HandshakeContext(ctx); err != nil {
		return nil, "", "", errs.Mark(err, errs.Denied)
	}
	cs := t.ConnectionState()
	if cs.NegotiatedProtocol != bareProtocol {
		return nil, "", "", errs.New(errs.Denied, "the caller does not speak %s", bareProtocol)
	}
	if service, id, err = parse(cs.PeerCertificates[0]); err != nil {
		return nil, "", "", err
	}
	return t, service, id, nil
}

// Dial makes a connection without gRPC to an instance that serves address: see [Identity.ClientCreds].
func (i *Identity) Dial(ctx context.Context, service, id, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, errs.Mark(err, errs.Unavailable)
	}
	var conn net.Conn
	if i.dir == "" {
		conn, _, err = handshake(c)
	} else {
		t := tls.Client(c, bare(i.clientTLS(service, id)))
		if err = t.HandshakeContext(ctx); err == nil && t.ConnectionState().NegotiatedProtocol != bareProtocol {
			err = errs.New(errs.Denied, "the server does not speak %s", bareProtocol)
		}
		conn = t
	}
	if err != nil {
		_ = c.Close()
		return nil, errs.Mark(err, errs.Denied)
	}
	return conn, nil
}
