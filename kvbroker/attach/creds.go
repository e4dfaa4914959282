package attach

import (
	"context"
	"net"
	"slices"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/credentials"

	"leasehold.dev/protos/errs"
)

// Peer is what the kernel says of the process at the other end of a unix socket, as of its connect.
type Peer struct {
	UID uint32
	PID int32
}

// AuthType implements credentials.AuthInfo.
func (Peer) AuthType() string { return "unix" }

func peerOf(c *net.UnixConn) (Peer, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var cred *unix.Ucred
	var serr error
	if err := raw.Control(func(fd uintptr) {
		cred, serr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return Peer{}, err
	}
	if serr != nil {
		return Peer{}, serr
	}
	return Peer{UID: cred.Uid, PID: cred.Pid}, nil
}

// allowed checks the peer's uid against the list.
func allowed(c *net.UnixConn, uids []uint32) (Peer, error) {
	p, err := peerOf(c)
	if err != nil {
		return p, errs.New(errs.Denied, "peer credentials: %w", err)
	}
	if !slices.Contains(uids, p.UID) {
		return p, errs.New(errs.Denied, "uid %d of process %d is not allowed", p.UID, p.PID)
	}
	return p, nil
}

// Credentials are gRPC transport credentials for a unix socket: the peer's uid must be one of uids. The same object
// serves both sides: the client checks that the broker's uid is allowed too. The AuthInfo is a [Peer].
func Credentials(uids ...uint32) credentials.TransportCredentials { return unixCreds(uids) }

type unixCreds []uint32

func (u unixCreds) handshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return nil, nil, errs.New(errs.Denied, "%T is no unix connection", c)
	}
	p, err := allowed(uc, u)
	if err != nil {
		return nil, nil, err
	}
	return c, peerInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}, p}, nil
}

// peerInfo tells gRPC that the kernel protects the connection.
type peerInfo struct {
	credentials.CommonAuthInfo
	Peer
}

// PeerOf returns the [Peer] in a, if a was made by [Credentials].
func PeerOf(a credentials.AuthInfo) (Peer, bool) {
	p, ok := a.(peerInfo)
	return p.Peer, ok
}

func (u unixCreds) ClientHandshake(_ context.Context, _ string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return u.handshake(c)
}

func (u unixCreds) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return u.handshake(c)
}

func (u unixCreds) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix"}
}

func (u unixCreds) Clone() credentials.TransportCredentials { return slices.Clone(u) }

func (u unixCreds) OverrideServerName(string) error { return nil }
