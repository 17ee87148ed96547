// Command machinist-operator installs the provider processes that Provider objects declare.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/install/installer"
	"machinist.dev/machinist/internal/platform/process"
	"machinist.dev/machinist/internal/platform/version"
)

func main() {
	if err := command().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func command() *cobra.Command {
	config := defaultConfig()
	cmd := &cobra.Command{
		Use:           installer.Name,
		Version:       version.String(),
		Short:         "Install the provider processes that Provider objects declare",
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			process.SpareMemory()
			ctx, stop := process.SignalContext(cmd.Context(), nil)
			defer stop()
			if err := config.Validate(); err != nil {
				return err
			}
			log, err := config.Logger()
			if err != nil {
				return err
			}
			return run(ctx, config, log)
		},
	}
	config.AddProcessFlags(cmd.Flags())
	return cmd
}

func defaultConfig() *process.Config {
	config := process.DefaultConfig(installer.Name)
	// Only the installed processes use target clusters.
	config.TargetKubeconfig = process.NoCluster
	return config
}

func run(ctx context.Context, config *process.Config, log logr.Logger) error {
	op, err := process.New(config, options(log))
	if err != nil {
		return err
	}
	return op.Run(ctx, func(context.Context) error {
		counted, err := installer.NewMetrics(metrics.Registry, op.Control().Cache)
		if err != nil {
			return err
		}
		return installer.New(installer.Options{
			Client: op.Control().Client, LiveClient: op.Control().LiveClient, Render: render, Namespace: op.OwnNamespace(),
			Recorder: op.Manager().GetEventRecorder(installer.Name), Clock: clock.RealClock{}, Metrics: counted,
		}).Register(op.Manager())
	})
}

func options(log logr.Logger) process.Options {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(v1beta1.AddToScheme(scheme))
	kinds := []process.Kind{{Object: &v1beta1.Provider{}}}
	for _, object := range installer.Kinds() {
		kinds = append(kinds, process.Kind{Object: object, Transform: process.TransformMetadata,
			Labels: installer.Selector()})
	}
	return process.Options{Scheme: scheme, ControlKinds: kinds, NoClusterID: true, Logger: log}
}
