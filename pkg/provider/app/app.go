package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"machinist.dev/machinist/internal/admission"
	"machinist.dev/machinist/internal/platform/process"
	"machinist.dev/machinist/internal/platform/tracing"
	"machinist.dev/machinist/internal/platform/version"
	"machinist.dev/machinist/pkg/provider"
)

// Provider describes the process of one provider.
type Provider struct {
	// Name is the driver's name, such as "azure". The process is called machinist-provider-<name>. Required.
	Name string
	// AddFlags adds the flags of the driver. If AddFlags is nil, the driver has no flags. The flags of the process are
	// already registered.
	AddFlags func(*pflag.FlagSet)
	// New creates the driver after the flags were parsed. It returns an error if a flag is missing or wrong. It must
	// not fail if the cloud does not answer, because the calls of the driver report this. Required.
	New func() (provider.Driver, error)
	// Type is any value of the driver's type, such as (*Driver)(nil). If the type implements provider.Importer, the
	// process has the subcommand migrator.
	Type provider.Driver
	// Warnings returns warnings about the flags. The process logs the warnings when it starts. Nil means that there
	// are no warnings.
	Warnings func() []string
}

// Main runs the process until SIGTERM or SIGINT. Main exits with code 0 after an orderly shutdown, with code 1 after
// an error, and with process.ExitFenced after it has lost its Lease.
func Main(p Provider) {
	if err := Command(p).Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// Command returns the process as a command, for programs that contain several processes.
func Command(p Provider) *cobra.Command {
	name := "machinist-provider-" + p.Name
	config := process.DefaultConfig(name)
	settings := defaultSettings()
	cmd := &cobra.Command{
		Use:           name,
		Version:       version.String(),
		Short:         fmt.Sprintf("Create and manage machines of the provider %s", p.Name),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			process.SpareMemory()
			ctx, stop := process.SignalContext(cmd.Context(), nil)
			defer stop()
			return run(ctx, config, settings, p, cmd.Flags())
		},
	}
	config.AddFlags(cmd.Flags())
	config.AddShardFlags(cmd.Flags())
	settings.addFlags(cmd.Flags())
	if p.AddFlags != nil {
		p.AddFlags(cmd.Flags())
	}
	process.AddPredecessorFlags(cmd.Flags())
	cmd.CompletionOptions.DisableDefaultCmd = true
	if _, imports := p.Type.(provider.Importer); imports {
		cmd.AddCommand(migratorCommand(p))
	}
	return cmd
}

func run(ctx context.Context, config *process.Config, settings *settings, p Provider, flags *pflag.FlagSet) error {
	if err := config.Validate(); err != nil {
		return err
	}
	if err := settings.validate(); err != nil {
		return err
	}
	log, err := config.Logger()
	if err != nil {
		return err
	}
	process.LogPredecessorFlags(log, flags)
	driver, err := p.driver()
	if err != nil {
		return err
	}
	if closer, ok := driver.(io.Closer); ok {
		defer func() {
			if err := closer.Close(); err != nil {
				log.Info("Failed to close the driver", "cause", err.Error())
			}
		}()
	}
	if p.Warnings != nil {
		for _, warning := range p.Warnings() {
			log.Info("Warning about the flags", "warning", warning)
		}
	}
	tracer, err := tracing.FromEnvironment(tracing.Options{Service: config.Name, Version: version.Release(),
		Registerer: metrics.Registry, Log: log.WithName("tracing")})
	if err != nil {
		return err
	}
	o := operatorOptions(log, settings)
	o.Flush = tracer.Shutdown
	if o.WebhookServer, err = settings.webhook.Server(); err != nil {
		return err
	}
	op, err := process.New(config, o)
	if err != nil {
		return err
	}
	return op.Run(ctx, func(ctx context.Context) error {
		webhook := admission.Process{
			Name: config.Name, Namespace: op.OwnNamespace(), OnlyNamespace: config.Namespace,
			Manager: op.Manager(), Writer: op.Control().LiveClient, Log: log,
		}
		if err := settings.webhook.Serve(ctx, webhook, admission.NewProvider(o.Scheme, driver)); err != nil {
			return err
		}
		return addControllers(ctx, op, settings, driver, tracer)
	})
}

// driver creates the driver and checks it, so that the process reports a broken driver at startup and not at the first
// machine.
func (p Provider) driver() (provider.Driver, error) {
	if p.New == nil {
		return nil, errors.New("app.Provider.New is required")
	}
	driver, err := p.New()
	if err != nil {
		return nil, fmt.Errorf("create the driver: %w", err)
	}
	if name := driver.Name(); name != p.Name {
		return nil, fmt.Errorf("driver has the name %q, but its process has the name %q", name, p.Name)
	}
	if problems := validation.IsDNS1123Label(p.Name); len(problems) > 0 {
		return nil, fmt.Errorf("driver name %q is not a DNS label: %s", p.Name, strings.Join(problems, "; "))
	}
	if d := provider.CallTimeout(driver); d <= 0 {
		return nil, fmt.Errorf("driver has the CallTimeout %s; it must be positive", d)
	}
	if d := provider.CreateSettle(driver); d <= 0 {
		return nil, fmt.Errorf("driver has the CreateSettle %s; it must be positive", d)
	}
	return driver, nil
}
