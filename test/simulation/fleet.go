package simulation

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

const (
	namespace  = "fleet"
	deployment = "web"
)

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

func edit(name string, change func(*v1beta1.MachineDeployment)) Action {
	return editNamed(deployment, name, change)
}

func editNamed(which, name string, change func(*v1beta1.MachineDeployment)) Action {
	return Action{Name: name, Do: func(ctx context.Context, _ *World, c client.Client) error {
		d := &v1beta1.MachineDeployment{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: which}, d); err != nil {
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

func deleteMachine(i int) Action {
	return Action{Name: "delete a machine", Do: func(ctx context.Context, w *World, c client.Client) error {
		machines := w.control.Snapshot(v1beta1.GroupVersion.WithKind("Machine"))
		if len(machines) == 0 {
			return nil
		}
		m := machines[i%len(machines)]
		w.logf("the machine is %s", m.GetName())
		return client.IgnoreNotFound(c.Delete(ctx,
			&v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: m.GetNamespace(), Name: m.GetName()}}))
	}}
}

func breakInstance(i int) Action {
	return Action{Name: "break an instance", Do: func(_ context.Context, w *World, _ client.Client) error {
		var candidates []*instance
		for _, in := range w.recordedInstances() {
			if node := w.node(in.NodeName); node != nil && node.Spec.ProviderID == in.ProviderID &&
				readiness(node) == corev1.ConditionTrue {
				candidates = append(candidates, in)
			}
		}
		if len(candidates) == 0 {
			return nil
		}
		broken := candidates[i%len(candidates)]
		w.logf("the instance is %s of %s", broken.ProviderID, broken.MachineKey)
		w.broken++
		w.cloud.instances = slices.DeleteFunc(w.cloud.instances, func(in *instance) bool { return in == broken })
		return nil
	}}
}

// recordedInstances returns the instances whose provider IDs are in the status of Machines. If an instance vanishes
// before it is recorded, its Node may remain, because its machine is unknown.
func (w *World) recordedInstances() (found []*instance) {
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

func label(value string) Action {
	return edit("label the machines "+value, func(d *v1beta1.MachineDeployment) {
		d.Spec.Template.ObjectMeta.Labels["tier"] = value
	})
}

// upgrade returns an action that changes the version. With updates in place, the cloud updates the instances.
func upgrade(version string) Action {
	return edit("upgrade to "+version, func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.Version = version })
}

func (d Action) onceThereIs(n int, kind string) Action {
	d.Name += fmt.Sprintf(" once there is %s %d", kind, n)
	d.Condition = func(w *World) bool {
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
