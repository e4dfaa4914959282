package rpc

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"leasehold.dev/mesh/identity"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service answers as its functions say.
type service struct {
	meshv1.UnimplementedRegistryServiceServer
	beat  func(context.Context) error
	watch func(grpc.ServerStreamingServer[meshv1.WatchResponse]) error
}

func (s *service) Beat(ctx context.Context, _ *meshv1.BeatRequest) (*meshv1.BeatResponse, error) {
	return &meshv1.BeatResponse{}, s.beat(ctx)
}

func (s *service) Watch(_ *meshv1.WatchRequest, ss grpc.ServerStreamingServer[meshv1.WatchResponse]) error {
	return s.watch(ss)
}

// buffer is a log that a test may read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

type bench struct {
	addr string
	log  *buffer
}

func start(t *testing.T, who *identity.Identity, g *Guard, s *service) bench {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := bench{addr: ln.Addr().String(), log: &buffer{}}
	srv := grpc.NewServer(Server{Log: slog.New(slog.NewJSONHandler(b.log, nil)), Identity: who, Guard: g}.Options()...)
	meshv1.RegisterRegistryServiceServer(srv, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(ln) }()
	t.Cleanup(func() { srv.Stop(); <-done })
	return b
}

func (b bench) dial(t *testing.T, who *identity.Identity, opts ...grpc.DialOption) meshv1.RegistryServiceClient {
	t.Helper()
	cc, err := Dial(b.addr, append(DialOptions(who.ClientCreds("registry", ""), nil), opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return meshv1.NewRegistryServiceClient(cc)
}

func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func all() *Guard {
	g := &Guard{}
	g.Allow(meshv1.RegistryService_Beat_FullMethodName, Anyone)
	g.Allow(meshv1.RegistryService_Watch_FullMethodName, Anyone)
	return g
}

func TestKindsCrossTheWire(t *testing.T) {
	var fail error
	s := &service{beat: func(context.Context) error { return fail },
		watch: func(ss grpc.ServerStreamingServer[meshv1.WatchResponse]) error {
			return errors.Join(ss.Send(&meshv1.WatchResponse{}), fail)
		}}
	client := start(t, identity.Plain(), all(), s).dial(t, identity.Plain())
	for k := errs.Internal; k <= errs.Corrupt; k++ {
		fail = errs.New(k, "17 pages, want 18")
		_, unary := client.Beat(soon(t), &meshv1.BeatRequest{})
		stream, err := client.Watch(soon(t), &meshv1.WatchRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Errorf("%v: the message before the error was lost: %v", k, err)
		}
		_, streaming := stream.Recv()
		for how, err := range map[string]error{"unary": unary, "stream": streaming} {
			if errs.KindOf(err) != k {
				t.Errorf("%s: kind %v became %v", how, k, errs.KindOf(err))
			}
			if got, want := strings.Contains(err.Error(), "17 pages"), k != errs.Internal; got != want {
				t.Errorf("%s: text of %v error %q crossed the wire: %v, want %v", how, k, err, got, want)
			}
		}
	}
}

func TestEndOfStreamStaysEOF(t *testing.T) {
	s := &service{watch: func(grpc.ServerStreamingServer[meshv1.WatchResponse]) error { return nil }}
	stream, err := start(t, identity.Plain(), all(), s).dial(t, identity.Plain()).Watch(soon(t), &meshv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("Recv = %v, want io.EOF", err)
	}
}

func TestPanicBecomesInternalAndTellsNothingOfTheRequest(t *testing.T) {
	const secret = "the tenant's prompt"
	s := &service{beat: func(context.Context) error { panic(secret) },
		watch: func(grpc.ServerStreamingServer[meshv1.WatchResponse]) error { panic(errors.New(secret)) }}
	b := start(t, identity.Plain(), all(), s)
	client := b.dial(t, identity.Plain())
	_, unary := client.Beat(soon(t), &meshv1.BeatRequest{})
	stream, err := client.Watch(soon(t), &meshv1.WatchRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, streaming := stream.Recv()
	for how, err := range map[string]error{"unary": unary, "stream": streaming} {
		if errs.KindOf(err) != errs.Internal || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v, want internal without the panic's text", how, err)
		}
	}
	if log := b.log.String(); strings.Count(log, `"panic"`) != 2 || !strings.Contains(log, "rpc_test.go") || strings.Contains(log, secret) {
		t.Errorf("log %q: want two panics with stacks, without their text", log)
	}
}

func TestInternalErrorsAreLoggedOnce(t *testing.T) {
	s := &service{beat: func(context.Context) error { return errors.New("table has 3 rows, want 4") }}
	b := start(t, identity.Plain(), all(), s)
	if _, err := b.dial(t, identity.Plain()).Beat(soon(t), &meshv1.BeatRequest{}); errs.KindOf(err) != errs.Internal {
		t.Fatal(err)
	}
	if log := b.log.String(); strings.Count(log, "table has 3 rows") != 1 {
		t.Errorf("log %q: want the hidden text once", log)
	}
}

func TestACallerThatWentIsNoBug(t *testing.T) {
	for why, fail := range map[string]func(ctx context.Context) error{
		"the handler returns the context's error": func(ctx context.Context) error { return ctx.Err() },
		"the handler returns gRPC's":              func(ctx context.Context) error { return status.Error(codes.Canceled, "gone") },
		"the transport says so":                   func(ctx context.Context) error { return status.Error(codes.Unavailable, "transport is closing") },
	} {
		t.Run(why, func(t *testing.T) {
			entered, done := make(chan struct{}), make(chan struct{})
			s := &service{beat: func(ctx context.Context) error {
				defer close(done)
				close(entered)
				<-ctx.Done()
				return fail(ctx)
			}}
			b := start(t, identity.Plain(), all(), s)
			client := b.dial(t, identity.Plain())
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-entered; cancel() }()
			_, err := client.Beat(ctx, &meshv1.BeatRequest{})
			if !errors.Is(err, context.Canceled) {
				t.Errorf("client: %v, want context.Canceled", err)
			}
			<-done
			if strings.Contains(b.log.String(), "internal error") {
				t.Errorf("log %q: a caller that went is not a bug", b.log)
			}
		})
	}
}

func TestMessagesAboveTheLimitAreRefused(t *testing.T) {
	s := &service{beat: func(context.Context) error { return nil }}
	client := start(t, identity.Plain(), all(), s).dial(t, identity.Plain())
	for n, ok := range map[int]bool{MaxMessage - 1024: true, MaxMessage + 1: false} {
		_, err := client.Beat(soon(t), &meshv1.BeatRequest{Instance: &meshv1.Instance{Id: strings.Repeat("x", n)}})
		if (err == nil) != ok {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestBulkOptionsCarryCalls(t *testing.T) {
	s := &service{beat: func(context.Context) error { return nil }}
	client := start(t, identity.Plain(), all(), s).dial(t, identity.Plain(), BulkDial()...)
	if _, err := client.Beat(soon(t), &meshv1.BeatRequest{}); err != nil {
		t.Error(err)
	}
	if len(BulkServer()) == 0 {
		t.Error("no options")
	}
}

func TestMetadataOfTheCallerIsNoIdentity(t *testing.T) {
	ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("caller", "router/r1", "x-forwarded-client-cert", "URI=spiffe://leasehold/router/r1"))
	if err := all().Check(ctx, meshv1.RegistryService_Beat_FullMethodName); errs.KindOf(err) != errs.Denied {
		t.Errorf("Check = %v, want denied", err)
	}
}
