package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/merge"
)

func placementCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "placement",
		Short: "Merge deployments into one with a placement",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(placementMergeCommand(env))
	return cmd
}

func placementMergeCommand(env *Env) *cobra.Command {
	m := placementMerge{env: env}
	cmd := &cobra.Command{
		Use:   "merge --deployments NAME,NAME --name NAME",
		Short: "Merge deployments, such as one for each zone, into one with a placement",
		Long: `Merge MachineDeployments with one class each, such as one for each zone, into one MachineDeployment with a placement.
No machine is created, deleted or replaced: the merged deployment adopts the MachineSets of the others.

Without --yes, the command changes nothing. It prints the merged deployment as YAML, with the steps and the differences
between the deployments. With --yes, the command does these steps. If the command is interrupted, run it again with the
same arguments.

Deployments can be merged if their templates differ only in the class and in fields that are changed in place, and if
their rollouts are complete. Deployments whose classes are in the same domain become options of this domain, the first
deployment first. All fields that are not common to all deployments come from the first deployment.`,
		Example: `  # Show the merged deployment
  machinist placement merge --deployments web-a,web-b,web-c --name web

  # Merge
  machinist placement merge --deployments web-a,web-b,web-c --name web --yes`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return m.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&m.deployments, "deployments", nil, "the names of the deployments to merge, the preferred class first")
	flags.StringVar(&m.name, "name", "", "the name of the merged deployment")
	flags.StringVar(&m.domainFrom, "domain-from", "",
		"the names of the domains: zone or deployment; by default zone, or deployment if the zone of a class is not known")
	flags.StringVar(&m.label, "label", "",
		"the label by which the merged deployment selects its machines, as key=value; by default fleet=NAME")
	flags.BoolVar(&m.yes, "yes", false, "merge the deployments")
	_ = cmd.MarkFlagRequired("deployments")
	_ = cmd.MarkFlagRequired("name")
	_ = cmd.RegisterFlagCompletionFunc("domain-from", cobra.FixedCompletions([]string{merge.DomainFromZone,
		merge.DomainFromDeployment}, cobra.ShellCompDirectiveNoFileComp))
	outputFlag(cmd, &m.format)
	return cmd
}

type placementMerge struct {
	env                     *Env
	deployments             []string
	name, domainFrom, label string
	format                  string
	yes                     bool
}

func (m *placementMerge) run(ctx context.Context) error {
	if err := checkFormat(m.format); err != nil {
		return err
	}
	switch m.domainFrom {
	case "", merge.DomainFromZone, merge.DomainFromDeployment:
	default:
		return fmt.Errorf("--domain-from=%q: must be zone or deployment", m.domainFrom)
	}
	key, value, found := strings.Cut(m.label, "=")
	if m.label == "" {
		key, value, found = "fleet", m.name, true
	}
	problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...)
	if !found || value == "" || len(problems) > 0 {
		return fmt.Errorf("--label=%q: must be key=value, such as fleet=web %s", m.label, strings.Join(problems, ", "))
	}
	c, err := m.env.Connect()
	if err != nil {
		return err
	}
	in := merge.Input{Namespace: c.Namespace, Name: m.name, LabelKey: key, LabelValue: value, DomainFrom: m.domainFrom}
	merged, err := c.readMerge(ctx, &in, m.deployments)
	if err != nil {
		return err
	}
	var plan *merge.Plan
	if merged == nil {
		if err := c.checkLabelUnused(ctx, in); err != nil {
			return err
		}
		if plan, err = merge.New(in); err != nil {
			return err
		}
		if !m.yes {
			return m.env.Print(plan, m.format)
		}
		for _, warning := range plan.Warnings {
			fmt.Fprintln(m.env.Err, "Warning:", warning)
		}
	} else if !m.yes {
		return fmt.Errorf("machinedeployment %q already exists, because a merge was interrupted: use --yes to continue it", m.name)
	}
	return m.merge(ctx, c, in, plan, merged)
}

// readMerge reads the deployments that still exist, and what the plan depends on. The result is the merged deployment
// if it exists already, because the command was interrupted.
func (c *Cluster) readMerge(ctx context.Context, in *merge.Input, names []string) (*v1beta1.MachineDeployment, error) {
	merged := &v1beta1.MachineDeployment{}
	switch err := c.Get(ctx, client.ObjectKey{Namespace: in.Namespace, Name: in.Name}, merged); {
	case apierrors.IsNotFound(err) && !isUnknownResource(err):
		merged = nil
	case err != nil:
		return nil, c.Explain(err)
	case merged.Labels[v1beta1.LabelFreeze] != merge.FreezeValue ||
		merged.Spec.Selector.MatchLabels[in.LabelKey] != in.LabelValue:
		return nil, fmt.Errorf("machinedeployment %q already exists: choose another --name", in.Name)
	}
	for _, name := range names {
		d, err := c.deployment(ctx, strings.TrimPrefix(strings.TrimPrefix(name, "md/"), "machinedeployment/"))
		switch {
		case apierrors.IsNotFound(err) && merged != nil:
			continue // The command was interrupted after the deletion.
		case err != nil:
			return nil, err
		}
		in.Deployments = append(in.Deployments, d)
	}
	var classes v1beta1.MachineClassList
	var checks v1beta1.MachineHealthCheckList
	var budgets v1beta1.MachineDisruptionBudgetList
	for _, list := range []client.ObjectList{&classes, &checks, &budgets} {
		if err := c.List(ctx, list, client.InNamespace(in.Namespace)); err != nil {
			return nil, c.Explain(fmt.Errorf("read the objects that the merge depends on: %w", err))
		}
	}
	in.Classes, in.Checks, in.Budgets = map[string]*v1beta1.MachineClass{}, checks.Items, budgets.Items
	for i := range classes.Items {
		in.Classes[classes.Items[i].Name] = &classes.Items[i]
	}
	return merged, nil
}

// checkLabelUnused returns an error if an object has the label by which the merged deployment selects its sets and
// machines. The merged deployment would adopt these objects.
func (c *Cluster) checkLabelUnused(ctx context.Context, in merge.Input) error {
	selector := client.MatchingLabels{in.LabelKey: in.LabelValue}
	var sets v1beta1.MachineSetList
	var machines v1beta1.MachineList
	for _, list := range []client.ObjectList{&sets, &machines} {
		if err := c.List(ctx, list, client.InNamespace(in.Namespace), selector, client.Limit(1)); err != nil {
			return c.Explain(fmt.Errorf("look for objects with the label %s=%s: %w", in.LabelKey, in.LabelValue, err))
		}
	}
	if len(sets.Items)+len(machines.Items) > 0 {
		return fmt.Errorf("sets or machines in namespace %q have the label %s=%s already: choose another label with --label",
			in.Namespace, in.LabelKey, in.LabelValue)
	}
	return nil
}
