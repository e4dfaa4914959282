package rpc

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"leasehold.dev/mesh/identity"
	"leasehold.dev/protos/errs"
)

// MaxMessage is the most bytes of one message, either way: a page of a large model, or the ids of a million tokens.
const MaxMessage = 16 << 20

// Server is what a gRPC server is made of.
type Server struct {
	Log      *slog.Logger
	Identity *identity.Identity
	Guard    *Guard
	Stats    stats.Handler // nil: none
}

// Options are the options of the gRPC server.
func (s Server) Options() []grpc.ServerOption {
	opts := []grpc.ServerOption{
		grpc.Creds(refusals{s.Identity.ServerCreds(), s.Log}),
		grpc.ChainUnaryInterceptor(s.unary),
		grpc.ChainStreamInterceptor(s.stream),
		grpc.MaxRecvMsgSize(MaxMessage),
		grpc.MaxSendMsgSize(MaxMessage),
		grpc.ConnectionTimeout(5 * time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
	if s.Stats != nil {
		opts = append(opts, grpc.StatsHandler(s.Stats))
	}
	return opts
}

func (s Server) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (resp any, err error) {
	err = s.call(ctx, info.FullMethod, func() (err error) {
		resp, err = h(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

func (s Server) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) error {
	return s.call(ss.Context(), info.FullMethod, func() error { return h(srv, ss) })
}

// call is the chain: recovery around errors around authorisation around f.
func (s Server) call(ctx context.Context, method string, f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			// The value of a panic can hold a piece of a request; its type and the stack cannot.
			s.Log.ErrorContext(ctx, "panic", "method", method, "type", typeOf(p), "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, "internal error")
		}
	}()
	if err := s.Guard.Check(ctx, method); err != nil {
		s.Log.WarnContext(ctx, "denied", "method", method, "reason", err.Error())
		return errs.ToStatus(err)
	}
	err = f()
	if err == nil {
		return nil
	}
	if gone(ctx, err) {
		return status.FromContextError(ctx.Err()).Err()
	}
	if errs.KindOf(err) == errs.Internal {
		s.Log.ErrorContext(ctx, "internal error", "method", method, "error", err.Error())
	}
	return errs.ToStatus(err)
}

// gone reports whether err is only gRPC's way to say that the stream's context ended.
func gone(ctx context.Context, err error) bool {
	if ctx.Err() == nil {
		return false
	}
	var st interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &st) {
		return false
	}
	switch st.GRPCStatus().Code() {
	case codes.Canceled, codes.DeadlineExceeded, codes.Unavailable:
		return true
	}
	return false
}
