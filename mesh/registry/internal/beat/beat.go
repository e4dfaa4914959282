// Package beat keeps an entry alive in a registry for as long as the process says that it is well.
package beat

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"leasehold.dev/mesh/registry/internal/retry"
)

// soon is the part of Every after which an ill process beats again, so that it is listed as passing when it is, and whoever
// starts a mesh and looks at it sees what the mesh says of itself.
const soon = 10

// Beat is how one entry is kept.
type Beat struct {
	Every time.Duration
	Log   *slog.Logger
	// Check is the process's own look at itself.
	Check func(context.Context) error
	// Send tells the registry the outcome of Check. It registers where that is needed; after an error it is called again
	// soon, with a new Check.
	Send func(ctx context.Context, ill error) error
	// Remove takes the entry out. It is called once, after the last Send returned.
	Remove func(ctx context.Context) error
}

// Start beats until leave is called or ctx ends. leave joins the beats, removes the entry, and does nothing the second time.
func (b Beat) Start(ctx context.Context) (leave func(context.Context) error) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.run(ctx)
	}()
	var once sync.Once
	return func(ctx context.Context) (err error) {
		once.Do(func() {
			cancel()
			<-done
			err = b.Remove(ctx)
		})
		return err
	}
}

func (b Beat) run(ctx context.Context) {
	back, away := retry.Backoff{Min: b.Every / soon, Max: b.Every}, false
	for {
		ill, err := b.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if away != (err != nil) {
			away = err != nil
			if away {
				b.Log.WarnContext(ctx, "registry is away", "error", err.Error())
			} else {
				b.Log.InfoContext(ctx, "registry is back")
			}
		}
		if err != nil {
			if back.Wait(ctx) != nil {
				return
			}
			continue
		}
		back.Reset()
		pause := b.Every
		if ill != nil {
			pause /= soon
		}
		t := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// once bounds a beat, so that a registry that hangs is one that is away.
func (b Beat) once(ctx context.Context) (ill, err error) {
	ill = b.Check(ctx)
	ctx, cancel := context.WithTimeout(ctx, 2*b.Every)
	defer cancel()
	return ill, b.Send(ctx, ill)
}
