//go:build faults

package mesh

import (
	"context"
	"os"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"leasehold.dev/protos/errs"
	"leasehold.dev/protos/fault"
)

// Metrics of a faults build; a release build has neither.
const (
	MetricFaultsBuild = "leasehold_faults_build"     // gauge: 1
	MetricGuardOff    = "leasehold_guard_turned_off" // gauge by guard: 1 while it is off
)

// openFaults says loudly what this build is, and opens its control socket.
func (s *Server) openFaults() error {
	s.Log.Error("FAULTS BUILD: this program can be broken on purpose, and its guards turned off: never serve tenants with it",
		"control", os.Getenv(fault.Environ))
	_, err := s.Meter.Int64ObservableGauge(MetricFaultsBuild, metric.WithDescription("1: this program can be broken on purpose"),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(1)
			return nil
		}))
	if err != nil {
		return errs.Mark(err, errs.Internal)
	}
	_, err = s.Meter.Int64ObservableGauge(MetricGuardOff, metric.WithDescription("1 while the guard is turned off"),
		metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
			for _, g := range fault.Guards() {
				o.Observe(number(fault.Off(g)), metric.WithAttributes(attribute.String("guard", string(g))))
			}
			return nil
		}))
	if err != nil {
		return errs.Mark(err, errs.Internal)
	}
	c, err := fault.Listen()
	if err != nil {
		return errs.Mark(err, errs.Invalid)
	}
	if c != nil {
		s.faults = c
	}
	return nil
}
