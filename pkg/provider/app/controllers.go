package app

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/bootstrap/approval"
	"machinist.dev/machinist/internal/class/machineclass"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/class/preflight"
	"machinist.dev/machinist/internal/health/orphans"
	"machinist.dev/machinist/internal/machine"
	"machinist.dev/machinist/internal/machine/cloud"
	"machinist.dev/machinist/internal/machine/drain"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/process"
	"machinist.dev/machinist/internal/platform/queueing"
	"machinist.dev/machinist/internal/platform/tracing"
	"machinist.dev/machinist/internal/platform/wiring"
	"machinist.dev/machinist/pkg/provider"
)

func operatorOptions(log logr.Logger, s *settings) process.Options {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1beta1.AddToScheme(scheme))
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	secrets := process.Kind{Object: metadata, Transform: process.TransformMetadata}
	if !slices.Contains(s.secretNamespaces, allNamespaces) {
		secrets.Namespaces = s.secretNamespaces
	}
	target := []process.Kind{{Object: &corev1.Node{}, Transform: process.TransformNode},
		{Object: &policyv1.PodDisruptionBudget{}}}
	if s.approveKubeletCSRs {
		target = append(target, process.Kind{Object: &certificatesv1.CertificateSigningRequest{},
			Transform: approval.Transform})
	}
	return process.Options{
		Scheme: scheme,
		ControlKinds: []process.Kind{
			{Object: &v1beta1.Machine{}},
			{Object: &v1beta1.MachineClass{}},
			secrets,
			{Object: wiring.MachineSets()},
		},
		TargetKinds: target,
		Logger:      log,
	}
}

func addControllers(ctx context.Context, op *process.Process, s *settings, driver provider.Driver,
	tracer *tracing.Tracer) error {
	mgr, control, realClock := op.Manager(), op.Control(), clock.RealClock{}
	if err := index.RegisterMachines(ctx, control.Cache); err != nil {
		return err
	}
	if err := resolve.RegisterIndexes(ctx, control.Cache); err != nil {
		return err
	}
	cloudMetrics, err := cloud.NewMetrics(metrics.Registry, driver.Name())
	if err != nil {
		return err
	}
	cloudOptions := cloud.Options{Driver: driver, Fence: op.Fence().Check, Metrics: cloudMetrics, Clock: realClock,
		Tracer: tracer}
	if limiter := s.limiter(); limiter != nil {
		cloudOptions.Limiter = limiter
	}
	guarded := cloud.New(cloudOptions)
	resolver := &resolve.Resolver{Classes: control.Client, Secrets: resolve.NewSharedReader(control.LiveClient)}
	machineMetrics, err := machine.NewMetrics(metrics.Registry, driver.Name(), control.Cache, s.requireTypeVersion)
	if err != nil {
		return err
	}

	signals, err := s.interruptions.Signals()
	if err != nil {
		return err
	}
	machines := machine.Options{
		Cloud:        guarded,
		ClusterID:    op.ClusterID(),
		Client:       control.Client,
		LiveReader:   control.LiveClient,
		Classes:      resolver,
		Reachability: op.Reachability(),
		Recorder:     mgr.GetEventRecorder("machinist-machine"),
		Clock:        realClock,
		Concurrency:  s.concurrentMachines,
		Metrics:      machineMetrics,
		Tracer:       tracer,

		PreserveTimeout: s.preserveTimeout,
		PreserveLimit:   s.preserveLimit,
		Signals:         signals,

		RequireTypeVersion: s.requireTypeVersion,

		ForceDeleted: orphans.ForceDeletedBook{Book: orphanBook(op), Provider: driver.Name(),
			Rules: s.orphanRules(op.ClusterID(), op.Namespace(), op.Shard())},
	}
	if s.maxInFlightCreates > 0 {
		machines.Slots = queueing.NewSlots(s.maxInFlightCreates)
	}
	if _, ok := driver.(provider.Power); ok {
		machines.Power = guarded
	}
	if _, ok := driver.(provider.Joiner); ok {
		machines.Joiner = guarded
	}
	if _, ok := driver.(provider.Interrupter); ok {
		machines.Interrupter = guarded
	}
	var (
		targetEvents  wiring.TargetEvents
		drainTriggers source.Source
		orphanTarget  *orphans.Target
		joins         *preflight.Monitor
	)
	if target := op.Target(); target != nil {
		if err := index.RegisterTarget(ctx, target.Cache); err != nil {
			return err
		}
		api, err := s.targetAPI(target.LoadedConfig)
		if err != nil {
			return err
		}
		evict, err := drain.EvictWith(target.Config, nil)
		if err != nil {
			return err
		}
		drainOptions := drain.Options{
			Signals:      signals,
			Target:       target.LiveClient,
			Evict:        evict,
			Clock:        realClock,
			Workers:      s.concurrentDrains,
			Metrics:      metrics.Registry,
			BudgetReader: target.Client,
			Epoch:        op.Reachability().TargetEpoch,
		}
		drains := drain.New(drainOptions)
		targetEvents = func(object client.Object, keys handler.EventHandler, changes ...predicate.Predicate) source.Source {
			return process.Events(target, object, keys, changes...)
		}
		if err := drains.Register(mgr, targetEvents); err != nil {
			return err
		}
		if orphanTarget, err = addOrphanDrains(mgr, target, drainOptions, targetEvents); err != nil {
			return err
		}
		machines.Drainer = drains
		machines.Target = &machine.Target{Nodes: target.Client, LiveClient: target.LiveClient, API: api,
			TokenGroups: s.tokenGroups}
		joins = monitorJoins(op, target, api, realClock)
		drainTriggers = drains.Triggers()
		if s.approveKubeletCSRs {
			if err := addApproval(ctx, op, s, guarded, resolver, targetEvents); err != nil {
				return fmt.Errorf("add the controller that approves kubelet certificates: %w", err)
			}
		}
	}
	machines.MachineCacheVersion = wiring.CacheVersion(mgr, &v1beta1.Machine{})
	reconciler := machine.New(machines)
	if err := reconciler.Wiring(control.Cache, drainTriggers).Add(mgr, targetEvents); err != nil {
		return err
	}
	if machines.Interrupter != nil {
		if err := reconciler.NoticesWiring().Add(mgr, nil); err != nil {
			return fmt.Errorf("add the controller for interruption notices: %w", err)
		}
	}
	classMetrics, err := machineclass.NewMetrics(metrics.Registry, driver.Name(), control.Cache)
	if err != nil {
		return err
	}
	classes := machineclass.New(machineclass.Options{
		Driver: guarded, Client: control.Client, LiveClient: control.LiveClient,
		Recorder: mgr.GetEventRecorder("machinist-machineclass"), Clock: realClock, Concurrency: s.concurrentClasses,
		Metrics: classMetrics, JoinMonitor: joins,
	})
	if err := classes.Register(mgr); err != nil {
		return fmt.Errorf("add the MachineClass controller: %w", err)
	}
	if joins != nil {
		if err := mgr.Add(joins); err != nil {
			return fmt.Errorf("add the checks of what machines need to join: %w", err)
		}
	}
	return addOrphans(op, s, guarded, reconciler.CheckInstance, orphanTarget)
}

// addOrphanDrains adds the controller that drains Nodes without a Machine. A separate controller is necessary: the
// Machine reconciler cancels every drain in the other controller that has no Machine.
func addOrphanDrains(mgr manager.Manager, target *process.Cluster, o drain.Options,
	events wiring.TargetEvents) (*orphans.Target, error) {
	o.Metrics = nil // The drains of Machines register the metrics already.
	drains := drain.New(o)
	table := drains.Wiring()
	table.Name = "drain-orphans"
	if err := table.Add(mgr, events); err != nil {
		return nil, fmt.Errorf("add the controller that drains orphans: %w", err)
	}
	return &orphans.Target{Nodes: target.Cache, LiveClient: target.LiveClient, Drainer: drains, Epoch: o.Epoch}, nil
}

func addApproval(ctx context.Context, op *process.Process, s *settings, driver *cloud.Cloud, classes approval.Classes,
	events wiring.TargetEvents) error {
	mgr, control, target := op.Manager(), op.Control(), op.Target()
	if err := approval.RegisterIndexes(ctx, target.Cache); err != nil {
		return err
	}
	guestRanges, err := s.guestRanges()
	if err != nil {
		return err
	}
	reserved, err := s.reservedNames(target.Config)
	if err != nil {
		return err
	}
	approver := approval.New(approval.Options{
		Provider:   driver.Name(),
		ClusterID:  op.ClusterID(),
		Machines:   control.Cache,
		LiveClient: control.LiveClient,
		Cache:      target.Cache,
		Target:     target.LiveClient,
		Classes:    classes,
		Cloud:      driver,
		Recorder:   mgr.GetEventRecorder("machinist-approval"),
		Clock:      clock.RealClock{},

		GuestRanges:   guestRanges,
		ReservedNames: reserved,
	})
	for _, table := range approver.Wiring(target.IsSynced) {
		if err := table.Add(mgr, events); err != nil {
			return err
		}
	}
	return nil
}

// joinTimeout is how long a machine may wait for its Node. If a machine waits longer, a failed check of the target
// cluster counts as the cause.
const joinTimeout = time.Minute

// monitorJoins returns a monitor that periodically checks whether machines can join the target cluster.
func monitorJoins(op *process.Process, target *process.Cluster, api func() (machine.Endpoint, error),
	now clock.WithTicker) *preflight.Monitor {
	return &preflight.Monitor{
		Clock: now,
		Check: func(ctx context.Context) ([]preflight.Finding, error) {
			endpoint, err := api()
			if err != nil {
				return nil, err
			}
			return preflight.Join{Target: target.LiveClient, Endpoint: endpoint.URL, CABundle: endpoint.CABundle,
				Service: os.Getenv("KUBERNETES_SERVICE_HOST"), Now: now.Now}.Findings(ctx)
		},
		Judge: func(ctx context.Context) preflight.Verdict {
			machines := &v1beta1.MachineList{}
			if err := op.Control().Cache.List(ctx, machines, client.UnsafeDisableDeepCopy); err != nil {
				return preflight.VerdictOpen
			}
			verdict := preflight.VerdictOpen
			for i := range machines.Items {
				m := &machines.Items[i]
				if m.Status.NodeRef != nil {
					return preflight.VerdictRefuted
				}
				c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRegistered)
				if c != nil && c.Reason == v1beta1.ReasonWaitingForNode && now.Since(c.LastTransitionTime.Time) > joinTimeout {
					verdict = preflight.VerdictProven
				}
			}
			return verdict
		},
	}
}
