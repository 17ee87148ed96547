package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/fleet"
	"machinist.dev/machinist/internal/fleet/disruption"
)

type pauseFlags struct {
	fleet, all     bool
	reason, format string
}

func (f *pauseFlags) add(cmd *cobra.Command, fleetUsage, allUsage string) {
	flags := cmd.Flags()
	flags.BoolVar(&f.fleet, "fleet", false, fleetUsage)
	flags.BoolVarP(&f.all, "all-namespaces", "A", false, allUsage)
	outputFlag(cmd, &f.format)
	cmd.Args = cobra.NoArgs
	cmd.ValidArgsFunction = cobra.NoFileCompletions
}

// check returns an error if --fleet is missing. The flag is required because the similar command "machinist rollout
// pause" stops only rollouts.
func (f *pauseFlags) check(verb string) error {
	if !f.fleet {
		return fmt.Errorf("--fleet is missing: \"machinist %s --fleet\" affects all machines of a namespace; "+
			"for the rollouts of one deployment run \"machinist rollout %s md/NAME\"", verb, verb)
	}
	return checkFormat(f.format)
}

func pauseCommand(env *Env) *cobra.Command {
	var f pauseFlags
	cmd := &cobra.Command{
		Use:   "pause --fleet",
		Short: "Stop all voluntary disruptions of machines in one or all namespaces",
		Long: `Stop all voluntary disruptions of machines in a namespace, or in all namespaces that have machines. No machine is
replaced or updated in place, whether because of a rollout, its age, its health or a request. The command creates the
MachineDisruptionBudget ` + disruption.PauseBudget + `, which selects all machines and allows no disruptions.

Disruptions that have already begun are completed. Not affected are scaling, new machines, manual deletions, and the
replacement of machines whose instance no longer exists. With --all-namespaces, a namespace that gets its first
machines later is not paused.`,
		Example: `  # Stop all disruptions during a repair of the network
  machinist pause --fleet -A --reason "network maintenance, see OPS-1234"

  # One namespace
  machinist pause --fleet -n prod`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check("pause"); err != nil {
				return err
			}
			return env.printPauses(f, func(c *Cluster) ([]fleet.Pause, error) {
				return c.pause(cmd.Context(), f)
			})
		},
	}
	f.add(cmd, "pause all machines of the namespace", "pause all namespaces that have machines, sets or deployments")
	cmd.Flags().StringVar(&f.reason, "reason", "", "reason for the pause, shown by status and why")
	return cmd
}

func resumeCommand(env *Env) *cobra.Command {
	var f pauseFlags
	cmd := &cobra.Command{
		Use:   "resume --fleet",
		Short: "Allow disruptions again after machinist pause --fleet",
		Long: `Allow disruptions again after "machinist pause --fleet": delete the MachineDisruptionBudget
` + disruption.PauseBudget + `. Replacements and updates that are due then proceed as the other budgets and the strategies
of the deployments allow.`,
		Example: `  machinist resume --fleet -A`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.check("resume"); err != nil {
				return err
			}
			return env.printPauses(f, func(c *Cluster) ([]fleet.Pause, error) {
				return c.resume(cmd.Context(), f)
			})
		},
	}
	f.add(cmd, "resume all machines of the namespace", "resume all namespaces that are paused")
	return cmd
}

// printPauses prints the namespaces that the function pauseOrResume has paused or resumed, even if this function also
// returns an error.
func (e *Env) printPauses(f pauseFlags, pauseOrResume func(*Cluster) ([]fleet.Pause, error)) error {
	c, err := e.Connect()
	if err != nil {
		return err
	}
	done, err := pauseOrResume(c)
	if len(done) == 0 && err != nil {
		return err
	}
	return errors.Join(e.Print(fleet.Pauses{Kind: "PauseResult", Namespaces: done}, f.format), err)
}

// pause creates a disruption budget in each selected namespace. After an error, it continues with the other namespaces.
func (c *Cluster) pause(ctx context.Context, f pauseFlags) (done []fleet.Pause, err error) {
	namespaces := []string{c.Namespace}
	if f.all {
		if namespaces, err = c.namespacesWithFleets(ctx); err != nil {
			return nil, err
		}
		if len(namespaces) == 0 {
			return nil, errors.New("there are no machines, sets or deployments in any namespace: nothing was paused")
		}
	}
	by := c.user(ctx)
	var errs []error
	for _, namespace := range namespaces {
		b := pauseBudget(namespace, f.reason, by)
		outcome := "paused"
		err := c.Create(ctx, b)
		if apierrors.IsAlreadyExists(err) {
			outcome, err = "already paused", c.checkExisting(ctx, b)
		}
		if err != nil {
			errs = append(errs, c.Explain(fmt.Errorf("pause the fleet of namespace %q: %w", namespace, err)))
			continue
		}
		done = append(done, fleet.PauseOf(b, outcome))
	}
	return done, errors.Join(errs...)
}

func pauseBudget(namespace, reason, by string) *v1beta1.MachineDisruptionBudget {
	b := &v1beta1.MachineDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: disruption.PauseBudget},
		Spec: v1beta1.MachineDisruptionBudgetSpec{MaxDisrupted: intstr.FromInt32(0),
			Apply: v1beta1.ApplyInside},
	}
	for key, value := range map[string]string{v1beta1.AnnotationPauseReason: reason, v1beta1.AnnotationPausedBy: by} {
		if value != "" {
			metav1.SetMetaDataAnnotation(&b.ObjectMeta, key, value)
		}
	}
	return b
}

// checkExisting fails if an existing budget of the same name does not stop all disruptions. Otherwise b becomes a copy
// of the existing budget.
func (c *Cluster) checkExisting(ctx context.Context, b *v1beta1.MachineDisruptionBudget) error {
	want := b.Spec
	if err := c.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
		return err
	}
	switch {
	case b.DeletionTimestamp != nil:
		return fmt.Errorf("MachineDisruptionBudget %s is being deleted: try again after it is deleted", b.Name)
	case !equality.Semantic.DeepEqual(b.Spec, want):
		return fmt.Errorf("the existing MachineDisruptionBudget %s was changed and does not stop all disruptions: "+
			"run \"machinist resume --fleet -n %s\" first", b.Name, b.Namespace)
	}
	return nil
}

func (c *Cluster) resume(ctx context.Context, f pauseFlags) (done []fleet.Pause, err error) {
	var list v1beta1.MachineDisruptionBudgetList
	options := []client.ListOption{client.MatchingFields{metav1.ObjectNameField: disruption.PauseBudget}}
	if !f.all {
		options = append(options, client.InNamespace(c.Namespace))
	}
	if err := c.List(ctx, &list, options...); err != nil {
		return nil, c.Explain(fmt.Errorf("list the budgets of paused fleets: %w", err))
	}
	if len(list.Items) == 0 {
		if f.all {
			return nil, errors.New("no fleet is paused in any namespace")
		}
		return nil, fmt.Errorf("the fleet of namespace %q is not paused", c.Namespace)
	}
	var errs []error
	for i := range list.Items {
		b := &list.Items[i]
		err := c.Delete(ctx, b, client.Preconditions{UID: &b.UID})
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, c.Explain(fmt.Errorf("resume the fleet of namespace %q: %w", b.Namespace, err)))
			continue
		}
		done = append(done, fleet.PauseOf(b, "resumed"))
	}
	return done, errors.Join(errs...)
}

func (c *Cluster) namespacesWithFleets(ctx context.Context) ([]string, error) {
	var namespaces []string
	for _, kind := range []string{"MachineList", "MachineSetList", "MachineDeploymentList"} {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(v1beta1.GroupVersion.WithKind(kind))
		err := c.List(ctx, list)
		if kind != "MachineList" && (meta.IsNoMatchError(err) || isUnknownResource(err)) {
			continue // Only a provider is installed, so the cluster does not serve this kind.
		}
		if err != nil {
			return nil, c.Explain(fmt.Errorf("list the fleets of all namespaces: %w", err))
		}
		for i := range list.Items {
			namespaces = append(namespaces, list.Items[i].Namespace)
		}
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces), nil
}

// user returns the name of the user from the API server, or "" if that fails.
func (c *Cluster) user(ctx context.Context) string {
	review := &authenticationv1.SelfSubjectReview{}
	if err := c.Create(ctx, review); err != nil {
		return ""
	}
	return review.Status.UserInfo.Username
}
