package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/inventory"
	"machinist.dev/machinist/internal/cli/migrate"
	"machinist.dev/machinist/internal/cli/why"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/fleet/machineset"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/wording"
)

func whyCommand(env *Env) *cobra.Command {
	var s scope
	var asTimeline bool
	cmd := &cobra.Command{
		Use:   "why TYPE/NAME",
		Short: "Explain what a machine, deployment, set, class or migration waits for, and what you can do",
		Long: `Explain what a machine waits for: since when, what happens next and when, and what you can do. For a deployment or a
set, the command explains how its state differs from its specification, and what its machines wait for. For a class,
it explains why the class is not Ready, and reports other problems of the class. For a migration, it explains what the
migration waits for.

With a node's name, the command finds the node's machine in all namespaces whose machines you may list.

With --timeline, the command shows the history of a machine: its steps in order, how long each took, what it waited
for, and its share of the total time. The timeline is derived from conditions, events and the Node, and reports where
these records are incomplete.`,
		Example: `  # Why has this machine no node yet? Why is it not deleted yet?
  machinist why machine/workers-abc12-x7k2p

  # Why does this rollout not continue?
  machinist why md/workers

  # Why is this class not Ready?
  machinist why mclass/small

  # What does the machine of this node wait for?
  machinist why node/worker-17

  # How long did each step take until this machine was running?
  machinist why machine/workers-abc12-x7k2p --timeline`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 2 {
				return fmt.Errorf("expected one argument TYPE/NAME, such as machine/NAME, md/NAME or node/NAME, but got %s",
					wording.Count(len(args), "argument"))
			}
			return nil
		},
		ValidArgsFunction: env.completion(machine, deployment, set, migration, class),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkFormat(s.format); err != nil {
				return err
			}
			k, name, err := reference(args, machine, deployment, set, node, migration, class)
			if err != nil {
				return err
			}
			if asTimeline && k != machine && k != node {
				return fmt.Errorf("--timeline needs machine/NAME or node/NAME, not %s/%s", k, name)
			}
			c, err := env.Connect()
			if err != nil {
				return err
			}
			r := explainer{Cluster: c, system: s.system}
			var view View
			if asTimeline {
				view, err = r.timeline(cmd.Context(), k, name)
			} else {
				view, err = r.why(cmd.Context(), k, name)
			}
			if err != nil {
				return err
			}
			return env.Print(view, s.format)
		},
	}
	s.systemFlag(cmd)
	outputFlag(cmd, &s.format)
	cmd.Flags().BoolVar(&asTimeline, "timeline", false,
		"show the steps of a machine, how long each took and what it waited for")
	return cmd
}

type explainer struct {
	*Cluster
	system string
	unread []string
	// listEvents returns the events about an object. If it is nil, the Cluster lists the events.
	listEvents func(context.Context, client.Object) ([]corev1.Event, error)
}

func (e *explainer) why(ctx context.Context, k kind, name string) (why.View, error) {
	switch k {
	case deployment:
		return e.deploymentWhy(ctx, name)
	case set:
		return e.setWhy(ctx, name)
	case migration:
		return e.migrationWhy(ctx, name)
	case class:
		return e.classWhy(ctx, name)
	}
	m, err := e.theMachine(ctx, k, name)
	if err != nil {
		return why.View{}, err
	}
	return e.machineWhy(ctx, m), nil
}

// theMachine gets a machine by its name or, if k is node, by the name of its node.
func (e *explainer) theMachine(ctx context.Context, k kind, name string) (*v1beta1.Machine, error) {
	if k == node {
		return e.machineOfNode(ctx, name)
	}
	m := &v1beta1.Machine{}
	return m, e.get(ctx, k, name, m)
}

func (c *Cluster) get(ctx context.Context, k kind, name string, o client.Object) error {
	switch err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, o); {
	case apierrors.IsNotFound(err) && !isUnknownResource(err):
		return fmt.Errorf("%s %q not found in namespace %q", k, name, c.Namespace)
	case err != nil:
		return c.Explain(err)
	}
	return nil
}

// getIfPossible reads an optional object into o. It reports whether the object was found, and whether the object is
// missing. Other errors are added to e.unread.
func (e *explainer) getIfPossible(ctx context.Context, what, namespace, name string, o client.Object) (found,
	missing bool) {
	switch err := e.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o); {
	case err == nil:
		return true, false
	case apierrors.IsNotFound(err) && !isUnknownResource(err):
		return false, true
	case apierrors.IsForbidden(err):
		e.unread = append(e.unread, fmt.Sprintf("You may not read %s %s, so it is left out.", what, name))
	default:
		e.unread = append(e.unread, fmt.Sprintf("%s %s could not be read: %v", what, name, err))
	}
	return false, false
}

// machineOfNode returns the machine of a node in any namespace. Without permission for that, it searches the selected
// namespace.
func (e *explainer) machineOfNode(ctx context.Context, name string) (*v1beta1.Machine, error) {
	var list v1beta1.MachineList
	where, note := "any namespace", ""
	err := e.List(ctx, &list)
	if apierrors.IsForbidden(err) {
		where, note = fmt.Sprintf("namespace %q", e.Namespace), "; you may not list machines in all namespaces"
		err = e.List(ctx, &list, client.InNamespace(e.Namespace))
	}
	if err != nil {
		return nil, e.Explain(err)
	}
	expected := -1
	for i := range list.Items {
		m := &list.Items[i]
		switch {
		case m.Status.NodeRef != nil && m.Status.NodeRef.Name == name:
			return m, nil
		case m.Status.NodeRef == nil && m.Status.Instance != nil && m.Status.Instance.NodeName == name:
			expected = i
		}
	}
	if expected >= 0 {
		return &list.Items[expected], nil
	}
	return nil, fmt.Errorf("no machine in %s belongs to the Node %q%s", where, name, note)
}

func (e *explainer) machineWhy(ctx context.Context, m *v1beta1.Machine) why.View {
	f := why.Facts{Machine: m}
	f.Set, f.Deployment = e.ownersOf(ctx, m)
	f.DeletionReason = e.deletionReason(ctx, m, f.Set)
	if ref := m.Spec.ClassRef; ref != nil {
		found := &v1beta1.MachineClass{}
		ok, missing := e.getIfPossible(ctx, "machineclass", m.Namespace, ref.Name, found)
		if f.ClassMissing = missing; ok {
			f.Class = found
		}
	}
	if metav1.GetControllerOf(m) == nil {
		f.Sets = e.listSets(ctx, m.Namespace)
	}
	checks := e.listChecks(ctx, m.Namespace)
	if f.Checks = checksFor(checks, m); len(f.Checks) == 0 && why.Blocking(m) != nil {
		f.UncheckedMachines = slices.DeleteFunc(e.listMachines(ctx, m.Namespace), func(other v1beta1.Machine) bool {
			return !machinestate.IsLive(&other) || len(checksFor(checks, &other)) > 0
		})
	}
	provider := providerOf(m)
	if provider == "" && f.Class != nil {
		provider = f.Class.Spec.Provider
	}
	if provider != "" {
		process, unread := e.process(ctx, providerProcess+provider, m.Namespace, e.system)
		if f.Provider = process; unread != "" {
			e.unread = append(e.unread, unread)
		}
	}
	f.Now = e.clock.Now()
	f.Denial = e.denialOf(ctx, m, f.Now)
	view := why.View{Now: f.Now, Object: "machine/" + m.Name, Namespace: m.Namespace, State: string(m.Status.Phase),
		Findings: why.Explain(f), ReadErrors: e.unread}
	if f.Deployment != nil {
		view.Failures = slices.DeleteFunc(why.FailuresOf(f.Deployment), func(failure why.Failure) bool {
			return failure.Machine != m.Name || machinestate.HasFailed(m)
		})
	}
	if m.Status.NodeRef != nil {
		view.Node = m.Status.NodeRef.Name
	}
	return view
}

// deletionReason returns the reason for which a set has deleted a machine, or "" if it is not recorded.
func (e *explainer) deletionReason(ctx context.Context, m *v1beta1.Machine, set *v1beta1.MachineSet) (reason string) {
	if machinestate.IsLive(m) || set == nil {
		return ""
	}
	events, err := e.eventsAbout(ctx, set)
	if err != nil {
		e.unread = append(e.unread, "The events of the set could not be listed, so the reason of the deletion is left out.")
		return ""
	}
	for i := range events {
		// The name of a machine is never used twice, so only one event names it.
		if stated, found := machineset.StatedReason(events[i].Reason, events[i].Message, m.Name); found {
			reason = stated
		}
	}
	return reason
}

// denialOf returns what prevents the replacement of a machine that is marked for it, or nil.
func (e *explainer) denialOf(ctx context.Context, m *v1beta1.Machine, now time.Time) *disruption.Denial {
	candidate := disruption.Candidate{Machine: m, Reason: v1beta1.DisruptionRemediation}
	switch {
	case !machinestate.IsLive(m):
		return nil
	case machinestate.ToBeReplaced(m), machinestate.NeedsReboot(m):
	case machinestate.HasReplaceAnnotation(m):
		candidate.Reason = disruption.ReasonOfReplacement(m)
	default:
		return nil
	}
	v, unread, err := e.disruptions(ctx, m.Namespace, now)
	if err != nil {
		unread = "Disruption budgets could not be read, so they are left out: " + err.Error()
	}
	if unread != "" {
		e.unread = append(e.unread, unread)
	}
	if v == nil {
		return nil
	}
	if _, denied := v.Decide([]disruption.Candidate{candidate}, nil); len(denied) > 0 {
		return &denied[0]
	}
	return nil
}

// ownersOf gets the set and the deployment of the machine. The set or the deployment may be nil.
func (e *explainer) ownersOf(ctx context.Context, m *v1beta1.Machine) (*v1beta1.MachineSet,
	*v1beta1.MachineDeployment) {
	owner := metav1.GetControllerOf(m)
	if owner == nil || owner.Kind != "MachineSet" {
		return nil, nil
	}
	foundSet := &v1beta1.MachineSet{}
	if ok, _ := e.getIfPossible(ctx, "machineset", m.Namespace, owner.Name, foundSet); !ok || foundSet.UID != owner.UID {
		return nil, nil
	}
	if owner = metav1.GetControllerOf(foundSet); owner == nil || owner.Kind != "MachineDeployment" {
		return foundSet, nil
	}
	found := &v1beta1.MachineDeployment{}
	if ok, _ := e.getIfPossible(ctx, "machinedeployment", m.Namespace, owner.Name, found); !ok || found.UID != owner.UID {
		return foundSet, nil
	}
	return foundSet, found
}

func (e *explainer) listChecks(ctx context.Context, namespace string) []v1beta1.MachineHealthCheck {
	var list v1beta1.MachineHealthCheckList
	if err := e.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		switch {
		case meta.IsNoMatchError(err), isUnknownResource(err):
		case apierrors.IsForbidden(err):
			e.unread = append(e.unread, "You may not list health checks, so they are left out.")
		default:
			e.unread = append(e.unread, fmt.Sprintf("Health checks could not be listed: %v", err))
		}
		return nil
	}
	return list.Items
}

func checksFor(checks []v1beta1.MachineHealthCheck, m *v1beta1.Machine) []v1beta1.MachineHealthCheck {
	return slices.DeleteFunc(slices.Clone(checks), func(c v1beta1.MachineHealthCheck) bool {
		selector, err := metav1.LabelSelectorAsSelector(&c.Spec.Selector)
		return err != nil || !selector.Matches(labels.Set(m.Labels))
	})
}

func (e *explainer) deploymentWhy(ctx context.Context, name string) (why.View, error) {
	d := &v1beta1.MachineDeployment{}
	if err := e.get(ctx, deployment, name, d); err != nil {
		return why.View{}, err
	}
	joined := inventory.Join([]v1beta1.MachineDeployment{*d}, e.listSets(ctx, d.Namespace),
		e.listMachines(ctx, d.Namespace))
	f := why.FleetFacts{Deployment: d, Machines: joined.AllMachines(d)}
	return e.fleetWhy(ctx, f, "machinedeployment/"+name, d.Namespace, d.ReplicasOrDefault()), nil
}

func (e *explainer) setWhy(ctx context.Context, name string) (why.View, error) {
	s := &v1beta1.MachineSet{}
	if err := e.get(ctx, set, name, s); err != nil {
		return why.View{}, err
	}
	joined := inventory.Join(nil, []v1beta1.MachineSet{*s}, e.listMachines(ctx, s.Namespace))
	f := why.FleetFacts{Set: s, Machines: joined.Machines(s)}
	return e.fleetWhy(ctx, f, "machineset/"+name, s.Namespace, s.ReplicasOrDefault()), nil
}

func (e *explainer) classWhy(ctx context.Context, name string) (why.View, error) {
	f := why.ClassFacts{Class: &v1beta1.MachineClass{}}
	if err := e.get(ctx, class, name, f.Class); err != nil {
		return why.View{}, err
	}
	process, unread := e.process(ctx, providerProcess+f.Class.Spec.Provider, f.Class.Namespace, e.system)
	if f.Provider = process; unread != "" {
		e.unread = append(e.unread, unread)
	}
	return why.View{Now: e.clock.Now(), Object: "machineclass/" + name, Namespace: f.Class.Namespace,
		Findings: why.ExplainClass(f), ReadErrors: e.unread}, nil
}

func (e *explainer) listSets(ctx context.Context, namespace string) []v1beta1.MachineSet {
	var list v1beta1.MachineSetList
	if err := e.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		e.unread = append(e.unread, fmt.Sprintf("Sets could not be listed, so the sets of machines are left out: %v", err))
	}
	return list.Items
}

func (e *explainer) migrationWhy(ctx context.Context, name string) (why.View, error) {
	m := &v1beta1.Migration{}
	if err := e.get(ctx, migration, name, m); err != nil {
		return why.View{}, err
	}
	status := e.statusOf(ctx, m, e.system)
	return why.View{Now: status.Now, Object: "migration/" + m.Name, Namespace: m.Namespace, State: string(m.Status.Phase),
		Findings: migrate.Explain(m, status), ReadErrors: status.ReadErrors}, nil
}

func (e *explainer) listMachines(ctx context.Context, namespace string) []v1beta1.Machine {
	var list v1beta1.MachineList
	if err := e.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		e.unread = append(e.unread, fmt.Sprintf("Machines could not be listed, so they are left out: %v", err))
	}
	return list.Items
}

func (e *explainer) fleetWhy(ctx context.Context, f why.FleetFacts, object, namespace string, replicas int32) why.View {
	process, unread := e.process(ctx, managerProcess, namespace, e.system)
	if f.Manager = process; unread != "" {
		e.unread = append(e.unread, unread)
	}
	f.Now = e.clock.Now()
	var failures []why.Failure
	if f.Deployment != nil {
		failures = why.FailuresOf(f.Deployment)
	}
	return why.View{
		Failures: failures, Now: f.Now, Object: object, Namespace: namespace,
		State:    fmt.Sprintf("%s, %d wanted", wording.Count(len(f.Machines), "machine"), replicas),
		Findings: why.ExplainFleet(f), ReadErrors: e.unread,
	}
}
