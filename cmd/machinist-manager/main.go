// Command machinist-manager runs the controllers of MachineDeployments, MachineSets, MachineHealthChecks and
// MachineDisruptionBudgets. The command needs no access to a cloud.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	_ "time/tzdata" // Time zones of disruption windows work in images without a time zone database.

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/admission"
	"machinist.dev/machinist/internal/fleet/autoscaling"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
	"machinist.dev/machinist/internal/fleet/machineset"
	"machinist.dev/machinist/internal/health/healthcheck"
	"machinist.dev/machinist/internal/health/overshoot"
	"machinist.dev/machinist/internal/platform/freshness"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/process"
	"machinist.dev/machinist/internal/platform/reachability"
	"machinist.dev/machinist/internal/platform/tracing"
	"machinist.dev/machinist/internal/platform/validation"
	"machinist.dev/machinist/internal/platform/version"
	"machinist.dev/machinist/internal/platform/versionskew"
	"machinist.dev/machinist/internal/platform/wiring"
)

func main() {
	if err := command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	const name = "machinist-manager"
	config, settings := process.DefaultConfig(name), &settings{}
	cmd := &cobra.Command{
		Use:           name,
		Version:       version.String(),
		Short:         "Run the controllers of MachineDeployments, MachineSets, health checks and disruption budgets",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			process.SpareMemory()
			ctx, stop := process.SignalContext(cmd.Context(), nil)
			defer stop()
			return run(ctx, config, settings, cmd.Flags())
		},
	}
	config.AddFlags(cmd.Flags())
	config.AddShardFlags(cmd.Flags())
	settings.addFlags(cmd.Flags())
	process.AddPredecessorFlags(cmd.Flags())
	return cmd
}

func run(ctx context.Context, config *process.Config, s *settings, flags *pflag.FlagSet) error {
	if err := errors.Join(config.Validate(), s.validate()); err != nil {
		return err
	}
	log, err := config.Logger()
	if err != nil {
		return err
	}
	process.LogPredecessorFlags(log, flags)
	tracer, err := tracing.FromEnvironment(tracing.Options{Service: config.Name, Version: version.Release(),
		Registerer: metrics.Registry, Log: log.WithName("tracing")})
	if err != nil {
		return err
	}
	o := options(log)
	o.Flush = tracer.Shutdown
	if o.WebhookServer, err = s.webhook.Server(); err != nil {
		return err
	}
	op, err := process.New(config, o)
	if err != nil {
		return err
	}
	return op.Run(ctx, func(ctx context.Context) error {
		webhook := admission.Process{
			Name: config.Name, Namespace: op.OwnNamespace(), OnlyNamespace: config.Namespace,
			Manager: op.Manager(), Mutating: admission.StoreReplicas{}, Writer: op.Control().LiveClient, Log: log,
		}
		core := admission.NewCoreWebhook(o.Scheme, op.AllNamespacesReader(), op.Control().LiveClient)
		if target := op.Target(); target != nil {
			core.ServerVersion = versionskew.NewServer(target.ServerVersion, clock.RealClock{}).Version
		}
		if core.RemediationKinds, err = validation.ParseRemediationKinds(s.remediationKinds); err != nil {
			return err
		}
		if err := s.webhook.Serve(ctx, webhook, core); err != nil {
			return err
		}
		serves := func(namespace string) bool {
			return (config.Namespace == "" || config.Namespace == namespace) && config.Shard().Owns(namespace)
		}
		return addControllers(ctx, op, s, tracer, serves, core.ServerVersion)
	})
}

func options(log logr.Logger) process.Options {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1beta1.AddToScheme(scheme))
	return process.Options{
		Scheme: scheme,
		ControlKinds: []process.Kind{
			{Object: &v1beta1.MachineDeployment{}},
			{Object: &v1beta1.MachineSet{}},
			{Object: &v1beta1.Machine{}},
			{Object: &v1beta1.MachineClass{}},
			{Object: &v1beta1.MachineHealthCheck{}},
			{Object: &v1beta1.MachineDisruptionBudget{}},
		},
		TargetKinds: []process.Kind{{Object: &corev1.Node{}, Transform: process.TransformNode}},
		Logger:      log,
	}
}

// addControllers adds the controllers. The function serves reports whether the process is responsible for the
// Machines of a namespace. The parameter serverVersion is nil if there is no target cluster.
func addControllers(ctx context.Context, op *process.Process, s *settings, tracer *tracing.Tracer,
	serves func(namespace string) bool, serverVersion func(context.Context) string) error {
	mgr, control := op.Manager(), op.Control()
	if err := index.RegisterOwned(ctx, control.Cache); err != nil {
		return err
	}
	if err := index.RegisterSets(ctx, control.Cache); err != nil {
		return err
	}
	healthMetrics, err := healthcheck.NewMetrics(metrics.Registry, control.Cache)
	if err != nil {
		return err
	}
	setMetrics, err := machineset.NewMetrics(metrics.Registry, control.Cache)
	if err != nil {
		return err
	}
	ledger := disruption.New(disruption.Options{Client: control.Client, LiveReader: control.LiveClient,
		Clock:        clock.RealClock{},
		CacheVersion: wiring.CacheVersion(mgr, &v1beta1.Machine{})})
	decided := &freshness.Decisions{}
	sets := machineset.New(machineset.Options{
		Client: control.Client, LiveReader: control.LiveClient, Clock: clock.RealClock{},
		Recorder: mgr.GetEventRecorder("machinist-machineset"), Concurrency: s.concurrentSets,
		StopReason: func() (r machineset.ConditionReason) { r.Reason, r.Message = op.Reachability().StopReason(); return r },
		Remediated: healthMetrics.CountReplacement, Metrics: setMetrics, Ledger: ledger, Decisions: decided, Tracer: tracer,
	})
	if err := sets.Register(mgr); err != nil {
		return fmt.Errorf("add the machine set controller: %w", err)
	}
	deploymentMetrics, err := machinedeployment.NewMetrics(metrics.Registry, control.Cache)
	if err != nil {
		return err
	}
	deployments := machinedeployment.New(machinedeployment.Options{
		Client: control.Client, LiveReader: control.LiveClient, Clock: clock.RealClock{},
		Recorder: mgr.GetEventRecorder("machinist-machinedeployment"), Concurrency: s.concurrentDeployments,
		StopReason: op.Reachability().StopReason, ServerVersion: serverVersion, Metrics: deploymentMetrics, Ledger: ledger,
		Decisions: decided, Tracer: tracer, NoOutdatedTaints: !s.outdatedNodeTaints,
	})
	if err := deployments.Register(mgr); err != nil {
		return fmt.Errorf("add the machine deployment controller: %w", err)
	}
	if err := addOvershoot(op, s); err != nil {
		return err
	}
	if err := autoscaling.RegisterIndexes(ctx, control.Cache); err != nil {
		return fmt.Errorf("add the indexes of node groups: %w", err)
	}
	groups := autoscaling.New(autoscaling.Options{Client: control.Client})
	if err := groups.Wiring().Add(mgr, nil); err != nil {
		return err
	}
	if err := addBudgets(op, ledger); err != nil {
		return err
	}
	return addHealth(op, s, serves, healthMetrics)
}

func addOvershoot(op *process.Process, s *settings) error {
	frozen, err := reachability.FrozenMetric(metrics.Registry)
	if err != nil {
		return err
	}
	control := op.Control()
	reconciler := overshoot.New(overshoot.Options{
		Client: control.Client, LiveReader: control.LiveClient, Clock: clock.RealClock{},
		Recorder: op.Manager().GetEventRecorder("machinist-overshoot"), Limits: s.overshoot, FrozenGauge: frozen,
	})
	if err := reconciler.Wiring().Add(op.Manager(), nil); err != nil {
		return fmt.Errorf("add the overshoot freeze: %w", err)
	}
	return nil
}
