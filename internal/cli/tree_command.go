package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"machinist.dev/machinist/internal/cli/fleet"
)

// apiKind returns the API name of a kind, such as MachineSet.
func apiKind(k kind) string {
	switch k {
	case machine:
		return "Machine"
	case set:
		return "MachineSet"
	case deployment:
		return "MachineDeployment"
	}
	return string(k)
}

func treeCommand(env *Env) *cobra.Command {
	var s scope
	cmd := &cobra.Command{
		Use:   "tree [TYPE/NAME]",
		Short: "Show ownership: deployments, their sets, their machines, their nodes",
		Long: `Show ownership: deployments, the sets of their revisions, and machines with their nodes. For a machine that waits,
the tree also shows what the machine waits for. With a name, the command shows only that object, its owners and the
objects that it owns.`,
		Example: `  # All objects of the current namespace
  machinist tree

  # One deployment
  machinist tree md/workers

  # One machine with its set and its deployment
  machinist tree machine/workers-abc12-x7k2p`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: env.completion(deployment, set, machine),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(s.format); err != nil {
				return err
			}
			var k kind
			name := ""
			if len(args) > 0 {
				var err error
				if k, name, err = reference(args, deployment, set, machine); err != nil {
					return err
				}
				if s.all {
					return fmt.Errorf("--all-namespaces cannot be combined with the name %q", name)
				}
			}
			c, err := env.Connect()
			if err != nil {
				return err
			}
			found, err := c.readFleet(cmd.Context(), s.namespace(c))
			if err != nil {
				return err
			}
			facts := fleet.Facts{
				Namespace: s.namespace(c), Now: c.clock.Now(), Deployments: found.deployments.Items, Sets: found.sets.Items,
				Machines: found.machines.Items, ReadErrors: found.unread,
			}
			view, there := fleet.TreeOf(facts, apiKind(k), name)
			if !there {
				return fmt.Errorf("%s %q not found in namespace %q", k, name, c.Namespace)
			}
			return env.Print(view, s.format)
		},
	}
	cmd.Flags().BoolVarP(&s.all, "all-namespaces", "A", false, "look in all namespaces")
	outputFlag(cmd, &s.format)
	return cmd
}
