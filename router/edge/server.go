package edge

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"leasehold.dev/protos/errs"
	openaiv1 "leasehold.dev/protos/gen/leasehold/openai/v1"
	"leasehold.dev/router/apierr"
)

// maxMessage bounds a gRPC message. A tenant's own is at most MaxBody; one that the gateway makes of a body of MaxBody is
// longer only where JSON is the shorter of the two: 11 MiB for validate.MaxTokenIDs numbers of 11 bytes each, and as much
// for parts of a content without text, of 32 bytes for 25.
const maxMessage = apierr.MaxBody + 4<<20

// Server is the public listener.
type Server struct {
	lis  net.Listener
	http *http.Server
	grpc *grpc.Server
	conn *grpc.ClientConn
	pipe *pipe
	wg   sync.WaitGroup
}

// NewServer serves s on lis once Serve is called. admin is for the health routes.
func NewServer(ctx context.Context, lis net.Listener, s *Service, admin http.Handler) (*Server, error) {
	out := &Server{lis: lis, pipe: newPipe(), grpc: grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage), grpc.StreamInterceptor(recoverStream(s.Log)), grpc.UnaryInterceptor(recoverUnary(s.Log)))}
	openaiv1.RegisterOpenAIServiceServer(out.grpc, s)
	conn, err := grpc.NewClient("passthrough:///router", grpc.WithContextDialer(out.pipe.dial), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallSendMsgSize(maxMessage), grpc.MaxCallRecvMsgSize(math.MaxInt32)), grpc.WithDisableServiceConfig())
	if err != nil {
		return nil, err
	}
	out.conn = conn
	front, err := NewFront(ctx, s, out.grpc, conn, admin)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true) // gRPC tenants
	out.http = &http.Server{Handler: front, Protocols: protocols, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug)}
	return out, nil
}

// Serve starts the server's goroutines.
func (s *Server) Serve() {
	s.wg.Go(func() { _ = s.grpc.Serve(s.pipe) }) // ends by Close
	s.wg.Go(func() { _ = s.http.Serve(s.lis) })
}

// Addr is where tenants connect to.
func (s *Server) Addr() string { return s.lis.Addr().String() }

// Shutdown takes no new request and waits for the running ones until ctx ends.
func (s *Server) Shutdown(ctx context.Context) error { return s.http.Shutdown(ctx) }

// Close ends everything at once and joins the goroutines.
func (s *Server) Close() {
	_ = s.http.Close()
	_ = s.conn.Close()
	s.grpc.Stop()
	_ = s.pipe.Close()
	s.wg.Wait()
}

func recovered(log *slog.Logger, method string, v any) error {
	log.Error("panic", "method", method, "stack", string(debug.Stack()))
	return apierr.From(errs.New(errs.Internal, "panic of type %T", v), "")
}

func recoverStream(log *slog.Logger) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, h grpc.StreamHandler) (err error) {
		defer func() {
			if v := recover(); v != nil {
				err = recovered(log, info.FullMethod, v)
			}
		}()
		if err = h(srv, ss); err != nil { // what gRPC itself says, of a message that it cannot read, has no details yet
			err = apierr.FromStatus(status.Convert(err))
		}
		return err
	}
}

func recoverUnary(log *slog.Logger) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (out any, err error) {
		defer func() {
			if v := recover(); v != nil {
				out, err = nil, recovered(log, info.FullMethod, v)
			}
		}()
		return h(ctx, req)
	}
}
