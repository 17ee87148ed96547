package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/cli/fleet"
)

type scope struct {
	all    bool
	system string
	format string
}

func (s *scope) flags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&s.all, "all-namespaces", "A", false, "look in all namespaces")
	s.systemFlag(cmd)
	outputFlag(cmd, &s.format)
}

func (s *scope) systemFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&s.system, "system-namespace", "", systemNamespaceUsage)
}

func (s *scope) namespace(c *Cluster) string {
	if s.all {
		return ""
	}
	return c.Namespace
}

func statusCommand(env *Env) *cobra.Command {
	var s scope
	var follow bool
	cmd := &cobra.Command{
		Use:   "status [md/NAME]",
		Short: "Show the fleet on one screen: deployments, freezes, health checks, and what machines wait for",
		Long: `Show the fleet on one screen: deployments and their rollouts, freezes, the results of health checks, and what each
machine that is not healthy yet waits for. The output is short if nothing waits.

"machinist why" shows more details about one machine or deployment.`,
		Example: `  # The fleet of the current namespace
  machinist status

  # All fleets, shown again at each change
  machinist status -A -w

  # One deployment, for a program
  machinist status md/workers -o json`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: env.completion(deployment),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(s.format); err != nil {
				return err
			}
			name := ""
			if len(args) > 0 {
				var err error
				if _, name, err = reference(args, deployment); err != nil {
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
			check := &statusCheck{env: env, cluster: c, scope: s, name: name}
			if follow {
				return check.follow(cmd.Context())
			}
			view, _, err := check.view(cmd.Context())
			if err != nil {
				return err
			}
			return env.Print(view, s.format)
		},
	}
	s.flags(cmd)
	cmd.Flags().BoolVarP(&follow, "watch", "w", false, watchUsage)
	return cmd
}

const watchUsage = "keep running, and show the report again at each change"

type statusCheck struct {
	env     *Env
	cluster *Cluster
	scope   scope
	// name selects one deployment. Empty means all.
	name string
}

func (l *statusCheck) view(ctx context.Context) (fleet.Status, *fleetLists, error) {
	namespace := l.scope.namespace(l.cluster)
	found, err := l.cluster.readFleet(ctx, namespace)
	if err != nil {
		return fleet.Status{}, nil, err
	}
	facts := l.cluster.facts(ctx, found, namespace, l.scope.system)
	if l.name != "" {
		if _, err := l.cluster.deployment(ctx, l.name); err != nil {
			return fleet.Status{}, nil, err
		}
		facts = fleet.ForDeployment(facts, l.name)
	} else if found, err := l.cluster.orphans(ctx, namespace, l.scope.system); err == nil {
		facts.Orphans = found.Reports
	} else {
		facts.ReadErrors = append(facts.ReadErrors, fmt.Sprintf("Instances without a Machine are left out: %v", err))
	}
	return fleet.StatusOf(facts), found, nil
}

func (l *statusCheck) follow(ctx context.Context) error {
	w := &watcher{env: l.env, cluster: l.cluster, scope: l.scope, subject: "The fleet"}
	return w.follow(ctx, func(ctx context.Context) (observed, error) {
		view, found, err := l.view(ctx)
		if err != nil {
			return observed{}, err
		}
		timeless := view
		timeless.Now, timeless.Processes = time.Time{}, nil
		timeless.Waiting = slices.Clone(view.Waiting)
		for i := range timeless.Waiting {
			timeless.Waiting[i].Message = ""
		}
		return observed{view: view, timeless: timeless,
			from: []client.ObjectList{&found.machines, &found.sets, &found.deployments, &found.checks}}, nil
	})
}
