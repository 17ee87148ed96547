package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"machinist.dev/machinist/internal/demo"
)

func demoCommand() *cobra.Command {
	o := demo.Options{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run everything on this machine with a sample fleet",
		Long: `Run a real control plane, a simulated cloud, Machinist's two processes and a sample fleet as child processes on
loopback, show the fleet, and stay up until Ctrl-C.

The control plane's programs come from the cache that "make controlplane" fills.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.Out = cmd.OutOrStdout()
			if f, ok := o.Out.(*os.File); ok {
				o.Terminal = term.IsTerminal(int(f.Fd()))
			}
			return demo.Run(cmd.Context(), o)
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.Once, "once", false,
		"run a tour (3 machines, 10, another class, 2, none) and end; fail if a step does or something is left")
	flags.StringVar(&o.Scenario, "scenario", "",
		"play a story about the fleet and end; fail if a step does or something is left: "+
			strings.Join(demo.ScenarioNames(), ", "))
	flags.BoolVar(&o.Bare, "bare", false,
		"run the control plane and the simulated cloud only, and print how to run the two processes by hand")
	flags.BoolVar(&o.SeparateTarget, "separate-target", false, "run a second control plane as the target cluster")
	flags.Var(&o.Provider, "provider",
		"whose machines: sim, the simulated cloud's, or azure-fake, the Azure provider's with an Azure in memory (make build)")
	flags.StringVar(&o.Dir, "dir", "", "an empty or new folder to keep logs and data in; by default they go with the demo")
	cmd.MarkFlagsMutuallyExclusive("once", "bare", "scenario")
	return cmd
}
