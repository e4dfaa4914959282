package identity

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"leasehold.dev/protos/errs"
)

// plain is insecure's credentials, for connections whose two ends are on loopback.
type plain struct {
	credentials.TransportCredentials
}

// plainInfo marks a loopback connection, so that nothing but plain's handshake can stand for one.
type plainInfo struct{ credentials.CommonAuthInfo }

func (plainInfo) AuthType() string { return "plain" }

func newPlain() credentials.TransportCredentials { return plain{insecure.NewCredentials()} }

func (p plain) Clone() credentials.TransportCredentials { return newPlain() }

func (p plain) ClientHandshake(_ context.Context, _ string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return handshake(c)
}

func (p plain) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return handshake(c)
}

func handshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	for _, a := range []net.Addr{c.LocalAddr(), c.RemoteAddr()} {
		if !Loopback(a.String()) {
			return nil, nil, errs.New(errs.Denied, "plain text to %s is refused: it is not on loopback", a)
		}
	}
	return c, plainInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}, nil
}

// Loopback reports whether addr, host:port, can only be reached from this host. A name other than localhost is not
// looked up, and is no loopback address.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
