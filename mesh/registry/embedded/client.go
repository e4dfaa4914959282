package embedded

import (
	"context"
	"log/slog"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/mesh/registry"
	"leasehold.dev/mesh/registry/internal/beat"
	"leasehold.dev/mesh/registry/internal/hold"
	"leasehold.dev/mesh/registry/internal/retry"
	meshv1 "leasehold.dev/protos/gen/leasehold/mesh/v1"
)

// Client is a registry.Registry that asks a [Server].
type Client struct {
	rpc meshv1.RegistryServiceClient
	ttl time.Duration
	log *slog.Logger
}

// NewClient asks over cc, which stays the caller's. ttl is 0 for [registry.TTL].
func NewClient(cc grpc.ClientConnInterface, ttl time.Duration, log *slog.Logger) *Client {
	if ttl == 0 {
		ttl = registry.TTL
	}
	return &Client{rpc: meshv1.NewRegistryServiceClient(cc), ttl: ttl, log: log}
}

// Register implements registry.Registry.
func (c *Client) Register(ctx context.Context, in registry.Instance, check func(context.Context) error) (func(context.Context) error, error) {
	if err := registry.Validate(in); err != nil {
		return nil, err
	}
	return beat.Beat{
		Every: c.ttl / 3, Log: c.log, Check: check,
		Send: func(ctx context.Context, ill error) error {
			_, err := c.rpc.Beat(ctx, &meshv1.BeatRequest{Instance: toWire(in), TtlMs: uint32(c.ttl.Milliseconds()), Passing: ill == nil})
			return err
		},
		Remove: func(ctx context.Context) error {
			_, err := c.rpc.Leave(ctx, &meshv1.LeaveRequest{Service: in.Service, Id: in.ID})
			return err
		},
	}.Start(ctx), nil
}

// Watch implements registry.Registry.
func (c *Client) Watch(ctx context.Context, service string) (<-chan []registry.Instance, error) {
	if err := registry.ValidateService(service); err != nil {
		return nil, err
	}
	feed := hold.New(2 * c.ttl)
	go func() {
		defer feed.Close()
		back := retry.Backoff{Min: 50 * time.Millisecond, Max: time.Second}
		for {
			err := c.follow(ctx, service, feed, &back)
			if ctx.Err() != nil {
				return
			}
			feed.Lost()
			c.log.DebugContext(ctx, "watch ended", "watched", service, "error", err.Error())
			if back.Wait(ctx) != nil {
				return
			}
		}
	}()
	return feed.C(), nil
}

// List is who is in the registry now, passing or not, sorted by id.
func (c *Client) List(ctx context.Context, service string) ([]registry.Listed, error) {
	if err := registry.ValidateService(service); err != nil {
		return nil, err
	}
	resp, err := c.rpc.List(ctx, &meshv1.ListRequest{Service: service})
	if err != nil {
		return nil, err
	}
	var all []registry.Listed
	for _, l := range resp.GetListed() {
		all = append(all, registry.Listed{Instance: fromWire(l.GetInstance()), Passing: l.GetPassing()})
	}
	return all, nil
}

// follow reads one stream to its end; a stream of the registry has no other end than an error.
func (c *Client) follow(ctx context.Context, service string, feed *hold.Feed, back *retry.Backoff) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := c.rpc.Watch(ctx, &meshv1.WatchRequest{Service: service})
	if err != nil {
		return err
	}
	for {
		resp, err := stream.Recv()
		if err != nil {
			return err
		}
		back.Reset()
		set := make([]registry.Instance, 0, len(resp.GetInstances()))
		for _, in := range resp.GetInstances() {
			set = append(set, fromWire(in))
		}
		feed.Heard(set)
	}
}
