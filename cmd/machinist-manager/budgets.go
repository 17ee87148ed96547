package main

import (
	"fmt"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/fleet/disruption/report"
	"machinist.dev/machinist/internal/platform/process"
)

func addBudgets(op *process.Process, ledger *disruption.Ledger) error {
	control := op.Control()
	counts, err := report.NewMetrics(metrics.Registry, control.Cache, ledger, clock.RealClock{})
	if err != nil {
		return err
	}
	reporter := report.New(report.Options{
		Client: control.Client, Clock: clock.RealClock{}, Metrics: counts,
		Recorder: op.Manager().GetEventRecorder("machinist-disruption"),
	})
	if err := reporter.Wiring().Add(op.Manager(), nil); err != nil {
		return fmt.Errorf("add the report of disruption budgets: %w", err)
	}
	return nil
}
