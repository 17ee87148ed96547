package simulation

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/invariants"
)

const (
	namespace  = "fleet"
	deployment = "web"
)

// classes makes the classes of a fleet: two with a bootstrap token in their user data, and one without.
func classes(ctx context.Context, c client.Client) error {
	for _, name := range []string{"credentials", "plain", "token"} {
		if err := c.Create(ctx, secretOf(name)); err != nil {
			return err
		}
	}
	for _, class := range []struct{ name, userData string }{{"a", "plain"}, {"b", "plain"}, {"c", "plain"},
		{"with-token", "token"}, {agentClass, "plain"}} {
		if err := c.Create(ctx, classOf(class.name, class.userData)); err != nil {
			return err
		}
	}
	return nil
}

// fleet is a deployment to create.
func fleet(replicas int32, class string, change ...func(*v1beta1.MachineDeployment)) *v1beta1.MachineDeployment {
	d := &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: deployment}}
	d.Spec.Replicas = &replicas
	d.Spec.Selector.MatchLabels = map[string]string{"app": "web"}
	d.Spec.Template.ObjectMeta.Labels = map[string]string{"app": "web"}
	d.Spec.Template.Spec.ClassRef = &v1beta1.LocalRef{Name: class}
	for _, f := range change {
		f(d)
	}
	return d
}

// edit changes the deployment as a person does.
func edit(name string, change func(*v1beta1.MachineDeployment)) Action {
	return Action{Name: name, Do: func(ctx context.Context, _ *World, c client.Client) error {
		d := &v1beta1.MachineDeployment{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: deployment}, d); err != nil {
			return client.IgnoreNotFound(err)
		}
		before := d.DeepCopy()
		change(d)
		return c.Patch(ctx, d, client.MergeFrom(before))
	}}
}

func scale(n int32) Action {
	return edit(fmt.Sprintf("scale to %d", n), func(d *v1beta1.MachineDeployment) { d.Spec.Replicas = &n })
}

func roll(class string) Action {
	return edit("roll to class "+class, func(d *v1beta1.MachineDeployment) {
		d.Spec.Template.Spec.ClassRef = &v1beta1.LocalRef{Name: class}
	})
}

func create(d *v1beta1.MachineDeployment) Action {
	return Action{Name: "create the deployment", Do: func(ctx context.Context, _ *World, c client.Client) error {
		return c.Create(ctx, d.DeepCopy())
	}}
}

func remove() Action {
	return Action{Name: "delete the deployment", Do: func(ctx context.Context, _ *World, c client.Client) error {
		d := &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: deployment}}
		return client.IgnoreNotFound(c.Delete(ctx, d, client.PropagationPolicy(metav1.DeletePropagationBackground)))
	}}
}

// kill ends a process at a moment at which it may be doing nothing.
func kill(process string) Action {
	return Action{Name: "kill the " + process, Do: func(_ context.Context, w *World, _ client.Client) error {
		for _, p := range w.processes {
			if p.name == process && !p.dead {
				p.die()
			}
		}
		return nil
	}}
}

// deleteMachine deletes one of the machines, whichever is the i-th then.
func deleteMachine(i int) Action {
	return Action{Name: "delete a machine", Do: func(ctx context.Context, w *World, c client.Client) error {
		machines := w.control.Snapshot(v1beta1.GroupVersion.WithKind("Machine"))
		if len(machines) == 0 {
			return nil
		}
		m := machines[i%len(machines)]
		w.logf("it is %s", m.GetName())
		return client.IgnoreNotFound(c.Delete(ctx,
			&v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: m.GetNamespace(), Name: m.GetName()}}))
	}}
}

// breakInstance lets the instance of one of the Ready nodes vanish, whichever is the i-th then.
func breakInstance(i int) Action {
	return Action{Name: "break an instance", Do: func(_ context.Context, w *World, _ client.Client) error {
		var candidates []*instance
		for _, in := range w.recorded() {
			if node := w.node(in.NodeName); node != nil && node.Spec.ProviderID == in.ProviderID &&
				readiness(node) == corev1.ConditionTrue {
				candidates = append(candidates, in)
			}
		}
		if len(candidates) == 0 {
			return nil
		}
		broken := candidates[i%len(candidates)]
		w.logf("it is %s of %s", broken.ProviderID, broken.MachineKey)
		w.cloud.instances = slices.DeleteFunc(w.cloud.instances, func(in *instance) bool { return in == broken })
		return nil
	}}
}

// recorded returns the instances that their Machines know of. Of one that came and went before it was recorded, a
// Node may be left that nobody can tell whose it was.
func (w *World) recorded() (found []*instance) {
	ids := map[string]bool{}
	for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("Machine")) {
		ids[o.(*v1beta1.Machine).Spec.ProviderID] = true
	}
	for _, in := range w.cloud.instances {
		if ids[in.ProviderID] {
			found = append(found, in)
		}
	}
	return found
}

func pause(paused bool) Action {
	return edit(fmt.Sprintf("paused: %t", paused), func(d *v1beta1.MachineDeployment) { d.Spec.Paused = paused })
}

// label changes something that does not roll.
func label(value string) Action {
	return edit("label the machines "+value, func(d *v1beta1.MachineDeployment) {
		d.Spec.Template.ObjectMeta.Labels["tier"] = value
	})
}

// upgrade changes the version, which the cloud does in place where it is asked to.
func upgrade(version string) Action {
	return edit("upgrade to "+version, func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.Version = version })
}

// onceThereIs lets a action wait for the n-th object of a kind, or instance.
func (d Action) onceThereIs(n int, kind string) Action {
	d.Name += fmt.Sprintf(" once there is %s %d", kind, n)
	d.After = func(w *World) bool {
		switch kind {
		case "instance":
			return len(w.cloud.instances) >= n
		case "Node":
			return len(w.target.Snapshot(nodeKind)) >= n
		}
		return len(w.control.Snapshot(v1beta1.GroupVersion.WithKind(kind))) >= n
	}
	return d
}

// Settled says what is missing until the fleet is what its deployment asks for, down to the last Node, instance and
// number in a status; "" if nothing is.
func Settled(w *World) string {
	if w.legacy != nil {
		return w.legacy.missing()
	}
	missing := append(w.autoscaler.missing(), w.unsettledPods()...)
	missing = append(missing, w.safetyMissing()...)
	missing = append(missing, w.unsettledNamespaces()...)
	report := func(format string, args ...any) { missing = append(missing, fmt.Sprintf(format, args...)) }
	kind := func(name string) schema.GroupVersionKind { return v1beta1.GroupVersion.WithKind(name) }
	sets, machines := w.control.Snapshot(kind("MachineSet")), w.control.Snapshot(kind("Machine"))
	wanted, class, anyRevision := 0, "", false
	var d *v1beta1.MachineDeployment
	for _, o := range w.control.Snapshot(kind("MachineDeployment")) {
		d = o.(*v1beta1.MachineDeployment)
		wanted, class = invariants.Replicas(d.Spec.Replicas), d.Spec.Template.Spec.ClassRef.Name
		anyRevision = d.Spec.Strategy.Type == v1beta1.StrategyOnDelete
	}
	if d == nil && len(sets) > 0 {
		report("%d sets are left", len(sets))
	}
	if n := preservedCount(machines); n > 0 {
		report("%d machines are preserved", n)
	}
	machines, untagged := byHand(w, machines, report)
	for _, o := range machines {
		m := o.(*v1beta1.Machine)
		hand := metav1.GetControllerOfNoCopy(m) == nil
		switch {
		case !m.DeletionTimestamp.IsZero():
			report("machine %s is being deleted: %s", m.Name, conditionsOf(m.Status.Conditions))
		case m.Status.Phase != v1beta1.MachineRunning:
			report("machine %s is %s: %s", m.Name, m.Status.Phase, conditionsOf(m.Status.Conditions))
		case !upToDate(m):
			report("machine %s is not up to date: %s", m.Name, conditionsOf(m.Status.Conditions))
		case w.wrongVersion(m) != "":
			report("machine %s runs %s, not %s", m.Name, w.wrongVersion(m), m.Spec.Version)
		case anyRevision || hand:
		case m.Spec.ClassRef.Name != class || m.Spec.Version != d.Spec.Template.Spec.Version:
			report("machine %s is of class %s, not %s, version %q", m.Name, m.Spec.ClassRef.Name, class, m.Spec.Version)
		}
		if d != nil && !hand && m.Labels["tier"] != d.Spec.Template.ObjectMeta.Labels["tier"] {
			report("machine %s has the label %q", m.Name, m.Labels["tier"])
		}
		if n := len(w.cloud.of(m.UID)); n != 1 {
			report("machine %s has %d instances", m.Name, n)
		}
		switch node := w.node(nodeNameOf(m)); {
		case node == nil:
			report("machine %s has no node", m.Name)
		case m.Status.NodeRef == nil || m.Status.NodeRef.UID != node.UID:
			report("machine %s is not paired with its node", m.Name)
		case len(node.Spec.Taints) > 0 || node.Spec.Unschedulable:
			report("node %s cannot be used: %v", node.Name, node.Spec.Taints)
		}
	}
	if n := len(machines) - adopters(machines); n != wanted {
		report("there are %d machines, not %d", n, wanted)
	}
	all := wanted + adopters(machines) + untagged
	if n := len(w.cloud.instances) + len(w.cloud.late); n != all+w.strangersLeft() {
		report("there are %d instances, not %d", n, all+w.strangersLeft())
	}
	if n := len(w.target.Snapshot(nodeKind)) - w.leftNodes(); n != all {
		report("there are %d nodes, not %d", n, all)
	}
	if n := len(w.target.Snapshot(corev1.SchemeGroupVersion.WithKind("Secret"))) - w.leftTokens(); n != 0 {
		report("%d bootstrap tokens are left", n)
	}
	if d == nil || anyRevision {
		return strings.Join(missing, "; ")
	}
	for _, o := range sets {
		missing = append(missing, setMissing(o.(*v1beta1.MachineSet), &d.Spec.Template.Spec, wanted)...)
	}
	missing = append(missing, deploymentMissing(d, wanted)...)
	return strings.Join(missing, "; ")
}

// upToDate reports whether a machine's instance is what its spec asks for, as far as the machine says.
func upToDate(m *v1beta1.Machine) bool {
	c := findCondition(m, v1beta1.ConditionUpToDate)
	return c == nil || c.Status == metav1.ConditionTrue && c.ObservedGeneration == m.Generation
}

func setMissing(set *v1beta1.MachineSet, template *v1beta1.MachineSpec, wanted int) (missing []string) {
	n := 0
	if own := &set.Spec.Template.Spec; own.ClassRef.Name == template.ClassRef.Name && own.Version == template.Version {
		n = wanted
	}
	if got := invariants.Replicas(set.Spec.Replicas); got != n {
		missing = append(missing, fmt.Sprintf("set %s asks for %d, not %d", set.Name, got, n))
	}
	s := set.Status
	if s.ObservedGeneration != set.Generation {
		missing = append(missing, fmt.Sprintf("set %s: observedGeneration %d of %d", set.Name, s.ObservedGeneration,
			set.Generation))
	}
	for _, got := range []int32{s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.FullyLabeledReplicas} {
		if int(got) != n {
			missing = append(missing, fmt.Sprintf("the status of set %s is %d/%d/%d/%d, not %d", set.Name, s.Replicas,
				s.ReadyReplicas, s.AvailableReplicas, s.FullyLabeledReplicas, n))
			break
		}
	}
	return missing
}

func deploymentMissing(d *v1beta1.MachineDeployment, wanted int) (missing []string) {
	s := d.Status
	if s.ObservedGeneration != d.Generation {
		missing = append(missing, fmt.Sprintf("deployment: observedGeneration %d of %d", s.ObservedGeneration, d.Generation))
	}
	if !slices.Equal([]int32{s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, s.AvailableReplicas, s.UnavailableReplicas},
		[]int32{int32(wanted), int32(wanted), int32(wanted), int32(wanted), 0}) {
		missing = append(missing, fmt.Sprintf("the status of the deployment is %d/%d/%d/%d/%d, not %d", s.Replicas,
			s.UpdatedReplicas, s.ReadyReplicas, s.AvailableReplicas, s.UnavailableReplicas, wanted))
	}
	return missing
}

func conditionsOf(conditions []metav1.Condition) string {
	var out []string
	for _, c := range conditions {
		out = append(out, fmt.Sprintf("%s=%s (%s)", c.Type, c.Status, c.Reason))
	}
	return strings.Join(out, ", ")
}
