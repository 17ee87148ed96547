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

// moveFlags are those of machinist move.
type moveFlags struct {
	kubeconfig, context string
	all, dryRun         bool
	timeout             time.Duration
	system, toSystem    string
	id, toID            string
}

func moveCommand(env *Env) *cobra.Command {
	var f moveFlags
	cmd := &cobra.Command{
		Use:   "move [md/NAME ...] --to-context CONTEXT | --to-kubeconfig FILE",
		Short: "Move a fleet to another control cluster, while its machines serve",
		Long: `Move a fleet to another control cluster: all that is in the namespace, or the MachineDeployments that are
named, with all that belongs to them. No instance is created, deleted or restarted, and their Nodes stay
as they are. Both control clusters must have the same target cluster, and run Machinist with cluster ids
of their own.

The command stops the source first, makes the objects at the destination, waits until that has taken
every instance over, and then deletes them at the source. It may be interrupted at any time: repeat it,
and it goes on from there.`,
		Example: `  # What would be moved, and whether that is possible
  machinist move -n prod --to-context new --dry-run

  # All of a namespace
  machinist move -n prod --to-context new

  # Two deployments, to a cluster of another kubeconfig
  machinist move md/web md/batch -n prod --to-kubeconfig new.yaml`,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return runMove(cmd.Context(), env, f, args)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.kubeconfig, "to-kubeconfig", "", "kubeconfig file of the destination; default: that of the source")
	flags.StringVar(&f.context, "to-context", "",
		"context of the destination; default: the current one of --to-kubeconfig")
	flags.BoolVarP(&f.all, "all-namespaces", "A", false, "move what is in all namespaces")
	flags.BoolVar(&f.dryRun, "dry-run", false, "only print what would be moved, and what is in the way")
	flags.DurationVar(&f.timeout, "timeout", time.Hour,
		"how long to wait, and for how long the destination may take instances over; at most 24h")
	flags.StringVar(&f.id, "cluster-id", "",
		"cluster id that the source tags instances with; default: the one that its processes recorded")
	flags.StringVar(&f.toID, "to-cluster-id", "",
		"cluster id that the destination tags instances with; default: the one that its processes recorded")
	flags.StringVar(&f.system, "system-namespace", "",
		"namespace in which the source's processes keep their records; default: the usual ones")
	flags.StringVar(&f.toSystem, "to-system-namespace", "",
		"namespace in which the destination's processes keep their records; default: the usual ones")
	return cmd
}

func (f moveFlags) check(deployments []string) error {
	switch {
	case f.kubeconfig == "" && f.context == "":
		return errors.New("neither --to-context nor --to-kubeconfig is set: name the destination")
	case f.timeout <= 0 || f.timeout > v1beta1.MaxAdoptionFromCluster:
		return fmt.Errorf("--timeout %s: must be more than 0 and at most %s", f.timeout, v1beta1.MaxAdoptionFromCluster)
	case f.all && len(deployments) > 0:
		return errors.New("-A moves everything: name no deployment with it")
	}
	return nil
}

// destination returns the environment of the cluster that is moved to: what flags say of the source's does not hold.
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
	m := &move.Move{Source: from, Destination: to, From: f.id, To: f.toID, Namespace: from.Namespace,
		Deployments: deployments, Report: func(sentence string) { fmt.Fprintln(env.Out, sentence) }}
	if f.all {
		m.Namespace = metav1.NamespaceAll
	}
	if m.From == "" {
		if m.From, err = from.clusterID(ctx, f.system); err != nil {
			return err
		}
	}
	if m.To == "" {
		if m.To, err = to.clusterID(ctx, f.toSystem); err != nil {
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
	fmt.Fprintf(env.Out, "From cluster %s to cluster %s: %s.\n", m.From, m.To, plan)
	if len(plan.Shared) > 0 {
		fmt.Fprintf(env.Out, "Copied, and needed at the source too: %s.\n", strings.Join(plan.Shared, ", "))
	}
	if f.dryRun {
		for _, waits := range plan.Waiting {
			fmt.Fprintf(env.Out, "It would wait for %s.\n", waits)
		}
	}
	switch {
	case len(problems) > 0:
		return fmt.Errorf("the fleet cannot be moved, and nothing was changed:\n  %s", strings.Join(problems, "\n  "))
	case f.dryRun:
		_, err := fmt.Fprintln(env.Out, "Nothing is in the way. Nothing was changed.")
		return err
	}
	// By the API server's clock, as processes judge it. The permission outlasts the wait.
	m.Until = to.clock.Now().Add(min(f.timeout+time.Minute, v1beta1.MaxAdoptionFromCluster-time.Minute))
	within, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	if err := m.Run(within); err != nil {
		return fmt.Errorf("%w\nThe move is not finished. Repeat the command when that is mended: it goes on from there",
			explain(err))
	}
	_, err = fmt.Fprintf(env.Out, "The fleet is at cluster %s. The source has nothing of it any more.\n", m.To)
	return err
}

// missingProcesses names the processes that a fleet of another cluster needs here and that do not run, as far as
// leases may be read.
func (c *Cluster) missingProcesses(ctx context.Context, from *Cluster, namespace, system string) (missing []string) {
	list := &v1beta1.MachineList{}
	if err := from.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil // The move itself reports that.
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
		if p, unread := c.process(ctx, name, c.Namespace, system); unread == "" && !p.Running {
			missing = append(missing, fmt.Sprintf("%s does not run at the destination", name))
		}
	}
	return missing
}
