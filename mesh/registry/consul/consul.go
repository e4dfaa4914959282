package consul

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/hashicorp/consul/api"

	"leasehold.dev/mesh/identity"
	"leasehold.dev/mesh/registry"
	"leasehold.dev/mesh/registry/internal/beat"
	"leasehold.dev/protos/errs"
)

// forget is how long Consul keeps an entry that does not pass; a minute is the least that it allows.
const forget = time.Minute

// Config says where Consul is.
type Config struct {
	Address   string // host:port of the agent's HTTP API
	Token     string // ACL token; or
	TokenFile string // a file with it
	TTL       time.Duration
	Log       *slog.Logger
}

// Registry is a registry.Registry that asks a Consul agent.
type Registry struct {
	api  *api.Client
	http *http.Transport
	ttl  time.Duration
	log  *slog.Logger
}

// New connects to nothing yet. TTL 0 is [registry.TTL].
func New(c Config) (*Registry, error) {
	if _, _, err := net.SplitHostPort(c.Address); err != nil {
		return nil, errs.New(errs.Invalid, "consul: address %q is not host:port", c.Address)
	}
	if (c.Token != "" || c.TokenFile != "") && !identity.Loopback(c.Address) {
		return nil, errs.New(errs.Invalid, "consul: a token is sent in plain text, so the agent must be on loopback, not %s", c.Address)
	}
	tr := &http.Transport{
		DialContext:           (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
		IdleConnTimeout:       30 * time.Second,
		MaxIdleConnsPerHost:   4,
		ResponseHeaderTimeout: wait + wait/8 + 5*time.Second, // Consul adds up to a sixteenth to a blocking query's wait
	}
	client, err := api.NewClient(&api.Config{
		Address: c.Address, Scheme: "http", Token: c.Token, TokenFile: c.TokenFile,
		Transport: tr, HttpClient: &http.Client{Transport: tr},
	})
	if err != nil {
		return nil, errs.New(errs.Invalid, "consul: %w", err)
	}
	if c.TTL == 0 {
		c.TTL = registry.TTL
	}
	return &Registry{api: client, http: tr, ttl: c.TTL, log: c.Log}, nil
}

// Close gives idle connections back. Registrations and watches end by themselves.
func (r *Registry) Close() error {
	r.http.CloseIdleConnections()
	return nil
}

// Register implements registry.Registry.
func (r *Registry) Register(ctx context.Context, in registry.Instance, check func(context.Context) error) (func(context.Context) error, error) {
	if err := registry.Validate(in); err != nil {
		return nil, err
	}
	e, err := newEntry(in, r.ttl)
	if err != nil {
		return nil, err
	}
	known := false
	return beat.Beat{
		Every: r.ttl / 3, Log: r.log, Check: check,
		Send: func(ctx context.Context, ill error) error {
			if !known {
				if err := e.register(ctx, r.api, ill); err != nil {
					return err
				}
				known = true
			}
			err := e.update(ctx, r.api, ill)
			if err != nil {
				known = false
			}
			return err
		},
		Remove: func(ctx context.Context) error { return e.remove(ctx, r.api) },
	}.Start(ctx), nil
}

// entry is an instance as the agent keeps it.
type entry struct {
	reg   api.AgentServiceRegistration
	check string
}

func entryID(in registry.Instance) string { return in.Service + ":" + in.ID }

func newEntry(in registry.Instance, ttl time.Duration) (entry, error) {
	host, port, err := net.SplitHostPort(in.Address)
	if err != nil {
		return entry{}, errs.Mark(err, errs.Invalid)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return entry{}, errs.Mark(err, errs.Invalid)
	}
	e := entry{check: entryID(in) + ":ttl"}
	e.reg = api.AgentServiceRegistration{
		ID: entryID(in), Name: in.Service, Address: host, Port: n, Meta: in.Meta,
		Check: &api.AgentServiceCheck{CheckID: e.check, Name: "self-check", TTL: ttl.String(),
			DeregisterCriticalServiceAfter: forget.String()},
	}
	return e, nil
}

func state(ill error) (status, output string) {
	if ill != nil {
		return api.HealthCritical, ill.Error()
	}
	return api.HealthPassing, "ready"
}

// register lists the entry in the state that it is in now, so that telling a restarted agent again is no gap.
func (e entry) register(ctx context.Context, c *api.Client, ill error) error {
	reg, check := e.reg, *e.reg.Check
	check.Status, _ = state(ill)
	reg.Check = &check
	err := c.Agent().ServiceRegisterOpts(&reg, api.ServiceRegisterOpts{ReplaceExistingChecks: true}.WithContext(ctx))
	return away(err)
}

func (e entry) update(ctx context.Context, c *api.Client, ill error) error {
	status, output := state(ill)
	return away(c.Agent().UpdateTTLOpts(e.check, output, status, (&api.QueryOptions{}).WithContext(ctx)))
}

func (e entry) remove(ctx context.Context, c *api.Client) error {
	return away(c.Agent().ServiceDeregisterOpts(e.reg.ID, (&api.QueryOptions{}).WithContext(ctx)))
}

func away(err error) error {
	if err == nil {
		return nil
	}
	return errs.New(errs.Unavailable, "consul: %w", err)
}
