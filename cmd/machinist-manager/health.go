package main

import (
	"fmt"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"machinist.dev/machinist/internal/health/healthcheck"
	"machinist.dev/machinist/internal/platform/process"
	"machinist.dev/machinist/internal/platform/validation"
	"machinist.dev/machinist/internal/platform/wiring"
)

func addHealth(op *process.Process, s *settings, serves func(namespace string) bool,
	metrics *healthcheck.Metrics) error {
	policy, err := s.health.Policy()
	if err != nil {
		return err
	}
	kinds, err := validation.ParseRemediationKinds(s.remediationKinds)
	if err != nil {
		return err
	}
	control, reach := op.Control(), op.Reachability()
	options := healthcheck.Options{
		Client: control.Client, LiveClient: control.LiveClient, Clock: clock.RealClock{},
		Recorder:   op.Manager().GetEventRecorder("machinist-machinehealthcheck"),
		StopReason: reach.StopReason, StableSince: reach.StableSince, OutageEnded: reach.OutageEnded,
		BuiltIn: policy, MeltdownThreshold: s.health.MeltdownThreshold, Metrics: metrics,
	}
	var nodes wiring.TargetEvents
	if target := op.Target(); target != nil {
		options.Nodes = &healthcheck.Nodes{CachedReader: target.Client, LiveReader: target.LiveClient,
			IsSynced: target.IsSynced}
		options.Remediators = &healthcheck.Remediators{Client: target.LiveClient, Kinds: kinds, ClusterID: op.ClusterID(),
			Serves: serves}
		nodes = targetEvents(target)
	}
	if err := healthcheck.New(options).Wiring().Add(op.Manager(), nodes); err != nil {
		return fmt.Errorf("add the health checks: %w", err)
	}
	return nil
}

// targetEvents returns a function that creates event sources for the target cluster.
func targetEvents(target *process.Cluster) wiring.TargetEvents {
	return func(object client.Object, keys handler.EventHandler, changes ...predicate.Predicate) source.Source {
		return process.Events(target, object, keys, changes...)
	}
}
