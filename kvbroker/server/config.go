package server

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"log/slog"
	"net"
	"os"
	"runtime"
	"slices"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"google.golang.org/grpc"

	"leasehold.dev/gpu/layout"
	"leasehold.dev/kvbroker/mover"
	"leasehold.dev/mesh/audit"
	"leasehold.dev/mesh/boundary"
	"leasehold.dev/protos/errs"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
	"leasehold.dev/protos/proof"
)

// shm is the mover between brokers of one host, ucx the one by their mover processes.
const (
	shm = meshv1.Mover_MOVER_SHM
	ucx = meshv1.Mover_MOVER_UCX
)

// moves says whether pages go by m between this broker and others.
func (b *Broker) moves(m meshv1.Mover) bool { return slices.Contains(b.cfg.Movers, m) }

// Protocol is the version of what brokers say to each other.
const Protocol = 1

// Peers finds other brokers.
type Peers interface {
	// Call runs f with a connection to the broker of that name, whose certificate says so. Unavailable when it is not
	// listed, or is known to be failing.
	Call(name string, f func(grpc.ClientConnInterface) error) error
	// More are up to n further connections to that broker, each its own. They are only used during a Call.
	More(name string, n int) []grpc.ClientConnInterface
}

// Wire makes connections between brokers for raw lanes, with the certificates of the PeerService.
type Wire interface {
	// Accept proves who has made a connection. Unless it is ok, names are not checked, which is for plain text on loopback only.
	Accept(ctx context.Context, c net.Conn) (conn net.Conn, name string, ok bool, err error)
	// Dial connects to the broker of that name.
	Dial(ctx context.Context, name, address string) (net.Conn, error)
}

// Config of a broker. Name, Dir, Layout, the revisions, Pages and AdmissionKey are required.
type Config struct {
	Name     string // instance name in the registry
	Instance []byte // 16 random bytes, new at every start; default: drawn
	Dir      string // runtime directory, 0700

	Layout            layout.Layout
	ModelRevision     [sha256.Size]byte
	TokenizerRevision [sha256.Size]byte
	NumericsClass     string

	Pages         uint32
	Quota         uint32 // pages of one tenant; 0: no quota
	Share         uint32 // of a tenant: [lease.Config].Share; 0: none
	QuarantineCap uint32 // pages; 0: the table's default

	// Movers by which pages go to and come from other brokers; default: shm and grpc. With ucx the broker is not ready before
	// its mover process has attached.
	Movers []meshv1.Mover
	// Host is equal for brokers that can map each other's pools. Empty: no shared memory.
	Host string
	// Fabric is equal for brokers whose mover processes reach each other. Empty: ucx is not used.
	Fabric    string
	PullLanes int // connections that pages of a grpc Pull come over at once; default 1
	// Wire makes raw lanes; nil: there are none, at either side. Data accepts those of others, who find it at DataAddress; nil:
	// this broker serves none. The broker closes it.
	Wire        Wire
	Data        net.Listener
	DataAddress string
	RawLanes    bool // pages of a grpc Pull come over raw lanes, where the peer serves them

	CopyThreads int // that copy and digest pages of Pulls at once; default: a quarter of the CPUs, at least 1

	AdmissionKey ed25519.PublicKey
	UIDs         []uint32 // that may attach; default: this process's
	CheckShare   float64  // of pages that are checked at grant and at release, 0 to 1

	Peers Peers // nil: no broker can be pulled from
	// Caller names the verified broker behind an rpc of the PeerService. Nil: names are not checked, which is for
	// plain text on loopback only.
	Caller func(context.Context) (name string, ok bool)

	Audit    *audit.Log         // nil: none
	Boundary *boundary.Recorder // default: none
	Log      *slog.Logger       // default: discard
	Meter    metric.Meter       // default: none
}

func (c *Config) complete() error {
	switch {
	case c.Name == "" || c.Dir == "":
		return errs.New(errs.Invalid, "broker: no name or no runtime directory")
	case c.NumericsClass == "":
		return errs.New(errs.Invalid, "broker: no numerics class")
	case c.Pages == 0:
		return errs.New(errs.Invalid, "broker: a pool of 0 pages")
	case len(c.AdmissionKey) != ed25519.PublicKeySize:
		return errs.New(errs.Invalid, "broker: admission key of %d bytes, want %d", len(c.AdmissionKey), ed25519.PublicKeySize)
	case c.Instance != nil && len(c.Instance) != proof.IDSize:
		return errs.New(errs.Invalid, "broker: instance of %d bytes, want %d", len(c.Instance), proof.IDSize)
	case !(c.CheckShare >= 0 && c.CheckShare <= 1):
		return errs.New(errs.Invalid, "broker: check share %v, want 0 to 1", c.CheckShare)
	}
	if err := c.Layout.Check(); err != nil {
		return err
	}
	if c.Movers == nil {
		c.Movers = []meshv1.Mover{shm, meshv1.Mover_MOVER_GRPC}
	}
	c.Movers = slices.DeleteFunc(slices.Clone(c.Movers), func(m meshv1.Mover) bool {
		return m == shm && c.Host == "" || m == ucx && c.Fabric == ""
	})
	if c.PullLanes <= 0 {
		c.PullLanes = 1
	}
	if c.PullLanes > mover.MaxLanes {
		return errs.New(errs.Invalid, "broker: %d lanes a Pull, at most %d", c.PullLanes, mover.MaxLanes)
	}
	if (c.Data != nil) != (c.DataAddress != "") || c.Wire == nil && (c.Data != nil || c.RawLanes) {
		return errs.New(errs.Invalid, "broker: raw lanes need a wire, and a listener an address")
	}
	if c.CopyThreads <= 0 {
		c.CopyThreads = max(1, runtime.GOMAXPROCS(0)/4)
	}
	if c.Instance == nil {
		c.Instance = proof.NewID()
	}
	if c.UIDs == nil {
		c.UIDs = []uint32{uint32(os.Geteuid())}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Meter == nil {
		c.Meter = noop.Meter{}
	}
	return nil
}
