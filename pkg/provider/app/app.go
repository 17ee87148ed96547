package app

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"machinist.dev/machinist/internal/operator"
	"machinist.dev/machinist/pkg/provider"
)

// Provider is what makes one provider's process different from another's.
type Provider struct {
	// Name is the driver's name, such as "azure"; the process is called machinist-provider-<name>.
	Name string
	// AddFlags adds the flags of the driver; nil when it has none.
	AddFlags func(*pflag.FlagSet)
	// New makes the driver once the flags are parsed.
	New func() (provider.Driver, error)
}

// Main runs the process until SIGTERM or SIGINT and ends it: with code 0 after an orderly end, with another one and a
// message after an error, and with operator.ExitFenced when the leader's lease was lost.
func Main(p Provider) {
	if err := Command(p).Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// Command returns the process as a command, for a main of several.
func Command(p Provider) *cobra.Command {
	name := "machinist-provider-" + p.Name
	config := operator.DefaultConfig(name)
	settings := defaultSettings()
	cmd := &cobra.Command{
		Use:           name,
		Short:         fmt.Sprintf("Make and keep machines of the provider %s", p.Name),
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := operator.SignalContext(cmd.Context(), nil)
			defer stop()
			return run(ctx, config, settings, p)
		},
	}
	config.AddFlags(cmd.Flags())
	settings.addFlags(cmd.Flags())
	if p.AddFlags != nil {
		p.AddFlags(cmd.Flags())
	}
	return cmd
}

func run(ctx context.Context, config *operator.Config, settings *settings, p Provider) error {
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
	driver, err := p.New()
	if err != nil {
		return fmt.Errorf("make the driver: %w", err)
	}
	if driver.Name() != p.Name {
		return fmt.Errorf("the driver calls itself %q, its process %q", driver.Name(), p.Name)
	}
	op, err := operator.New(config, operatorOptions(log, settings))
	if err != nil {
		return err
	}
	return op.Run(ctx, func(ctx context.Context) error { return addControllers(ctx, op, settings, driver) })
}
