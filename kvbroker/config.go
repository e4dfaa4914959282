package kvbroker

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"flag"
	"os"
	"strings"

	"leasehold.dev/gpu/layout"
	"leasehold.dev/kvbroker/server"
	"leasehold.dev/mesh"
	"leasehold.dev/protos/errs"
)

// flags is what the process is told.
type flags struct {
	mesh                         mesh.Config
	model, backend, dir, keyFile string
	pages, quota, quarantine     uint
	checkShare                   float64
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
	fs.UintVar(&f.quarantine, "quarantine-pages", 0, "stop granting with more `pages` than this in quarantine (default: half of the pool)")
	fs.Float64Var(&f.checkShare, "check-share", 0.05, "`share` of pages that are checked at grant and at release, 0 to 1")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	const most = 1 << 26
	switch {
	case fs.NArg() > 0:
		return nil, errs.New(errs.Invalid, "unexpected argument %q", fs.Arg(0))
	case f.model == "" || f.dir == "" || f.keyFile == "" || f.pages == 0:
		return nil, errs.New(errs.Invalid, "-model, -dir, -admission-key and -pages are needed")
	case f.pages > most || f.quota > most || f.quarantine > most:
		return nil, errs.New(errs.Invalid, "-pages, -quota-pages and -quarantine-pages are at most %d", most)
	}
	return f, nil
}

// server reads what the flags name.
func (f *flags) server() (server.Config, error) {
	key, err := readKey(f.keyFile)
	if err != nil {
		return server.Config{}, err
	}
	l, revision, tokenizer, err := layout.FromFile(f.model, f.backend)
	if err != nil {
		return server.Config{}, errs.New(errs.Invalid, "-model: %w", err)
	}
	return server.Config{
		Dir: f.dir, Layout: l, ModelRevision: revision, TokenizerRevision: tokenizer,
		NumericsClass: layout.NumericsClass(f.backend), Pages: uint32(f.pages), Quota: uint32(f.quota),
		QuarantineCap: uint32(f.quarantine), AdmissionKey: key, CheckShare: f.checkShare,
	}, nil
}

// readKey reads an Ed25519 public key: PKIX in PEM, or its 32 bytes in base64.
func readKey(path string) (ed25519.PublicKey, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, errs.New(errs.Invalid, "-admission-key: %w", err)
	}
	key, err := parseKey(b)
	if err != nil {
		return nil, errs.New(errs.Invalid, "-admission-key %s: %w", path, err)
	}
	return key, nil
}

func parseKey(b []byte) (ed25519.PublicKey, error) {
	if block, _ := pem.Decode(b); block != nil {
		k, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, errs.New(errs.Invalid, "no PKIX public key: %w", err)
		}
		key, ok := k.(ed25519.PublicKey)
		if !ok {
			return nil, errs.New(errs.Invalid, "a %T, want Ed25519", k)
		}
		return key, nil
	}
	raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(string(b)))
	if err != nil || len(raw) != ed25519.PublicKeySize {
		return nil, errs.New(errs.Invalid, "neither PEM nor the base64 of %d bytes", ed25519.PublicKeySize)
	}
	return raw, nil
}
