package demo

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/internal/platform/version"
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
		Use:     programOf(provider),
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
				return runDemoOf(wanted)
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
		"run a tour (scale up, roll to another class, scale down, delete) and end; fail if a step does or something is left")
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

// programOf is the name of the program that is a provider's demo.
func programOf(provider string) string {
	if provider == Sim {
		return "machinist-demo"
	}
	return "machinist-demo-" + provider
}

// runDemoOf replaces this process by the program of another provider's demo, with the same arguments: signals, the exit
// status and what it prints are then its own.
func runDemoOf(provider string) error {
	name := programOf(provider)
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the folder of this program: %w", err)
	}
	path := filepath.Join(filepath.Dir(self), name)
	if _, err := os.Stat(path); provider != filepath.Base(provider) || path == self || err != nil {
		return fmt.Errorf("--provider is %q; there is no program %s of that provider beside this one (make build)",
			provider, name)
	}
	if err := syscall.Exec(path, append([]string{path}, os.Args[1:]...), os.Environ()); err != nil {
		return fmt.Errorf("run %s: %w", path, err)
	}
	return nil
}
