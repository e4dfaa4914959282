package kvbroker

import (
	"context"
	"net"

	"leasehold.dev/kvbroker/server"
	"leasehold.dev/mesh/identity"
	"leasehold.dev/protos/errs"
)

// wire is raw connections with this process's identity. It implements [server.Wire].
type wire struct{ *identity.Identity }

func (w wire) Accept(ctx context.Context, c net.Conn) (conn net.Conn, name string, ok bool, err error) {
	conn, s, name, err := w.Identity.Accept(ctx, c)
	if err == nil && s != "" && s != service {
		return nil, "", false, errs.New(errs.Denied, "%s may open no raw lane", s)
	}
	return conn, name, s != "", err
}

func (w wire) Dial(ctx context.Context, name, address string) (net.Conn, error) {
	return w.Identity.Dial(ctx, service, name, address)
}

// listenData opens the listener of raw lanes, and says where others find it: at the host that they dial for gRPC, unless the
// setting names another. Served and advertised are the process's gRPC addresses.
func listenData(setting, served, advertised string, insecure bool, c *server.Config) error {
	if setting == "" {
		return nil
	}
	grpcHost, _, err := net.SplitHostPort(served)
	if err != nil {
		return errs.New(errs.Internal, "gRPC serves at %q: %w", served, err)
	}
	auto := setting == "auto"
	if auto {
		setting = net.JoinHostPort(grpcHost, "0")
	}
	if insecure && !identity.Loopback(setting) {
		return errs.New(errs.Invalid, "-insecure needs a loopback -data-listen address, not %q", setting)
	}
	if advertised != "" {
		if grpcHost, _, err = net.SplitHostPort(advertised); err != nil {
			return errs.New(errs.Invalid, "-advertise: %w", err)
		}
	}
	ln, err := net.Listen("tcp", setting)
	if err != nil {
		return errs.New(errs.Invalid, "-data-listen: %w", err)
	}
	host, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		_ = ln.Close()
		return errs.New(errs.Internal, "-data-listen: %w", err)
	}
	if ip := net.ParseIP(host); auto || ip != nil && ip.IsUnspecified() {
		host = grpcHost
	}
	c.Data, c.DataAddress = ln, net.JoinHostPort(host, port)
	return nil
}
