package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// adoptions returns actions in which an administrator adopts an instance of another tool, in varying order. The script
// may repeat the adoption once, and may delete the machine.
func adoptions(r *rand.Rand) []Action {
	const vm = "vm-1"
	actions := []Action{adoptingClass(), bringInstance(vm), adopt(vm, vm)}
	if r.IntN(4) == 0 {
		actions[1], actions[2] = actions[2], actions[1]
	}
	twin := r.IntN(2) == 0
	if twin {
		actions = slices.Insert(actions, 1+r.IntN(len(actions)), adopt(vm+"-twin", vm))
	}
	if r.IntN(2) == 0 {
		victim := vm
		if twin && r.IntN(2) == 0 {
			victim += "-twin"
		}
		end := deleteNamed(victim)
		end.MinDelay = []time.Duration{0, 0, time.Second, 40 * time.Second}[r.IntN(4)]
		actions = append(actions, end)
	}
	return actions
}

func adoptingClass() Action {
	return Action{Name: "create class legacy", Do: func(ctx context.Context, _ *World, c client.Client) error {
		o := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "legacy"}}
		o.Spec.Provider, o.Spec.Adoption = providerName, v1beta1.AdoptionAllow
		o.Spec.ProviderSpec = &runtime.RawExtension{Raw: []byte(`{"kind":"Fake","image":"legacy"}`)}
		o.Spec.CredentialsRef = &v1beta1.LocalRef{Name: "credentials"}
		return c.Create(ctx, o)
	}}
}

func bringInstance(name string) Action {
	return Action{Name: "add instance " + name, Do: func(_ context.Context, w *World, _ client.Client) error {
		w.cloud.instances = append(w.cloud.instances, &instance{
			born: w.clock.at, visible: w.clock.at,
			Instance: provider.Instance{
				ProviderID: idOf(name), State: provider.StateRunning, NodeName: name, Type: "old", LaunchTime: w.clock.at,
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.9.9.9"}},
			},
		})
		return nil
	}}
}

func idOf(name string) string { return "fake:///" + name }

func adopt(machine, of string) Action {
	return Action{Name: fmt.Sprintf("create machine %s for instance %s", machine, of),
		Do: func(ctx context.Context, _ *World, c client.Client) error {
			m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: machine}}
			m.Spec.ClassRef, m.Spec.ProviderID = &v1beta1.LocalRef{Name: "legacy"}, idOf(of)
			return c.Create(ctx, m)
		}}
}

func deleteNamed(machine string) Action {
	return Action{Name: "delete machine " + machine, Do: func(ctx context.Context, _ *World, c client.Client) error {
		return client.IgnoreNotFound(c.Delete(ctx,
			&v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: machine}}))
	}}
}

type lateTags struct {
	at    time.Time
	req   provider.AdoptRequest
	retag *retag // nil if the tags are set
}

func (c *Cloud) elapseTagging(w *World, now time.Time) {
	late := c.tagging
	c.tagging = nil
	for _, l := range late {
		switch {
		case l.at.After(now):
			c.tagging = append(c.tagging, l)
		case l.retag != nil:
			w.logf("cloud: the tags of %s are removed from %s late (%v)", l.retag.machine.Name, l.retag.providerID,
				c.retag(*l.retag))
		default:
			_, err := c.adopt(l.req)
			w.logf("cloud: the tags of %s are set on %s late (%v)", l.req.Machine.Name, l.req.ProviderID, err)
		}
	}
}

func (c *Cloud) adopt(req provider.AdoptRequest) (*provider.Instance, error) {
	in, err := c.find(req.ProviderID, "", "", "", "")
	switch {
	case err != nil:
		return nil, err
	case in.MachineUID != "" && !req.Replaces(&in.Instance) && in.OwnedBy(req.ClusterID, req.Machine) != nil:
		return nil, in.OwnedBy(req.ClusterID, req.Machine)
	}
	in.ClusterID, in.MachineUID = req.Tags[provider.TagCluster], types.UID(req.Tags[provider.TagMachineUID])
	in.MachineKey = req.Tags[provider.TagMachine]
	in.spec = string(req.Class.Spec)
	return in.describe(), nil
}

// Adopt implements provider.Adopter.
func (d driver) Adopt(_ context.Context, req provider.AdoptRequest) (out *provider.Instance, err error) {
	err = d.do("adopt", req.Machine, false, func(late bool) error {
		if late {
			d.tagging = append(d.tagging, lateTags{at: d.now().Add(d.Settle / 2), req: req})
			return nil
		}
		var err error
		out, err = d.adopt(req)
		d.process.world.oracle.mayTag(req)
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// mayTakeDown checks a request to delete an instance. Machinist must not delete an instance without its own tags.
func (o *oracle) mayTakeDown(in *instance, m provider.Machine) {
	o.mayCollect(in)
	o.mayTouch("remove", in.ProviderID)
	o.mayDisturb(in, m.UID, true)
	if in.owner() == "" {
		o.breach("adoption", "instance %s is to be deleted for machine %s, but does not have its tags", in.ProviderID, m.Name)
	}
}

func providerIDOf(node *corev1.Node) string {
	if node == nil {
		return ""
	}
	return node.Spec.ProviderID
}

func adopters(machines []client.Object) (n int) {
	for _, o := range machines {
		if metav1.GetControllerOfNoCopy(o) == nil {
			n++
		}
	}
	return n
}

// byHand returns the given machines, except machines whose instance belongs to another machine or no longer exists.
// byHand calls report if such a machine is unexpected. untagged is the number of instances without a machine.
func byHand(w *World, machines []client.Object, report func(string, ...any)) (rest []client.Object, untagged int) {
	for _, in := range w.cloud.instances {
		if in.owner() == "" {
			untagged++
		}
	}
	for _, o := range machines {
		m := o.(*v1beta1.Machine)
		launched := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched)
		in := w.cloud.byID(m.Spec.ProviderID)
		switch {
		case metav1.GetControllerOfNoCopy(m) != nil || in != nil && in.owner() == m.UID || !m.DeletionTimestamp.IsZero():
			rest = append(rest, m)
		case in != nil && in.owner() == "":
			report("instance %s was not adopted: %s", in.ProviderID, conditionsOf(m.Status.Conditions))
		case launched == nil || launched.Reason != v1beta1.ReasonDuplicateProviderID &&
			launched.Reason != v1beta1.ReasonAdoptionRefused:
			report("machine %s has no instance and no condition that explains this: %s", m.Name,
				conditionsOf(m.Status.Conditions))
		case launched.Reason == v1beta1.ReasonDuplicateProviderID && len(machines) < 2:
			report("machine %s still waits for another machine", m.Name)
		}
	}
	return rest, untagged
}
