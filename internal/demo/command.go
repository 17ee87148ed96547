package demo

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/internal/stack"
	"machinist.dev/machinist/internal/version"
)

// Sim is the name of the simulated cloud, which the demo has itself.
const Sim = "sim"

// Main runs Command as a program.
func Main(provider string, backend stack.Backend) {
	// The clients' own logs are for processes, not for people at a terminal.
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := Command(provider, backend).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// Command is the demo's command line. What it shows runs on a cloud of the name provider; backend is nil for Sim. The
// demo of any other provider is a program of its own, machinist-demo-<provider>, which is run in place of this one.
func Command(provider string, backend stack.Backend) *cobra.Command {
	o := Options{Backend: backend}
	wanted := provider
	cmd := &cobra.Command{
		Use:     "machinist-demo",
		Version: version.String(),
		Short:   "Run everything on this machine with a sample fleet",
		Long: `Run a real control plane, a cloud in memory, Machinist's two processes and a sample fleet as child processes on
loopback, show the fleet, and stay up until Ctrl-C.

The control plane's programs come from the cache that "make controlplane" fills.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wanted != provider {
				return runDemoOf(cmd.Context(), wanted)
			}
			o.Out = cmd.OutOrStdout()
			if f, ok := o.Out.(*os.File); ok {
				o.Terminal = term.IsTerminal(int(f.Fd()))
			}
			return Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.Once, "once", false,
		"run a tour (3 machines, 10, another class, 2, none) and end; fail if a step does or something is left")
	flags.StringVar(&o.Scenario, "scenario", "",
		"play a story about the fleet and end; fail if a step does or something is left: "+
			strings.Join(ScenarioNames(), ", "))
	flags.BoolVar(&o.Bare, "bare", false,
		"run the control plane and the simulated cloud only, and print how to run the two processes by hand")
	flags.BoolVar(&o.SeparateTarget, "separate-target", false, "run a second control plane as the target cluster")
	flags.StringVar(&wanted, "provider", provider,
		"whose machines: sim, the simulated cloud's, or another one, whose program machinist-demo-<provider> is beside this one")
	flags.StringVar(&o.Dir, "dir", "", "an empty or new folder to keep logs and data in; by default they go with the demo")
	cmd.MarkFlagsMutuallyExclusive("once", "bare", "scenario")
	return cmd
}

// runDemoOf runs the program of another provider's demo, with the same flags, until it ends.
func runDemoOf(ctx context.Context, provider string) error {
	name := "machinist-demo-" + provider
	if provider == Sim {
		name = "machinist-demo"
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the folder of this program: %w", err)
	}
	path := filepath.Join(filepath.Dir(self), name)
	if _, err := os.Stat(path); provider != filepath.Base(provider) || err != nil {
		return fmt.Errorf("--provider is %q; there is no program %s beside this one (make build)", provider, name)
	}
	other := exec.CommandContext(ctx, path, os.Args[1:]...)
	other.Cancel = func() error { return other.Process.Signal(os.Interrupt) } // It takes everything down itself.
	other.Stdin, other.Stdout, other.Stderr = os.Stdin, os.Stdout, os.Stderr
	return other.Run()
}
