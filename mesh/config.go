package mesh

import (
	"flag"
	"io"
	"time"
)

// Config is what every process of the mesh is told.
type Config struct {
	Service     string            // its role: router, prefill, decode, kvbroker, registry
	ID          string            // unique within the service; empty: the certificate's
	Listen      string            // host:port of gRPC
	Advertise   string            // host:port that others dial; empty: where it listens
	Admin       string            // host:port of /metrics, /healthz, /readyz
	AddrFile    string            // where to write the real addresses once serving
	IdentityDir string            // ca.pem, cert.pem, key.pem
	Insecure    bool              // plain text, on loopback only
	Registry    string            // consul://host:port or embedded://host:port; empty: none
	OTLP        string            // http(s)://host:port for traces; empty: none
	LogLevel    string            // debug, info, warn, error
	Drain       time.Duration     // time that running calls get to finish
	Meta        map[string]string // for the registry
	LogOutput   io.Writer         // nil: stderr
}

// Flags adds the settings of c to fs.
func (c *Config) Flags(fs *flag.FlagSet) {
	fs.StringVar(&c.ID, "id", c.ID, "`name` of this instance, unique within its service (default: the certificate's)")
	fs.StringVar(&c.Listen, "listen", "127.0.0.1:0", "`address` to serve gRPC on")
	fs.StringVar(&c.Advertise, "advertise", "", "`address` that others dial (default: the one it listens on)")
	fs.StringVar(&c.Admin, "admin", "127.0.0.1:0", "`address` to serve /metrics, /healthz and /readyz on")
	fs.StringVar(&c.AddrFile, "addr-file", "", "`file` to write the real addresses to, as JSON, once serving")
	fs.StringVar(&c.IdentityDir, "identity", "", "`directory` with ca.pem, cert.pem and key.pem")
	fs.BoolVar(&c.Insecure, "insecure", false, "speak plain text; only on loopback")
	fs.StringVar(&c.Registry, "registry", "", "`url` of the registry: consul://host:port?token_file=FILE or embedded://host:port")
	fs.StringVar(&c.OTLP, "otlp", "", "`url` to send traces to by OTLP, http://host:port or https://host:port (default: no traces)")
	fs.StringVar(&c.LogLevel, "log-level", "info", "`level`: debug, info, warn or error")
	fs.DurationVar(&c.Drain, "drain", 10*time.Second, "`time` that running calls get to finish on stop")
}
