package worker

import (
	"context"

	"leasehold.dev/gpu/runner"
	"leasehold.dev/protos/errs"
)

// Lease is what ends a task from the broker's side.
type Lease interface {
	Revoked() <-chan struct{}
	RevokeErr() error // why, once Revoked is closed
}

// Bind ties task to what can end it: ctx, the lease, the broker, and end. The life that it returns ends with the first of
// them, which is its cause, and the task with it. Once the task is done, so that no kernel will touch the lease's pages
// again, after is called with the task's error, exactly once, on a goroutine that the link waits for: the place to retire
// the lease. The caller holds the link while it calls Bind, and calls end when it is through.
func (l *Link[B]) Bind(ctx context.Context, task *runner.Task, lease Lease, after func(error)) (life context.Context, end context.CancelCauseFunc) {
	life, end = context.WithCancelCause(ctx)
	l.held.Go(func() {
		select {
		case <-task.Done():
		case <-life.Done():
		case <-lease.Revoked():
			end(lease.RevokeErr())
		case <-l.Gone():
			end(errs.New(errs.Unavailable, "broker %s is gone", l.Facts.Broker))
		}
		if life.Err() != nil {
			task.Cancel(context.Cause(life))
		}
		<-task.Done()
		after(task.Err())
	})
	return life, end
}
