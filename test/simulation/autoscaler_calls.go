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

// call describes one call to the autoscaler's cloud provider interface. A call sends several requests, one after
// another.
type call struct {
	// next sends the next request of the call. After that, next is the function that sends the following request of the
	// call, if there is one.
	next    func(*autoscaler) error
	delta   int
	victims []client.ObjectKey
	size    int
	machine *v1beta1.Machine
	// failure is the error of a failed scale-down. It is set while the autoscaler removes the delete mark again.
	failure error
}

type instanceState int

const (
	running  instanceState = iota // has an instance, and counts
	pending                       // has no instance yet
	failed                        // will not become a Node
	deleting                      // is being deleted
)

func instanceStateOf(m *v1beta1.Machine) instanceState {
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

func (a *autoscaler) decide() *call {
	r := a.world.random
	if a.ignoresGroup() {
		a.logf("does not know the capacity of a node")
		return nil
	}
	switch r.IntN(8) {
	case 0, 1:
		return &call{delta: 1 + r.IntN(2), next: (*autoscaler).readSize}
	case 2:
		return &call{delta: -1 - r.IntN(2), next: (*autoscaler).readSize}
	}
	n := 1 + r.IntN(4)/3
	c := &call{victims: a.chooseVictims(n), next: (*autoscaler).readSize}
	a.logf("decides to delete the nodes of %v", c.victims)
	if len(c.victims) == 0 {
		return nil
	}
	return c
}

// scaleDownDisabled is a Node annotation that keeps the autoscaler from deleting the Node.
const scaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"

func (a *autoscaler) chooseVictims(n int) (found []client.ObjectKey) {
	byID := map[string]client.ObjectKey{}
	var hopeless []client.ObjectKey
	for _, m := range a.machines() {
		key := client.ObjectKeyFromObject(m)
		switch instanceStateOf(m) {
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
			return fmt.Errorf("removing %d machines from the size %d would go below the minimum %d", len(c.victims),
				c.size, a.smallest)
		}
		return a.checkNextVictim()
	}
	if c.delta < 0 {
		counting := 0
		for _, m := range a.machines() {
			if instanceStateOf(m) == running {
				counting++
			}
		}
		if c.size+c.delta < counting {
			return fmt.Errorf("size %d%d is lower than the %d nodes that exist", c.size, c.delta, counting)
		}
	}
	c.next = (*autoscaler).writeSize
	return nil
}

// checkNextVictim checks whether the next machine may be deleted. The size is not lowered for a machine that is already
// being deleted.
func (a *autoscaler) checkNextVictim() error {
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

// markVictim sets the delete mark on the machine that was read before. If the machine has changed since, the whole call
// fails.
func (a *autoscaler) markVictim() error {
	c := a.call
	m := c.machine.DeepCopy()
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	// Like the real autoscaler, write the time as Go prints it: with the monotonic clock reading at the end.
	m.Annotations[v1beta1.AnnotationDeleteMachine] = fmt.Sprintf("%s m=+%.9f", a.world.clock.at.UTC(),
		a.world.clock.Since(epoch).Seconds())
	if err := a.put(m); err != nil {
		return err
	}
	a.logf("marked %s", m.Name)
	c.next = (*autoscaler).writeSize
	return nil
}

func (a *autoscaler) put(m *v1beta1.Machine) error {
	if err := a.randomRefusal(); err != nil {
		return err
	}
	return a.client().Update(context.Background(), m)
}

func (a *autoscaler) writeSize() error {
	c := a.call
	size := c.size + c.delta
	if len(c.victims) > 0 {
		size = c.size - 1
	}
	if size < a.smallest || size > maxSize {
		return fmt.Errorf("size %d is not between %d and %d", size, a.smallest, maxSize)
	}
	d := &v1beta1.MachineDeployment{}
	d.Namespace, d.Name = groupKey.Namespace, groupKey.Name
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, size))
	err := a.randomRefusal()
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
	a.logf("set the size to %d", size)
	c.size = size
	if len(c.victims) == 0 {
		return nil
	}
	c.victims = c.victims[1:]
	return a.checkNextVictim()
}

// readToUnmark reads the machine after a failed scale-down. Then unmark removes its delete mark.
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

func (a *autoscaler) victim() client.ObjectKey {
	if a.call == nil || len(a.call.victims) == 0 {
		return client.ObjectKey{}
	}
	return a.call.victims[0]
}
