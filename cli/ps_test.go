package cli

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/mesh/identity"
	"leasehold.dev/mesh/registry"
	brokerv1 "leasehold.dev/protos/gen/leasehold/broker/v1"
	decodev1 "leasehold.dev/protos/gen/leasehold/decode/v1"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	prefillv1 "leasehold.dev/protos/gen/leasehold/prefill/v1"
)

type brokerStub struct {
	brokerv1.UnimplementedInfoServiceServer
	leases []*brokerv1.LeaseInfo
}

func (b brokerStub) Describe(context.Context, *brokerv1.DescribeRequest) (*brokerv1.DescribeResponse, error) {
	return &brokerv1.DescribeResponse{
		Identity: &brokerv1.BrokerIdentity{Name: "broker-d", Instance: []byte{1, 2, 3, 4, 5, 6, 7, 8}},
		Pool:     &brokerv1.PoolCount{Pages: 288, Free: 254, Staged: 1, Verifying: 1, Owned: 32},
		Leases:   b.leases,
	}, nil
}

type decodeStub struct {
	decodev1.UnimplementedDecodeServiceServer
}

func (decodeStub) Watch(_ *decodev1.WatchRequest, s grpc.ServerStreamingServer[decodev1.WatchResponse]) error {
	return s.Send(&decodev1.WatchResponse{Status: &meshv1.WorkerStatus{Broker: "broker-d", PoolPages: 288, FreePages: 254, Sequences: 2,
		PromisedTokens: 8192, LimitTokens: 9000, Ready: true, GuardsOn: true}})
}

type prefillStub struct {
	prefillv1.UnimplementedPrefillServiceServer
}

func (prefillStub) Watch(_ *prefillv1.WatchRequest, s grpc.ServerStreamingServer[prefillv1.WatchResponse]) error {
	return s.Send(&prefillv1.WatchResponse{Status: &meshv1.WorkerStatus{Broker: "broker-p", PoolPages: 160, FreePages: 160,
		PromisedTokens: 8192, LimitTokens: 4096, Reason: "limit 4096,\npromised 8192"}})
}

// processes is a real server of all services, plain over loopback.
func processes(t *testing.T, leases ...*brokerv1.LeaseInfo) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.Creds(identity.Plain().ServerCreds()))
	brokerv1.RegisterInfoServiceServer(s, brokerStub{leases: leases})
	decodev1.RegisterDecodeServiceServer(s, decodeStub{})
	prefillv1.RegisterPrefillServiceServer(s, prefillStub{})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		<-served
	})
	return l.Addr().String()
}

// table asks every address as the named service, and returns what is printed, without runs of spaces.
func table(t *testing.T, address string, names ...string) string {
	t.Helper()
	v := &view{timeout: 5 * time.Second, id: identity.Plain()}
	for _, s := range names {
		v.services = append(v.services, v.ask(t.Context(), registry.Instance{Service: s, ID: s + "-0", Address: address}))
	}
	var out strings.Builder
	if err := v.print(&out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for i, l := range lines {
		if l != strings.TrimRight(l, " ") {
			t.Errorf("line %q ends in spaces", l)
		}
		lines[i] = strings.Join(strings.Fields(l), " ")
	}
	return strings.Join(lines, "\n")
}

func TestPsPrintsWhatEachProcessSays(t *testing.T) {
	addr := processes(t, &brokerv1.LeaseInfo{LeaseHash: []byte{9, 8, 7, 6, 5, 4, 3}, Tenant: "acme", Worker: "decode-0",
		Role: brokerv1.Role_ROLE_DESTINATION, State: "owned", Pages: 34, Rows: 37, AgeMs: 1234})
	want := `SERVICE ID ADDRESS BROKER PAGES USED RUNNING PROMISE/LIMIT STATE
router router-0 @ - - - - passing
prefill prefill-0 @ broker-p 0/160 0 8192/4096 not ready: limit 4096, promised 8192, GUARDS OFF
decode decode-0 @ broker-d 34/288 2 8192/9000 ready
kvbroker kvbroker-0 @ - 34/288 1 - passing

BROKER INSTANCE PAGES FREE WRITING SEALED STAGED OWNED QUARANTINE
broker-d 010203040506 288 254 0 0 2 32 0

BROKER LEASE TENANT WORKER ROLE STATE PAGES ROWS AGE
broker-d 090807060504 acme decode-0 destination owned 34 37 1.2s
`
	if got := table(t, addr, services...); got != strings.ReplaceAll(want, "@", addr) {
		t.Errorf("ps printed\n%s\nwant\n%s", got, want)
	}
}

func TestPsWithoutLeases(t *testing.T) {
	if got := table(t, processes(t), "kvbroker"); !strings.HasSuffix(got, "\n\nno leases\n") {
		t.Errorf("ps printed\n%s", got)
	}
}

func TestPsOfAProcessThatIsGone(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if got := table(t, l.Addr().String(), "kvbroker"); !strings.Contains(got, "- - - - no answer: ") || strings.Contains(got, "rpc error") {
		t.Errorf("ps printed\n%s", got)
	}
}
