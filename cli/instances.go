package cli

import (
	"context"
	"log/slog"
	"time"

	"leasehold.dev/mesh/discover"
	"leasehold.dev/mesh/identity"
	"leasehold.dev/mesh/registry"
)

var services = []string{"router", "prefill", "decode", "kvbroker"}

// registryWait is how long a service without a passing instance keeps ps waiting.
const registryWait = time.Second

// instances asks the registry for all that pass, in the order of services.
func instances(ctx context.Context, url string, id *identity.Identity) ([]registry.Instance, error) {
	d, err := discover.Open(url, id, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	watch, cancel := context.WithCancel(ctx)
	defer cancel()
	var all []registry.Instance
	for _, s := range services {
		ch, err := d.Watch(watch, s)
		if err != nil {
			return nil, err
		}
		select {
		case set := <-ch:
			all = append(all, set...)
		case <-time.After(registryWait):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return all, nil
}
