package simulation

import (
	"context"
	"fmt"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// call is a call of the cloud provider, of which one request is sent at a time.
type call struct {
	// next sends the next request, and sets next if there is another one.
	next func(*autoscaler) error
	// delta is by how much the size must change where no machines are named.
	delta int
	// victims are the machines to be deleted, those done with no more.
	victims []client.ObjectKey
	// size is what was read or written last.
	size int
	// machine is the first victim as it was read.
	machine *v1beta1.Machine
	// failure is why the scale-down failed, while the mark is taken back.
	failure error
}

// standing is what the autoscaler takes a machine for.
type standing int

const (
	running  standing = iota // it has an instance, and counts
	pending                  // it has none yet
	failed                   // it will not become a Node
	deleting                 // it goes
)

func standingOf(m *v1beta1.Machine) standing {
	switch {
	case m.Status.FailureMessage != "":
		return failed
	case m.Spec.ProviderID != "" && !m.DeletionTimestamp.IsZero():
		return deleting
	case m.Spec.ProviderID != "" || m.Status.NodeRef != nil:
		return running
	}
	return pending
}

// decide decides what to do, by what the caches show.
func (a *autoscaler) decide() *call {
	r := a.world.random
	if a.ignores() {
		a.logf("does not know what a node would offer")
		return nil
	}
	switch r.IntN(8) {
	case 0, 1:
		return &call{delta: 1 + r.IntN(2), next: (*autoscaler).readSize}
	case 2:
		return &call{delta: -1 - r.IntN(2), next: (*autoscaler).readSize}
	}
	n := 1 + r.IntN(4)/3
	c := &call{victims: a.unneeded(n), next: (*autoscaler).readSize}
	a.logf("deletes the nodes of %v", c.victims)
	if len(c.victims) == 0 {
		return nil
	}
	return c
}

// scaleDownDisabled keeps the autoscaler from deleting a Node.
const scaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"

// unneeded chooses n machines: those of Nodes, or what never became one, if there is any.
func (a *autoscaler) unneeded(n int) (found []client.ObjectKey) {
	byID := map[string]client.ObjectKey{}
	var hopeless []client.ObjectKey
	for _, m := range a.machines() {
		key := client.ObjectKeyFromObject(m)
		switch standingOf(m) {
		case running:
			byID[m.Spec.ProviderID] = key
		case pending:
			hopeless = append(hopeless, key)
		case failed:
			if m.DeletionTimestamp.IsZero() && m.Status.NodeRef == nil {
				hopeless = append(hopeless, key)
			}
		}
	}
	if len(hopeless) > 0 && a.world.random.IntN(2) == 0 {
		return hopeless[:min(n, len(hopeless))]
	}
	nodes := a.target.views[0].objects
	for _, i := range a.world.random.Perm(len(nodes)) {
		node := nodes[i].(*corev1.Node)
		if key, known := byID[node.Spec.ProviderID]; known && len(found) < n &&
			node.Annotations[scaleDownDisabled] != "true" {
			found = append(found, key)
		}
	}
	return found
}

// machines are those of the deployment that the cache shows.
func (a *autoscaler) machines() (found []*v1beta1.Machine) {
	v, err := a.control.viewOf(&v1beta1.Machine{})
	if err != nil {
		return nil
	}
	for _, o := range v.objects {
		if m := o.(*v1beta1.Machine); m.Labels["app"] == "web" {
			found = append(found, m)
		}
	}
	return found
}

var groupKey = types.NamespacedName{Namespace: namespace, Name: deployment}

// readSize reads the size and says what follows from it.
func (a *autoscaler) readSize() error {
	d, scale := &v1beta1.MachineDeployment{}, &autoscalingv1.Scale{}
	d.Namespace, d.Name = groupKey.Namespace, groupKey.Name
	if err := a.client().SubResource("scale").Get(context.Background(), d, scale); err != nil {
		return err
	}
	c := a.call
	c.size = int(scale.Spec.Replicas)
	a.logf("the size is %d", c.size)
	if len(c.victims) > 0 {
		if c.size-len(c.victims) < a.smallest {
			return fmt.Errorf("%d fewer than %d are fewer than %d", len(c.victims), c.size, a.smallest)
		}
		return a.beginVictim()
	}
	if c.delta < 0 {
		counting := 0
		for _, m := range a.machines() {
			if standingOf(m) == running {
				counting++
			}
		}
		if c.size+c.delta < counting {
			return fmt.Errorf("%d%d are fewer than the %d nodes that exist", c.size, c.delta, counting)
		}
	}
	c.next = (*autoscaler).writeSize
	return nil
}

// beginVictim checks the next machine to be deleted: one that is being deleted anyway lowers nothing.
func (a *autoscaler) beginVictim() error {
	c := a.call
	for ; len(c.victims) > 0; c.victims = c.victims[1:] {
		m := &v1beta1.Machine{}
		if err := a.control.Get(context.Background(), c.victims[0], m); err != nil {
			return err
		}
		if !m.DeletionTimestamp.IsZero() {
			continue
		}
		if err := a.inGroup(m); err != nil {
			return err
		}
		c.next = (*autoscaler).readVictim
		return nil
	}
	return nil
}

// inGroup looks whether a machine belongs to the deployment.
func (a *autoscaler) inGroup(m *v1beta1.Machine) error {
	set, d := &v1beta1.MachineSet{}, &v1beta1.MachineDeployment{}
	if err := a.ownerOf(m, set); err != nil {
		return err
	}
	return a.ownerOf(set, d)
}

func (a *autoscaler) ownerOf(owned, owner client.Object) error {
	for _, o := range owned.GetOwnerReferences() {
		if o.Controller != nil && *o.Controller {
			return a.control.Get(context.Background(), client.ObjectKey{Namespace: owned.GetNamespace(), Name: o.Name}, owner)
		}
	}
	return fmt.Errorf("%s has no owner", owned.GetName())
}

func (a *autoscaler) readVictim() error {
	c := a.call
	c.machine = &v1beta1.Machine{}
	c.next = (*autoscaler).markVictim
	return a.client().Get(context.Background(), c.victims[0], c.machine)
}

// markVictim marks a machine as it was read; if it is not any more, the whole call fails.
func (a *autoscaler) markVictim() error {
	c := a.call
	m := c.machine.DeepCopy()
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	// A time has its monotonic reading in what it says of itself.
	m.Annotations[v1beta1.AnnotationDeleteMachine] = fmt.Sprintf("%s m=+%.9f", a.world.clock.at.UTC(),
		a.world.clock.Since(epoch).Seconds())
	if err := a.put(m); err != nil {
		return err
	}
	a.logf("has marked %s", m.Name)
	c.next = (*autoscaler).writeSize
	return nil
}

func (a *autoscaler) put(m *v1beta1.Machine) error {
	if err := a.refused(); err != nil {
		return err
	}
	return a.client().Update(context.Background(), m)
}

// writeSize sets the size to what it was when it was read last, and what is to change.
func (a *autoscaler) writeSize() error {
	c := a.call
	size := c.size + c.delta
	if len(c.victims) > 0 {
		size = c.size - 1
	}
	if size < a.smallest || size > maxSize {
		return fmt.Errorf("%d is not between %d and %d", size, a.smallest, maxSize)
	}
	d := &v1beta1.MachineDeployment{}
	d.Namespace, d.Name = groupKey.Namespace, groupKey.Name
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, size))
	err := a.refused()
	if err == nil {
		err = a.client().SubResource("scale").Patch(context.Background(), d, patch,
			client.WithSubResourceBody(&autoscalingv1.Scale{}))
	}
	switch {
	case err != nil && len(c.victims) > 0:
		c.failure, c.next = err, (*autoscaler).readToUnmark
		return nil
	case err != nil:
		return err
	}
	a.logf("has set the size to %d", size)
	c.size = size
	if len(c.victims) == 0 {
		return nil
	}
	c.victims = c.victims[1:]
	return a.beginVictim()
}

// readToUnmark and unmark take a mark back that led to nothing.
func (a *autoscaler) readToUnmark() error {
	a.call.next = (*autoscaler).unmark
	return a.client().Get(context.Background(), a.call.victims[0], a.call.machine)
}

func (a *autoscaler) unmark() error {
	m := a.call.machine.DeepCopy()
	delete(m.Annotations, v1beta1.AnnotationDeleteMachine)
	if err := a.put(m); err != nil {
		return err
	}
	return a.call.failure
}

// victim is the machine that it has marked and lowers the size for.
func (a *autoscaler) victim() client.ObjectKey {
	if a.call == nil || len(a.call.victims) == 0 {
		return client.ObjectKey{}
	}
	return a.call.victims[0]
}
