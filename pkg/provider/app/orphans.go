package app

import (
	"fmt"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/health/orphans"
	"machinist.dev/machinist/internal/health/orphans/ledger"
	"machinist.dev/machinist/internal/machine/cloud"
	"machinist.dev/machinist/internal/platform/process"
)

// addOrphans adds the controller that removes orphans (instances without a Machine) to the process. The parameter
// checkInstance makes the Machine controller look up a Machine's instance. The parameter target is nil if there is no
// target cluster.
func addOrphans(op *process.Process, s *settings, driver *cloud.Cloud, checkInstance func(*v1beta1.Machine),
	target *orphans.Target) error {
	orphanMetrics, err := orphans.NewMetrics(metrics.Registry)
	if err != nil {
		return err
	}
	collector := orphans.New(orphans.Options{
		Rules:         s.orphanRules(op.ClusterID(), op.Namespace(), op.Shard()),
		Cloud:         driver,
		Client:        op.Control().Cache,
		LiveClient:    op.Control().LiveClient,
		Target:        target,
		Mismatch:      op.IdentityMismatch,
		Record:        op.IdentityRecord(),
		Ledger:        orphanBook(op),
		Reachability:  op.Reachability(),
		CheckInstance: checkInstance,
		Recorder:      op.Manager().GetEventRecorder("machinist-orphans"),
		Clock:         clock.RealClock{},
		Metrics:       orphanMetrics,
	})
	if err := collector.Wiring().Add(op.Manager(), nil); err != nil {
		return fmt.Errorf("add the controller that removes orphans: %w", err)
	}
	return nil
}

func orphanBook(op *process.Process) ledger.Store {
	return ledger.Store{Client: op.Control().LiveClient, Namespace: op.IdentityRecord().Namespace}
}
