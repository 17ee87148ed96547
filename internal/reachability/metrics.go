package reachability

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// FrozenMetric registers the metric machinist_frozen, or returns the one that is registered already: whatever freezes
// something reports it there under its own reason.
func FrozenMetric(registerer prometheus.Registerer) (*prometheus.GaugeVec, error) {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "machinist_frozen",
		Help: "How much is frozen for safety, by the reason of the condition Frozen. ControlPlaneUnreachable is 1 while the whole process adds and exchanges no machines since one of its clusters is unreachable, ControlCredentialsRefused and TargetCredentialsRefused while it does so since that cluster refuses its credentials.",
	}, []string{"reason"})
	err := registerer.Register(gauge)
	if err == nil {
		return gauge, nil
	}
	if registered, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, ok := registered.ExistingCollector.(*prometheus.GaugeVec); ok {
			return existing, nil
		}
	}
	return nil, fmt.Errorf("register metric machinist_frozen: %w", err)
}
