// Package mesh is what every process of the mesh does alike: identity, serving, discovery, telemetry, readiness, drain.
//
// A service's main parses flags into a [Config], and its Run is about thirty lines (see the package example):
//
//	func Run(ctx context.Context, c mesh.Config, own Settings) error {
//		s, err := mesh.New(ctx, c)                      // identity, listeners, telemetry, registry: all that can fail
//		if err != nil {
//			return err
//		}
//		defer s.Close()
//		brokers, err := s.Peers(ctx, "kvbroker")        // connections and breakers, following the registry
//		if err != nil {
//			return err
//		}
//		defer brokers.Close()
//		w := newWorker(own, brokers, s.Log, s.Meter)
//		prefillv1.RegisterPrefillServiceServer(s.GRPC(), w)
//		s.Allow(prefillv1.PrefillService_Run_FullMethodName, "router") // every method that has no rule is denied
//		s.Check("broker", w.attached)                   // not ready, and not listed, until this returns nil
//		s.OnDrain(w.finish)                             // after it left the registry, before the last calls end
//		return s.Run(ctx)
//	}
//
// Run serves, writes -addr-file, and is listed in the registry while all checks pass. When ctx ends it drains, in this
// order: /readyz and the health service say no; it leaves the registry; the OnDrain hooks; running calls get what is left
// of the drain time. Streams without an end must end themselves when [Server.Draining] closes.
//
// Detectors of a property say to [Server].Boundary that they looked, and what they found: see package boundary.
//
// With -audit-dir the process keeps an audit log (package audit), which s.Audit writes; while it cannot be written the
// process is not ready.
//
// Logs are JSON lines on stderr. Metrics are at /metrics of the admin address. No text of a tenant's is in either, nor in
// an error: errors reach logs.
package mesh
