package cli

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
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
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/wording"
)

func whyCommand(env *Env) *cobra.Command {
	var s scope
	var asTimeline bool
	cmd := &cobra.Command{
		Use:   "why TYPE/NAME",
		Short: "Say what a machine, a node's machine, a deployment or a class waits for, and what you can do",
		Long: `Say in plain words what a machine waits for: since when, until when or what ends it, and what you can do. Of a deployment
or a set it says why it is not what was declared, and what its machines wait for. Of a class it says why it is not
Ready, and what else is wrong.

A node's name finds its machine, in any namespace that you may list.

With --timeline it shows how a machine came to be where it is: the steps one after the other, how long each took,
what it waited for, and its share of the whole. It goes by the times of conditions, events and the Node, and says what
these no longer know.`,
		Example: `  # Why is this machine not a node yet, or not gone yet?
  machinist why machine/workers-abc12-x7k2p

  # Why does this rollout stand?
  machinist why md/workers

  # Why is this class not Ready?
  machinist why mclass/small

  # What is going on with the machine of this node?
  machinist why node/worker-17

  # Where did the time go until this machine ran?
  machinist why machine/workers-abc12-x7k2p --timeline`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 2 {
				return fmt.Errorf("%d words: say what you ask about as TYPE/NAME, such as machine/NAME, md/NAME or node/NAME",
					len(args))
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
				return fmt.Errorf("--timeline is about one machine: name it as machine/NAME or node/NAME, not %s/%s", k, name)
			}
			c, err := env.Connect()
			if err != nil {
				return err
			}
			ask := asker{Cluster: c, system: s.system}
			var view View
			if asTimeline {
				view, err = ask.timeline(cmd.Context(), k, name)
			} else {
				view, err = ask.why(cmd.Context(), k, name)
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

// asker reads what is needed to say why.
type asker struct {
	*Cluster
	system string
	unread []string
}

func (a *asker) why(ctx context.Context, k kind, name string) (why.View, error) {
	switch k {
	case deployment:
		return a.deploymentWhy(ctx, name)
	case set:
		return a.setWhy(ctx, name)
	case migration:
		return a.migrationWhy(ctx, name)
	case class:
		return a.classWhy(ctx, name)
	}
	m, err := a.theMachine(ctx, k, name)
	if err != nil {
		return why.View{}, err
	}
	return a.machineWhy(ctx, m), nil
}

// theMachine reads the machine that was asked about, by its name or by that of its node.
func (a *asker) theMachine(ctx context.Context, k kind, name string) (*v1beta1.Machine, error) {
	if k == node {
		return a.machineOfNode(ctx, name)
	}
	m := &v1beta1.Machine{}
	return m, a.get(ctx, k, name, m)
}

// get reads an object that was asked for.
func (c *Cluster) get(ctx context.Context, k kind, name string, o client.Object) error {
	switch err := c.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: name}, o); {
	case apierrors.IsNotFound(err) && !isUnknownResource(err):
		return fmt.Errorf("%s %q not found in namespace %q", k, name, c.Namespace)
	case err != nil:
		return c.Explain(err)
	}
	return nil
}

// beside reads an object that would help, and notes why if it cannot be. It reports whether it is there, and whether
// it is certain that it is not.
func (a *asker) beside(ctx context.Context, what, namespace, name string, o client.Object) (there, missing bool) {
	switch err := a.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o); {
	case err == nil:
		return true, false
	case apierrors.IsNotFound(err) && !isUnknownResource(err):
		return false, true
	case apierrors.IsForbidden(err):
		a.unread = append(a.unread, fmt.Sprintf("You may not read %s %s, so nothing is said of it.", what, name))
	default:
		a.unread = append(a.unread, fmt.Sprintf("%s %s could not be read: %v", what, name, err))
	}
	return false, false
}

// machineOfNode finds the machine of a node: in all namespaces, or where that may not be asked in the chosen one.
func (a *asker) machineOfNode(ctx context.Context, name string) (*v1beta1.Machine, error) {
	var list v1beta1.MachineList
	where := "any namespace"
	err := a.List(ctx, &list)
	if apierrors.IsForbidden(err) {
		where = fmt.Sprintf("namespace %q, the only one that was looked in, since you may not list machines in all",
			a.Namespace)
		err = a.List(ctx, &list, client.InNamespace(a.Namespace))
	}
	if err != nil {
		return nil, a.Explain(err)
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
	return nil, fmt.Errorf("no machine in %s has the node %q", where, name)
}

func (a *asker) machineWhy(ctx context.Context, m *v1beta1.Machine) why.View {
	f := why.Facts{Machine: m}
	f.Set, f.Deployment = a.ownersOf(ctx, m)
	if ref := m.Spec.ClassRef; ref != nil {
		found := &v1beta1.MachineClass{}
		there, missing := a.beside(ctx, "machineclass", m.Namespace, ref.Name, found)
		if f.ClassMissing = missing; there {
			f.Class = found
		}
	}
	if metav1.GetControllerOf(m) == nil {
		f.Sets = a.sets(ctx, m.Namespace)
	}
	checks := a.checks(ctx, m.Namespace)
	if f.Checks = selecting(checks, m); len(f.Checks) == 0 && why.Blocking(m) != nil {
		f.Unchecked = slices.DeleteFunc(a.machines(ctx, m.Namespace), func(other v1beta1.Machine) bool {
			return !machinestate.Live(&other) || len(selecting(checks, &other)) > 0
		})
	}
	provider := providerOf(m)
	if provider == "" && f.Class != nil {
		provider = f.Class.Spec.Provider
	}
	if provider != "" {
		process, unread := a.process(ctx, providerProcess+provider, m.Namespace, a.system)
		if f.Provider = process; unread != "" {
			a.unread = append(a.unread, unread)
		}
	}
	f.Now = a.clock.Now()
	f.Denied = a.denied(ctx, m, f.Now)
	view := why.View{Now: f.Now, Object: "machine/" + m.Name, Namespace: m.Namespace, State: string(m.Status.Phase),
		Findings: why.Explain(f), Unread: a.unread}
	if f.Deployment != nil {
		view.Failures = slices.DeleteFunc(why.FailuresOf(f.Deployment), func(failure why.Failure) bool {
			return failure.Machine != m.Name || machinestate.Failed(m)
		})
	}
	if m.Status.NodeRef != nil {
		view.Node = m.Status.NodeRef.Name
	}
	return view
}

// denied returns what does not let a machine be replaced that must be, nil if nothing does.
func (a *asker) denied(ctx context.Context, m *v1beta1.Machine, now time.Time) *disruption.Denial {
	candidate := disruption.Candidate{Machine: m, Reason: v1beta1.DisruptionRemediation}
	switch {
	case !machinestate.Live(m):
		return nil
	case machinestate.ToBeReplaced(m):
	case machinestate.Exchanged(m):
		candidate.Reason = disruption.ReasonOfExchange(m)
	default:
		return nil
	}
	v, unread, err := a.disruptions(ctx, m.Namespace, now)
	if err != nil {
		unread = "Disruption budgets could not be read, so nothing is said of them: " + err.Error()
	}
	if unread != "" {
		a.unread = append(a.unread, unread)
	}
	if v == nil {
		return nil
	}
	if _, denied := v.Ask([]disruption.Candidate{candidate}, nil); len(denied) > 0 {
		return &denied[0]
	}
	return nil
}

// ownersOf reads the set and the deployment that have the machine, as far as there are any.
func (a *asker) ownersOf(ctx context.Context, m *v1beta1.Machine) (*v1beta1.MachineSet, *v1beta1.MachineDeployment) {
	owner := metav1.GetControllerOf(m)
	if owner == nil || owner.Kind != "MachineSet" {
		return nil, nil
	}
	foundSet := &v1beta1.MachineSet{}
	if there, _ := a.beside(ctx, "machineset", m.Namespace, owner.Name, foundSet); !there || foundSet.UID != owner.UID {
		return nil, nil
	}
	if owner = metav1.GetControllerOf(foundSet); owner == nil || owner.Kind != "MachineDeployment" {
		return foundSet, nil
	}
	found := &v1beta1.MachineDeployment{}
	if there, _ := a.beside(ctx, "machinedeployment", m.Namespace, owner.Name, found); !there || found.UID != owner.UID {
		return foundSet, nil
	}
	return foundSet, found
}

// checks returns the health checks of a namespace.
func (a *asker) checks(ctx context.Context, namespace string) []v1beta1.MachineHealthCheck {
	var list v1beta1.MachineHealthCheckList
	if err := a.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		switch {
		case meta.IsNoMatchError(err), isUnknownResource(err):
		case apierrors.IsForbidden(err):
			a.unread = append(a.unread, "You may not list health checks, so nothing is said of them.")
		default:
			a.unread = append(a.unread, fmt.Sprintf("Health checks could not be listed: %v", err))
		}
		return nil
	}
	return list.Items
}

// selecting returns the health checks that select a machine.
func selecting(checks []v1beta1.MachineHealthCheck, m *v1beta1.Machine) []v1beta1.MachineHealthCheck {
	return slices.DeleteFunc(slices.Clone(checks), func(c v1beta1.MachineHealthCheck) bool {
		selector, err := metav1.LabelSelectorAsSelector(&c.Spec.Selector)
		return err != nil || !selector.Matches(labels.Set(m.Labels))
	})
}

func (a *asker) deploymentWhy(ctx context.Context, name string) (why.View, error) {
	d := &v1beta1.MachineDeployment{}
	if err := a.get(ctx, deployment, name, d); err != nil {
		return why.View{}, err
	}
	joined := inventory.Join([]v1beta1.MachineDeployment{*d}, a.sets(ctx, d.Namespace), a.machines(ctx, d.Namespace))
	f := why.FleetFacts{Deployment: d, Machines: joined.AllMachines(d)}
	return a.fleetWhy(ctx, f, "machinedeployment/"+name, d.Namespace, d.ReplicasOrDefault()), nil
}

func (a *asker) setWhy(ctx context.Context, name string) (why.View, error) {
	s := &v1beta1.MachineSet{}
	if err := a.get(ctx, set, name, s); err != nil {
		return why.View{}, err
	}
	joined := inventory.Join(nil, []v1beta1.MachineSet{*s}, a.machines(ctx, s.Namespace))
	f := why.FleetFacts{Set: s, Machines: joined.Machines(s)}
	return a.fleetWhy(ctx, f, "machineset/"+name, s.Namespace, s.ReplicasOrDefault()), nil
}

func (a *asker) classWhy(ctx context.Context, name string) (why.View, error) {
	f := why.ClassFacts{Class: &v1beta1.MachineClass{}}
	if err := a.get(ctx, class, name, f.Class); err != nil {
		return why.View{}, err
	}
	process, unread := a.process(ctx, providerProcess+f.Class.Spec.Provider, f.Class.Namespace, a.system)
	if f.Provider = process; unread != "" {
		a.unread = append(a.unread, unread)
	}
	return why.View{Now: a.clock.Now(), Object: "machineclass/" + name, Namespace: f.Class.Namespace,
		Findings: why.ExplainClass(f), Unread: a.unread}, nil
}

// sets lists the sets of a namespace, and notes why if that is not possible.
func (a *asker) sets(ctx context.Context, namespace string) []v1beta1.MachineSet {
	var list v1beta1.MachineSetList
	if err := a.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		a.unread = append(a.unread, fmt.Sprintf("Sets could not be listed, so the sets of machines are left out: %v", err))
	}
	return list.Items
}

func (a *asker) migrationWhy(ctx context.Context, name string) (why.View, error) {
	m := &v1beta1.Migration{}
	if err := a.get(ctx, migration, name, m); err != nil {
		return why.View{}, err
	}
	status := a.statusOf(ctx, m, a.system)
	return why.View{Now: status.Now, Object: "migration/" + m.Name, Namespace: m.Namespace, State: string(m.Status.Phase),
		Findings: migrate.Explain(m, status), Unread: status.Unread}, nil
}

func (a *asker) machines(ctx context.Context, namespace string) []v1beta1.Machine {
	var list v1beta1.MachineList
	if err := a.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		a.unread = append(a.unread, fmt.Sprintf("Its machines could not be listed, so nothing is said of them: %v", err))
	}
	return list.Items
}

func (a *asker) fleetWhy(ctx context.Context, f why.FleetFacts, object, namespace string, replicas int32) why.View {
	process, unread := a.process(ctx, managerProcess, namespace, a.system)
	if f.Manager = process; unread != "" {
		a.unread = append(a.unread, unread)
	}
	f.Now = a.clock.Now()
	var failures []why.Failure
	if f.Deployment != nil {
		failures = why.FailuresOf(f.Deployment)
	}
	return why.View{
		Failures: failures, Now: f.Now, Object: object, Namespace: namespace,
		State:    fmt.Sprintf("%s, %d wanted", wording.Count(len(f.Machines), "machine"), replicas),
		Findings: why.ExplainFleet(f), Unread: a.unread,
	}
}
