package overshoot

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/bounds"
	"machinist.dev/machinist/internal/machine/preservation"
	"machinist.dev/machinist/internal/platform/index"
)

type fleet struct {
	// deployment is nil if the fleet is a standalone set.
	deployment *v1beta1.MachineDeployment
	// sets contains the sets of the deployment, or only the standalone set.
	sets     []*v1beta1.MachineSet
	live     map[types.UID]int
	examined int
}

func (f *fleet) root() client.Object {
	if f.deployment != nil {
		return f.deployment
	}
	return f.sets[0]
}

func (f *fleet) members() []client.Object {
	var all []client.Object
	if f.deployment != nil {
		all = append(all, f.deployment)
	}
	for _, set := range f.sets {
		all = append(all, set)
	}
	return all
}

// isFrozen reports whether this package has frozen the fleet. If a user froze the deployment, its label does not show
// whether this package froze the fleet too. In this case, the fleet counts as frozen if this package froze one of its
// sets.
func (f *fleet) isFrozen() bool {
	if root := f.root(); frozenByUs(root) || !frozen(root) {
		return frozenByUs(root)
	}
	for _, set := range f.sets {
		if frozenByUs(set) {
			return true
		}
	}
	return false
}

func (f *fleet) anyFrozenByUs() bool {
	for _, o := range f.members() {
		if frozenByUs(o) {
			return true
		}
	}
	return false
}

func (f *fleet) unfreeze() bool {
	for _, o := range f.members() {
		if _, asked := o.GetAnnotations()[v1beta1.AnnotationUnfreeze]; asked {
			return true
		}
	}
	return false
}

// wantedMachines returns the wanted number of machines, or false if the spec is invalid. In that case, no owner
// creates machines.
func (f *fleet) wantedMachines() (int, bool) {
	if f.deployment == nil {
		return int(f.sets[0].ReplicasOrDefault()), f.sets[0].Spec.Replicas != nil
	}
	if f.deployment.Spec.Replicas == nil {
		return 0, false
	}
	replicas := max(0, f.deployment.ReplicasOrDefault())
	limits, err := bounds.Resolve(f.deployment.Spec.Strategy, replicas)
	return int(replicas) + int(limits.MaxSurge), err == nil
}

func (f *fleet) recorded() int {
	n := 0
	for _, set := range f.sets {
		n += int(set.Status.Replicas)
	}
	if f.deployment != nil {
		n = max(n, int(f.deployment.Status.Replicas))
	}
	return n
}

func (f *fleet) count() int {
	n := 0
	for _, machines := range f.live {
		n += machines
	}
	return n
}

// frozenByUs reports whether the freeze label has this package's value. Users set other values.
func frozenByUs(o client.Object) bool {
	return o.GetLabels()[v1beta1.LabelFreeze] == v1beta1.ReasonOvershoot
}

func frozen(o client.Object) bool {
	_, ok := o.GetLabels()[v1beta1.LabelFreeze]
	return ok
}

func counts(m metav1.Object) bool {
	return m.GetDeletionTimestamp() == nil && !preservation.IsPreserved(m)
}

// find returns the fleet with the key. It does not count the fleet's machines. It returns nil if the deployment or the
// standalone set is missing or being deleted, or if the key names a set with an owner.
func find(ctx context.Context, reader client.Reader, key types.NamespacedName, indexed bool) (*fleet, error) {
	kind, name := split(key)
	if kind == kindSet {
		set := &v1beta1.MachineSet{}
		if err := reader.Get(ctx, name, set); err != nil {
			return nil, absent(err, kind, name)
		}
		if set.DeletionTimestamp != nil || deploymentOf(set) != "" {
			return nil, nil
		}
		return &fleet{sets: []*v1beta1.MachineSet{set}}, nil
	}
	d := &v1beta1.MachineDeployment{}
	if err := reader.Get(ctx, name, d); err != nil {
		return nil, absent(err, kind, name)
	}
	if d.DeletionTimestamp != nil {
		return nil, nil
	}
	f := &fleet{deployment: d}
	options := []client.ListOption{client.InNamespace(d.Namespace)}
	if indexed {
		options = append(options, client.MatchingFields{index.MachineSetByOwner: string(d.UID)})
	}
	var sets v1beta1.MachineSetList
	if err := reader.List(ctx, &sets, options...); err != nil {
		return nil, fmt.Errorf("list the sets of deployment %s: %w", name, err)
	}
	for i := range sets.Items {
		if set := &sets.Items[i]; set.DeletionTimestamp == nil && metav1.IsControlledBy(set, d) {
			f.sets = append(f.sets, set)
		}
	}
	return f, nil
}

func deploymentOf(set client.Object) string {
	if owner := metav1.GetControllerOfNoCopy(set); owner != nil && owner.Kind == kindDeployment {
		return owner.Name
	}
	return ""
}

func absent(err error, kind string, name types.NamespacedName) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("get %s %s: %w", kind, name, err)
}

// countCached counts the machines in the cache, each once. A machine that is being handed over may appear in two sets.
func (f *fleet) countCached(ctx context.Context, reader client.Reader) error {
	f.live = map[types.UID]int{}
	seen := map[types.UID]bool{}
	for _, set := range f.sets {
		machines, err := index.ListShared[v1beta1.Machine](ctx, reader, &v1beta1.MachineList{}, client.InNamespace(set.Namespace),
			client.MatchingFields{index.MachineByOwner: string(set.UID)})
		if err != nil {
			return fmt.Errorf("list the machines of set %s/%s: %w", set.Namespace, set.Name, err)
		}
		for _, m := range machines {
			if counts(m) && !seen[m.UID] {
				seen[m.UID] = true
				f.live[set.UID]++
			}
		}
		f.examined += len(machines)
	}
	return nil
}

// countLive counts the machines at the API server by owner reference, because labels may have any value.
func (f *fleet) countLive(ctx context.Context, live client.Reader) error {
	f.live = map[types.UID]int{}
	machines := &metav1.PartialObjectMetadataList{}
	machines.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MachineList"))
	if err := live.List(ctx, machines, client.InNamespace(f.root().GetNamespace())); err != nil {
		return fmt.Errorf("list the machines of namespace %s at the API server: %w", f.root().GetNamespace(), err)
	}
	for _, set := range f.sets {
		f.live[set.UID] = 0
	}
	for i := range machines.Items {
		m := &machines.Items[i]
		owner := metav1.GetControllerOfNoCopy(m)
		if owner == nil || !counts(m) {
			continue
		}
		if _, member := f.live[owner.UID]; member {
			f.live[owner.UID]++
		}
	}
	return nil
}
