package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"

	"leasehold.dev/protos/errs"
)

// DialOptions are the options of every connection of the mesh. st may be nil. Errors of its calls are marked by
// [errs.FromStatus]; nothing is retried here.
func DialOptions(creds credentials.TransportCredentials, st stats.Handler) []grpc.DialOption {
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithNoProxy(),
		grpc.WithDisableRetry(),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithChainUnaryInterceptor(unaryClient),
		grpc.WithChainStreamInterceptor(streamClient),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage), grpc.MaxCallSendMsgSize(MaxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second, PermitWithoutStream: true}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
	}
	if st != nil {
		opts = append(opts, grpc.WithStatsHandler(st))
	}
	return opts
}

// Dial connects to address, host:port, in the background.
func Dial(address string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	cc, err := grpc.NewClient("passthrough:///"+address, opts...)
	return cc, errs.Mark(err, errs.Invalid)
}

func unaryClient(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return errs.FromStatus(invoke(ctx, method, req, reply, cc, opts...))
}

func streamClient(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, errs.FromStatus(err)
	}
	return marked{s}, nil
}

// marked is a stream whose errors have kinds; io.EOF stays io.EOF.
type marked struct{ grpc.ClientStream }

func (m marked) SendMsg(msg any) error { return errs.FromStatus(m.ClientStream.SendMsg(msg)) }
func (m marked) RecvMsg(msg any) error { return errs.FromStatus(m.ClientStream.RecvMsg(msg)) }
