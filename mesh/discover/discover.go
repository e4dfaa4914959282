// Package discover opens the registry that a URL names.
package discover

import (
	"context"
	"log/slog"
	"net/url"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"leasehold.dev/mesh/identity"
	"leasehold.dev/mesh/registry"
	"leasehold.dev/mesh/registry/consul"
	"leasehold.dev/mesh/registry/embedded"
	"leasehold.dev/mesh/rpc"
	"leasehold.dev/protos/errs"
)

// Discovery is an open registry. Close it after its registrations left and its watches ended.
type Discovery struct {
	registry.Registry
	list  func(ctx context.Context, service string) ([]registry.Listed, error)
	close func() error
}

// List is who is in the registry now, passing or not, sorted by id. It fails while the registry is away: what an operator
// is told is never old.
func (d *Discovery) List(ctx context.Context, service string) ([]registry.Listed, error) {
	return d.list(ctx, service)
}

// Close gives the connections back.
func (d *Discovery) Close() error { return d.close() }

// Location is a parsed URL. Kind is consul or embedded.
type Location struct {
	Kind, Address    string
	Token, TokenFile string // consul only
}

// Parse reads consul://host:port?token=T, consul://host:port?token_file=FILE or embedded://host:port. What it does not
// know it refuses; the error never shows the token.
func Parse(raw string) (Location, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return Location{}, errs.New(errs.Invalid, "registry: not a URL")
	}
	l := Location{Kind: u.Scheme, Address: u.Host}
	if u.Scheme != "consul" && u.Scheme != "embedded" {
		return Location{}, errs.New(errs.Invalid, "registry: %q is not consul or embedded", u.Scheme)
	}
	if u.Hostname() == "" || u.Port() == "" || u.Path != "" || u.User != nil || u.Fragment != "" {
		return Location{}, errs.New(errs.Invalid, "registry: want %s://host:port", u.Scheme)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Location{}, errs.New(errs.Invalid, "registry: malformed query")
	}
	for k, v := range query {
		switch {
		case u.Scheme == "consul" && k == "token" && len(v) == 1:
			l.Token = v[0]
		case u.Scheme == "consul" && k == "token_file" && len(v) == 1:
			l.TokenFile = v[0]
		default:
			return Location{}, errs.New(errs.Invalid, "registry: setting %q is unknown or repeated", k)
		}
	}
	if l.Token != "" && l.TokenFile != "" {
		return Location{}, errs.New(errs.Invalid, "registry: token and token_file exclude each other")
	}
	return l, nil
}

// Open opens the registry that raw names; see [Parse]. It does not wait for the registry to be there.
func Open(raw string, who *identity.Identity, log *slog.Logger) (*Discovery, error) {
	l, err := Parse(raw)
	if err != nil {
		return nil, err
	}
	if l.Kind == "consul" {
		r, err := consul.New(consul.Config{Address: l.Address, Token: l.Token, TokenFile: l.TokenFile, Log: log})
		if err != nil {
			return nil, err
		}
		return &Discovery{Registry: r, list: r.List, close: r.Close}, nil
	}
	// A registry that restarted must hear the beats before watchers stop to hold what they knew: reconnect within a second.
	quick := grpc.WithConnectParams(grpc.ConnectParams{
		Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 800 * time.Millisecond},
		MinConnectTimeout: 2 * time.Second,
	})
	cc, err := rpc.Dial(l.Address, append(rpc.DialOptions(who.ClientCreds(embedded.Service, ""), nil), quick)...)
	if err != nil {
		return nil, err
	}
	client := embedded.NewClient(cc, 0, log)
	return &Discovery{Registry: client, list: client.List, close: func() error {
		return errs.Mark(cc.Close(), errs.Internal)
	}}, nil
}
