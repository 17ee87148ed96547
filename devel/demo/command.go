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

// Sim is the name of the simulated cloud, which is built into the demo.
const Sim = "sim"

// Main is the main function of a demo program: it runs Command, and exits with status 1 after an error.
func Main(provider string, backend stack.Backend) {
	// Log lines of client libraries are not meant for users of the demo.
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := Command(provider, backend).ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// Command returns the command of the demo for a provider and its cloud. The backend is nil for Sim. The demo of any
// other provider is a separate program, machinist-demo-<provider>. With the flag --provider, Command executes that
// program instead of its own demo.
func Command(provider string, backend stack.Backend) *cobra.Command {
	o := Options{Backend: backend}
	wanted := provider
	cmd := &cobra.Command{
		Use:     programOf(provider),
		Version: version.String(),
		Short:   "Run Machinist with a sample fleet on this machine",
		Long: `Run a real control plane, a cloud in memory and the two processes of Machinist as child processes on loopback.
Create a sample fleet and show it until Ctrl-C.

The programs of the control plane come from the cache that "make controlplane" fills.`,
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
	flags.BoolVar(&o.EndAfterTour, "once", false,
		"run a tour (scale up, roll out another class, scale down, delete) and exit. The tour fails if a step fails or a resource is left")
	flags.StringVar(&o.Scenario, "scenario", "",
		"run a scenario and exit. The scenario fails if a step fails or a resource is left. One of: "+
			strings.Join(ScenarioNames(), ", "))
	flags.BoolVar(&o.PrepareOnly, "bare", false,
		"run only the control plane and the simulated cloud, and print how to run the two processes by hand")
	flags.BoolVar(&o.NoFleet, "no-fleet", false,
		"run everything except the fleet, and print how to create a fleet in a shell")
	flags.BoolVar(&o.SeparateTarget, "separate-target", false, "run a second control plane as the target cluster")
	flags.StringVar(&wanted, "provider", provider,
		"provider of the machines: sim for the simulated cloud, or another one with a program machinist-demo-<provider> in the same folder as this program")
	flags.StringVar(&o.Dir, "dir", "", "empty or new folder in which logs and data are kept. By default they are removed at the end")
	cmd.MarkFlagsMutuallyExclusive("once", "bare", "scenario", "no-fleet")
	return cmd
}

func programOf(provider string) string {
	if provider == Sim {
		return "machinist-demo"
	}
	return "machinist-demo-" + provider
}

// runDemoOf executes the demo program of another provider in place of this process, with the same arguments. Signals of
// the terminal then reach that program. The demo's output and exit status are those of that program.
func runDemoOf(provider string) error {
	name := programOf(provider)
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find the folder of this program: %w", err)
	}
	path := filepath.Join(filepath.Dir(self), name)
	if _, err := os.Stat(path); provider != filepath.Base(provider) || path == self || err != nil {
		return fmt.Errorf("--provider=%s: there is no program %s in the same folder as this one, run `make build`",
			provider, name)
	}
	if err := syscall.Exec(path, append([]string{path}, os.Args[1:]...), os.Environ()); err != nil {
		return fmt.Errorf("run %s: %w", path, err)
	}
	return nil
}
