package mesh

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"leasehold.dev/mesh/registry"
	"leasehold.dev/protos/errs"
)

const (
	readyEvery = time.Second     // how often the health service's answer is renewed
	leaveTime  = 2 * time.Second // most of the drain time that the registry gets
	cutTime    = 2 * time.Second // what calls that were cut off get to notice it
)

// Run serves until ctx ends, then drains: not ready, out of the registry, the hooks, the running calls. It returns nil
// when everything ended within the drain time, and Unavailable when calls were cut off. It is called once, and returns even if
// a handler ignores the end of its context; that is Internal, and the handler's goroutine is lost.
func (s *Server) Run(ctx context.Context) error {
	defer func() { _ = s.close() }()
	if err := s.rulesFit(); err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	admin, failed := newHTTP(s.mux), make(chan error, 2)
	defer func() { _ = admin.Close() }()
	served := make(chan struct{})
	go func() {
		defer close(served)
		failed <- errs.Mark(s.grpc.Serve(s.grpcLn), errs.Unavailable)
	}()
	defer func() {
		if !s.stuck {
			s.grpc.Stop()
			<-served
		}
	}()
	wg.Go(func() {
		if err := admin.Serve(s.adminLn); !errors.Is(err, http.ErrServerClosed) {
			failed <- errs.Mark(err, errs.Unavailable)
		}
	})
	if err := writeAddresses(s.conf.AddrFile, Addresses{GRPC: s.Addr(), Admin: s.AdminAddr()}); err != nil {
		return err
	}
	watching, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWatching()
	wg.Go(func() { s.watchReady(watching) })
	leave, err := s.join(watching)
	if err != nil {
		return err
	}
	s.Log.InfoContext(ctx, "serving", "grpc", s.Addr(), "admin", s.AdminAddr())
	select {
	case err := <-failed:
		return errors.Join(err, s.drain(leave))
	case <-ctx.Done():
		return s.drain(leave)
	}
}

// rulesFit refuses a rule for a method that no service has: it is a misspelt rule for one that is then denied to all.
func (s *Server) rulesFit() error {
	have := map[string]bool{}
	for service, info := range s.grpc.GetServiceInfo() {
		for _, m := range info.Methods {
			have["/"+service+"/"+m.Name] = true
		}
	}
	for _, m := range s.guard.Methods() {
		if !have[m] {
			return errs.New(errs.Internal, "a rule allows %s, which nothing serves", m)
		}
	}
	return nil
}

func (s *Server) join(ctx context.Context) (leave func(context.Context) error, err error) {
	if s.Registry == nil {
		return func(context.Context) error { return nil }, nil
	}
	in := registry.Instance{Service: s.conf.Service, ID: s.conf.ID, Address: s.Addr(), Meta: s.conf.Meta}
	if s.conf.Advertise != "" {
		in.Address = s.conf.Advertise
	}
	return s.Registry.Register(ctx, in, func(ctx context.Context) error { return s.ready.look(ctx).err() })
}

// watchReady keeps the health service's answer and logs each change of readiness.
func (s *Server) watchReady(ctx context.Context) {
	tick := time.NewTicker(readyEvery)
	defer tick.Stop()
	before := "not looked yet"
	for {
		err := s.ready.look(ctx).err()
		if ctx.Err() != nil {
			return
		}
		now, status := "", healthpb.HealthCheckResponse_SERVING
		if err != nil {
			now, status = err.Error(), healthpb.HealthCheckResponse_NOT_SERVING
		}
		s.health.SetServingStatus("", status)
		if now != before {
			s.Log.InfoContext(ctx, "readiness", "ready", err == nil, "reason", now)
			before = now
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (s *Server) drain(leave func(context.Context) error) error {
	s.Log.Info("draining", "time", s.conf.Drain.String())
	ctx, cancel := context.WithTimeout(context.Background(), s.conf.Drain)
	defer cancel()
	s.ready.drain()
	s.health.Shutdown()
	close(s.draining)
	out, cancelOut := context.WithTimeout(ctx, leaveTime)
	defer cancelOut()
	if err := leave(out); err != nil {
		s.Log.Warn("left without telling the registry; the entry goes with its TTL", "error", err.Error())
	}
	s.mu.Lock()
	hooks := s.hooks
	s.mu.Unlock()
	for _, f := range hooks {
		f(ctx)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.GracefulStop()
	}()
	select {
	case <-done:
		s.Log.Info("drained")
		return nil
	case <-ctx.Done():
	}
	cut := make(chan struct{})
	go func() { // Stop waits for GracefulStop, which waits for the handlers
		defer close(cut)
		s.grpc.Stop()
		<-done
	}()
	timer := time.NewTimer(cutTime)
	defer timer.Stop()
	select {
	case <-cut:
		return errs.New(errs.Unavailable, "drain: calls were still running after %v and were cut off", s.conf.Drain)
	case <-timer.C:
		s.stuck = true
		return errs.New(errs.Internal, "drain: a handler still ran %v after its context's end", cutTime)
	}
}

// Close gives back what New opened. Run does it by itself, but for the audit log, which takes records of what the process
// still gives back after Run; so a process calls Close as the last thing it does, also when Run was never called.
func (s *Server) Close() error { return errors.Join(s.close(), s.closeAudit()) }

func (s *Server) closeAudit() error {
	err := s.Audit.Close()
	if err != nil {
		s.Log.Error("audit", "error", err)
	}
	return err
}

func (s *Server) release() error {
	var err error
	if s.grpc != nil && !s.stuck {
		s.grpc.Stop()
	}
	for _, ln := range []interface{ Close() error }{s.grpcLn, s.adminLn} {
		if ln != nil {
			_ = ln.Close() // closed before, by the server that served it
		}
	}
	if s.faults != nil {
		_ = s.faults.Close()
	}
	if s.discovery != nil {
		err = s.discovery.Close()
	}
	if s.telemetry != nil {
		ctx, cancel := context.WithTimeout(context.Background(), leaveTime)
		defer cancel()
		err = errors.Join(err, s.telemetry.Close(ctx))
	}
	return err
}
