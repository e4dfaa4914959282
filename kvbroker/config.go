package kvbroker

import (
	"flag"

	"leasehold.dev/gpu/layout"
	"leasehold.dev/kvbroker/mover"
	"leasehold.dev/kvbroker/server"
	"leasehold.dev/mesh"
	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/proof"
)

// flags is what the process is told.
type flags struct {
	mesh                         mesh.Config
	model, backend, dir, keyFile string
	pages, quota, quarantine     uint
	share                        uint
	checkShare                   float64
	movers, host, fabric         string
	copyThreads, pullLanes       uint
	framing, dataListen          string
}

func parse(args []string) (*flags, error) {
	f := &flags{mesh: mesh.Config{Service: "kvbroker"}}
	fs := flag.NewFlagSet("leasehold-kvbroker", flag.ContinueOnError)
	f.mesh.Flags(fs)
	fs.StringVar(&f.model, "model", "", "GGUF `file`: says how a page looks and which weights it is for")
	fs.StringVar(&f.backend, "backend", layout.CPU, "back end of the workers: cpu, ref or ref-f32")
	fs.StringVar(&f.dir, "dir", "", "runtime `directory` for the workers' sockets; made with mode 0700")
	fs.StringVar(&f.keyFile, "admission-key", "", "`file` with the router's Ed25519 public key, PEM or base64")
	fs.UintVar(&f.pages, "pages", 0, "`pages` of the pool, 64 tokens each")
	fs.UintVar(&f.quota, "quota-pages", 0, "most `pages` that one tenant may hold (default: no quota)")
	fs.UintVar(&f.share, "fair-share", 4, "a tenant with a request running may hold at most this many `times` the pages that stay free; 0: any number")
	fs.UintVar(&f.quarantine, "quarantine-pages", 0, "stop granting with more `pages` than this in quarantine (default: half of the pool)")
	fs.Float64Var(&f.checkShare, "check-share", 0.05, "`share` of pages that are checked at grant and at release, 0 to 1")
	fs.StringVar(&f.movers, "movers", "shm,grpc", "`movers` (shm, ucx, grpc) by which pages go to and come from other brokers, separated by commas")
	fs.StringVar(&f.host, "host", "auto", "`name` that is equal for brokers that can map each other's pools; auto: this boot, mount namespace and user; empty: no shared memory")
	fs.StringVar(&f.fabric, "fabric", "", "`name` that is equal for brokers whose mover processes reach each other; empty: no ucx")
	fs.UintVar(&f.copyThreads, "copy-threads", 0, "`threads` that copy and check moved pages at once (default: a quarter of the CPUs)")
	fs.UintVar(&f.pullLanes, "pull-lanes", 1, "`connections` that the pages of a Pull by grpc come over at once")
	fs.StringVar(&f.framing, "lane-framing", "raw", "`framing` of pages that come by grpc: raw, over bare connections to peers that serve them, or grpc")
	fs.StringVar(&f.dataListen, "data-listen", "auto", "`address` to serve raw lanes on; auto: any port of the gRPC listener's host; empty: none are served")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	const most = 1 << 26
	switch {
	case fs.NArg() > 0:
		return nil, errs.New(errs.Invalid, "unexpected argument %q", fs.Arg(0))
	case f.model == "" || f.dir == "" || f.keyFile == "" || f.pages == 0:
		return nil, errs.New(errs.Invalid, "-model, -dir, -admission-key and -pages are needed")
	case f.pullLanes < 1 || f.pullLanes > mover.MaxLanes:
		return nil, errs.New(errs.Invalid, "-pull-lanes is %d, want 1 to %d", f.pullLanes, mover.MaxLanes)
	case f.framing != "raw" && f.framing != "grpc":
		return nil, errs.New(errs.Invalid, "-lane-framing: %q is neither raw nor grpc", f.framing)
	case f.copyThreads > 1024:
		return nil, errs.New(errs.Invalid, "-copy-threads is %d, at most 1024", f.copyThreads)
	case f.pages > most || f.quota > most || f.quarantine > most || f.share > most:
		return nil, errs.New(errs.Invalid, "-pages, -quota-pages, -quarantine-pages and -fair-share are at most %d", most)
	}
	return f, nil
}

// server reads what the flags name.
func (f *flags) server() (server.Config, error) {
	movers, err := moversOf(f.movers)
	if err != nil {
		return server.Config{}, err
	}
	host := f.host
	if host == "auto" {
		if host, err = thisHost(); err != nil {
			return server.Config{}, err
		}
	}
	key, err := proof.ReadPublicKey(f.keyFile)
	if err != nil {
		return server.Config{}, err
	}
	l, revision, tokenizer, err := layout.FromFile(f.model, f.backend)
	if err != nil {
		return server.Config{}, errs.New(errs.Invalid, "-model: %w", err)
	}
	return server.Config{
		Dir: f.dir, Layout: l, ModelRevision: revision, TokenizerRevision: tokenizer,
		NumericsClass: layout.NumericsClass(f.backend), Pages: uint32(f.pages), Quota: uint32(f.quota), Share: uint32(f.share),
		QuarantineCap: uint32(f.quarantine), AdmissionKey: key, CheckShare: f.checkShare,
		Movers: movers, Host: host, Fabric: f.fabric, CopyThreads: int(f.copyThreads), PullLanes: int(f.pullLanes),
		RawLanes: f.framing == "raw",
	}, nil
}
