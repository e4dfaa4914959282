package rpc

import (
	"errors"
	"io"
	"log/slog"
	"net"

	"google.golang.org/grpc/credentials"
)

// refusals logs why a handshake failed: the client that was refused only sees its connection close.
type refusals struct {
	credentials.TransportCredentials
	log *slog.Logger
}

func (r refusals) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, info, err := r.TransportCredentials.ServerHandshake(c)
	if err != nil && !errors.Is(err, io.EOF) { // a port that is only probed is no news
		r.log.Warn("handshake refused", "from", c.RemoteAddr().String(), "reason", err.Error())
	}
	return conn, info, err
}

func (r refusals) Clone() credentials.TransportCredentials {
	return refusals{r.TransportCredentials.Clone(), r.log}
}
