package attach

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"leasehold.dev/protos/errs"
)

type health struct {
	grpc_health_v1.UnimplementedHealthServer
	seen chan Peer
}

func (h health) Check(ctx context.Context, _ *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	if p, ok := peer.FromContext(ctx); ok {
		if u, ok := PeerOf(p.AuthInfo); ok {
			h.seen <- u
		}
	}
	return &grpc_health_v1.HealthCheckResponse{}, nil
}

func TestCredentialsCheckTheUid(t *testing.T) {
	for _, tt := range []struct {
		name           string
		server, client []uint32
		want           codes.Code
	}{
		{"both know the other", []uint32{self()}, []uint32{self()}, codes.OK},
		{"a stranger calls", []uint32{self() + 1}, []uint32{self()}, codes.Unavailable},
		{"a stranger answers", []uint32{self()}, []uint32{self() + 1}, codes.Unavailable},
		{"nobody is allowed", nil, []uint32{self()}, codes.Unavailable},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := testDir(t)
			l, err := ListenWorker(dir)
			if err != nil {
				t.Fatal(err)
			}
			s := grpc.NewServer(grpc.Creds(Credentials(tt.server...)))
			h := health{seen: make(chan Peer, 1)}
			grpc_health_v1.RegisterHealthServer(s, h)
			done := make(chan error, 1)
			go func() { done <- s.Serve(l) }()
			defer func() { s.Stop(); <-done }()
			c, err := grpc.NewClient("unix:"+filepath.Join(dir, WorkerName), grpc.WithTransportCredentials(Credentials(tt.client...)))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_, err = grpc_health_v1.NewHealthClient(c).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
			if status.Code(err) != tt.want {
				t.Fatalf("Check = %v, want %v", err, tt.want)
			}
			if tt.want == codes.OK {
				if p := <-h.seen; p.UID != self() || int(p.PID) != os.Getpid() {
					t.Errorf("peer = %+v, want this process", p)
				}
			}
		})
	}
}

func TestCredentialsRefuseAnyOtherSocket(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	if _, _, err := Credentials(self()).ServerHandshake(a); errs.KindOf(err) != errs.Denied {
		t.Errorf("ServerHandshake over a pipe = %v, want denied", err)
	}
	if _, ok := PeerOf(insecureInfo(t)); ok {
		t.Error("PeerOf accepts the AuthInfo of other credentials")
	}
}

func insecureInfo(t *testing.T) interface{ AuthType() string } {
	t.Helper()
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	_, info, err := insecure.NewCredentials().ServerHandshake(a)
	if err != nil {
		t.Fatal(err)
	}
	return info
}
