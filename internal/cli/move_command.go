package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/move"
)

type moveFlags struct {
	kubeconfig, context    string
	all, dryRun            bool
	timeout                time.Duration
	system, toSystem       string
	clusterID, toClusterID string
}

func moveCommand(env *Env) *cobra.Command {
	var f moveFlags
	cmd := &cobra.Command{
		Use:   "move [md/NAME ...] --to-context CONTEXT | --to-kubeconfig FILE",
		Short: "Move a fleet to another control cluster while its machines keep running",
		Long: `Move a fleet to another control cluster: all objects of the namespace, or the named MachineDeployments with all objects
that belong to them. No instance is created, deleted or restarted, and the Nodes do not change. Both control clusters
must have the same target cluster, and their Machinist installations must have different cluster IDs.

The command first stops the fleet at the source. Then it creates the objects at the destination, waits until the
destination has adopted all instances, and deletes the objects at the source. You can interrupt the command at any time.
Run it again to continue.`,
		Example: `  # Show what would be moved, and whether that is possible
  machinist move -n prod --to-context new --dry-run

  # Move all objects of a namespace
  machinist move -n prod --to-context new

  # Move two deployments to a cluster of another kubeconfig
  machinist move md/web md/batch -n prod --to-kubeconfig new.yaml`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runMove(cmd.Context(), env, f, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.kubeconfig, "to-kubeconfig", "", "kubeconfig file of the destination (default: the source's kubeconfig)")
	flags.StringVar(&f.context, "to-context", "",
		"context of the destination (default: the current context of --to-kubeconfig)")
	flags.BoolVarP(&f.all, "all-namespaces", "A", false, "move the objects of all namespaces")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only print what would be moved, and what prevents the move")
	flags.DurationVar(&f.timeout, "timeout", time.Hour,
		"how long to wait, and how long the destination may adopt instances; at most 24h")
	flags.StringVar(&f.clusterID, "cluster-id", "",
		"cluster ID in the tags of the source's instances (default: the cluster ID that the source's processes recorded)")
	flags.StringVar(&f.toClusterID, "to-cluster-id", "",
		"cluster ID in the tags of the destination's instances (default: the cluster ID that the destination's processes recorded)")
	flags.StringVar(&f.system, "system-namespace", "",
		"namespace of the records of the source's processes; by default machinist-system, kube-system and the fleet's namespace are tried")
	flags.StringVar(&f.toSystem, "to-system-namespace", "",
		"namespace of the records of the destination's processes; by default machinist-system, kube-system and the fleet's namespace are tried")
	return cmd
}

func (f moveFlags) check(deployments []string) error {
	switch {
	case f.kubeconfig == "" && f.context == "":
		return errors.New("neither --to-context nor --to-kubeconfig is set: use one of them to name the destination")
	case f.timeout <= 0 || f.timeout > v1beta1.MaxAdoptionFromCluster:
		return fmt.Errorf("--timeout %s: must be more than 0 and at most %s", f.timeout, v1beta1.MaxAdoptionFromCluster)
	case f.all && len(deployments) > 0:
		return errors.New("-A moves everything and cannot be combined with names of deployments")
	}
	return nil
}

// destination returns an environment for the destination cluster. The method ignores flags that select the source
// cluster.
func (f moveFlags) destination(env *Env) *Env {
	to := *env
	to.rules = clientcmd.NewDefaultClientConfigLoadingRules()
	if to.rules.ExplicitPath = f.kubeconfig; f.kubeconfig == "" {
		to.rules.ExplicitPath = env.rules.ExplicitPath
	}
	to.overrides = &clientcmd.ConfigOverrides{ClusterDefaults: clientcmd.ClusterDefaults, CurrentContext: f.context,
		Timeout: env.overrides.Timeout}
	return &to
}

func runMove(ctx context.Context, env *Env, f moveFlags, args []string) error {
	var deployments []string
	for _, arg := range args {
		_, name, err := reference([]string{arg}, deployment)
		if err != nil {
			return err
		}
		deployments = append(deployments, name)
	}
	if err := f.check(deployments); err != nil {
		return err
	}
	from, err := env.Connect()
	if err != nil {
		return err
	}
	to, err := f.destination(env).Connect()
	if err != nil {
		return fmt.Errorf("the destination: %w", err)
	}
	to.Namespace = from.Namespace
	m := &move.Move{Source: from, Destination: to, SourceID: f.clusterID, DestinationID: f.toClusterID,
		Namespace:   from.Namespace,
		Deployments: deployments, Report: func(sentence string) { fmt.Fprintln(env.Out, sentence) }}
	if f.all {
		m.Namespace = metav1.NamespaceAll
	}
	if m.SourceID == "" {
		if m.SourceID, err = from.clusterID(ctx, f.system); err != nil {
			return err
		}
	}
	if m.DestinationID == "" {
		if m.DestinationID, err = to.clusterID(ctx, f.toSystem); err != nil {
			return fmt.Errorf("the destination: %w", err)
		}
	}
	explain := func(err error) error {
		if at := (*move.DestinationError)(nil); errors.As(err, &at) {
			return to.Explain(err)
		}
		return from.Explain(err)
	}
	plan, err := m.Plan(ctx)
	if err != nil {
		return explain(err)
	}
	problems := append(plan.Problems, to.missingProcesses(ctx, from, m.Namespace, f.toSystem)...)
	fmt.Fprintf(env.Out, "From cluster %s to cluster %s: %s.\n", m.SourceID, m.DestinationID, plan)
	if len(plan.Shared) > 0 {
		fmt.Fprintf(env.Out, "Copied, because the source needs them too: %s.\n", strings.Join(plan.Shared, ", "))
	}
	if f.dryRun {
		for _, machine := range plan.WaitingMachines {
			fmt.Fprintf(env.Out, "The move would wait for %s.\n", machine)
		}
	}
	switch {
	case len(problems) > 0:
		return fmt.Errorf("the fleet cannot be moved, and nothing was changed:\n  %s", strings.Join(problems, "\n  "))
	case f.dryRun:
		_, err := fmt.Fprintln(env.Out, "The move is possible. Nothing was changed.")
		return err
	}
	// The processes compare this time with their own clocks, which are close to the API server's. The permission lasts
	// longer than this command waits.
	m.PermissionEnd = to.clock.Now().Add(min(f.timeout+time.Minute, v1beta1.MaxAdoptionFromCluster-time.Minute))
	within, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if err := m.Run(within); err != nil {
		return fmt.Errorf("%w\nThe move is not finished. Fix the problem and run the command again to continue", explain(err))
	}
	_, err = fmt.Fprintf(env.Out, "The fleet has moved to cluster %s, and its objects at the source are deleted.\n", m.DestinationID)
	return err
}

// missingProcesses returns a sentence for each process that the moved machines need and that is not running here. A
// process whose lease cannot be read is skipped.
func (c *Cluster) missingProcesses(ctx context.Context, from *Cluster, namespace, system string) (missing []string) {
	list := &v1beta1.MachineList{}
	if err := from.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil // The move itself reports the error.
	}
	var names []string
	for i := range list.Items {
		if name := providerProcess + providerOf(&list.Items[i]); name != providerProcess && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		names = append(names, managerProcess)
	}
	slices.Sort(names)
	for _, name := range names {
		if p, unread := c.process(ctx, name, c.Namespace, system); unread == "" && !p.IsRunning {
			missing = append(missing, fmt.Sprintf("the process %s is not running at the destination", name))
		}
	}
	return missing
}
