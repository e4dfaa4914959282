package mesh

import (
	"flag"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"leasehold.dev/mesh/audit"
	"leasehold.dev/mesh/identity"
	"leasehold.dev/mesh/name"
	"leasehold.dev/protos/errs"
)

// Config is what every process of the mesh is told.
type Config struct {
	Service     string            // its role: router, prefill, decode, kvbroker, registry
	ID          string            // unique within the service; empty: the certificate's
	Listen      string            // host:port of gRPC
	Advertise   string            // host:port that others dial; empty: where it listens
	Admin       string            // host:port of /metrics, /healthz, /readyz, /debug/goroutines
	AddrFile    string            // where to write the real addresses once serving
	IdentityDir string            // ca.pem, cert.pem, key.pem
	Insecure    bool              // plain text, on loopback only
	Registry    string            // consul://host:port or embedded://host:port; empty: none
	OTLP        string            // http(s)://host:port for traces; empty: none
	LogLevel    string            // debug, info, warn, error
	Drain       time.Duration     // time that running calls get to finish
	Meta        map[string]string // for the registry
	LogOutput   io.Writer         // nil: stderr

	AuditDir      string // this process's own; empty: no audit log
	AuditFileSize int64  // bytes
	AuditKeep     int    // files; 0: all
}

// Flags adds the settings of c to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	fs.StringVar(&c.ID, "id", c.ID, "`name` of this instance, unique within its service (default: the certificate's)")
	fs.StringVar(&c.Listen, "listen", "127.0.0.1:0", "`address` to serve gRPC on")
	fs.StringVar(&c.Advertise, "advertise", "", "`address` that others dial (default: the one it listens on)")
	fs.StringVar(&c.Admin, "admin", "127.0.0.1:0", "`address` to serve /metrics, /healthz, /readyz and /debug/goroutines on")
	fs.StringVar(&c.AddrFile, "addr-file", "", "`file` to write the real addresses to, as JSON, once serving")
	fs.StringVar(&c.IdentityDir, "identity", "", "`directory` with ca.pem, cert.pem and key.pem")
	fs.BoolVar(&c.Insecure, "insecure", false, "speak plain text; only on loopback")
	fs.StringVar(&c.Registry, "registry", "", "`url` of the registry: consul://host:port?token_file=FILE or embedded://host:port")
	fs.StringVar(&c.OTLP, "otlp", "", "`url` to send traces to by OTLP, http://host:port or https://host:port (default: no traces)")
	fs.StringVar(&c.LogLevel, "log-level", "info", "`level`: debug, info, warn or error")
	fs.StringVar(&c.AuditDir, "audit-dir", "", "`directory` of this process's audit log; made with mode 0700 (default: no audit log)")
	fs.Int64Var(&c.AuditFileSize, "audit-file-size", audit.DefaultFileSize, "`bytes` after which the audit log begins a new file")
	fs.IntVar(&c.AuditKeep, "audit-keep", 0, "`files` of the audit log to keep; what is removed is named in a signed record (default: all)")
	fs.DurationVar(&c.Drain, "drain", 10*time.Second, "`time` that running calls get to finish on stop")
}

// check completes c and refuses what cannot work, before anything is opened.
func (c *Config) check() error {
	if err := name.Check("service", c.Service); err != nil {
		return err
	}
	if c.Insecure && c.IdentityDir != "" {
		return errs.New(errs.Invalid, "-insecure and -identity exclude each other")
	}
	if !c.Insecure && c.IdentityDir == "" {
		return errs.New(errs.Invalid, "-identity is needed (or -insecure, for plain text on loopback)")
	}
	if c.Insecure && !identity.Loopback(c.Listen) {
		return errs.New(errs.Invalid, "-insecure needs a loopback -listen address, not %q", c.Listen)
	}
	if c.Drain <= 0 {
		return errs.New(errs.Invalid, "-drain must be positive, not %v", c.Drain)
	}
	if c.AuditFileSize < 0 || c.AuditKeep < 0 {
		return errs.New(errs.Invalid, "-audit-file-size is %d and -audit-keep %d, want at least 0", c.AuditFileSize, c.AuditKeep)
	}
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return errs.New(errs.Invalid, "-listen: %w", err)
	}
	if ip := net.ParseIP(host); c.Advertise == "" && c.Registry != "" && (host == "" || ip != nil && ip.IsUnspecified()) {
		return errs.New(errs.Invalid, "-listen %s is every address of this host: -advertise must say which one others dial", c.Listen)
	}
	return nil
}

// identify returns the identity, and completes c.ID from it.
func (c *Config) identify() (*identity.Identity, error) {
	if c.Insecure {
		return identity.Plain(), name.Check("-id", c.ID)
	}
	who, err := identity.Load(c.IdentityDir)
	if err != nil {
		return nil, err
	}
	service, id := who.Name()
	if c.ID == "" {
		c.ID = id
	}
	if service != c.Service || id != c.ID {
		return nil, errs.New(errs.Invalid, "the certificate is for %s/%s, this process is %s/%s", service, id, c.Service, c.ID)
	}
	return who, nil
}

func (c *Config) logger() (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.LogLevel)); c.LogLevel != "" && err != nil {
		return nil, errs.New(errs.Invalid, "-log-level: %q is not debug, info, warn or error", c.LogLevel)
	}
	w := c.LogOutput
	if w == nil {
		w = os.Stderr
	}
	h := slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})
	return slog.New(h).With("service", c.Service, "id", c.ID), nil
}
