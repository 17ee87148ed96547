package main

import (
	"fmt"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"machinist.dev/machinist/internal/operator"
	"machinist.dev/machinist/internal/reachability"
	"machinist.dev/machinist/internal/safety/overshoot"
)

// addOvershoot adds what freezes owners with too many machines.
func addOvershoot(op *operator.Operator, s *settings) error {
	frozen, err := reachability.FrozenMetric(metrics.Registry)
	if err != nil {
		return err
	}
	control := op.Control()
	reconciler := overshoot.New(overshoot.Options{
		Client: control.Client, Live: control.Live, Clock: clock.RealClock{},
		Recorder: op.Manager().GetEventRecorder("machinist-overshoot"), Limits: s.overshoot, Frozen: frozen,
	})
	if err := reconciler.Wiring().Add(op.Manager(), nil); err != nil {
		return fmt.Errorf("add the overshoot freeze: %w", err)
	}
	return nil
}
