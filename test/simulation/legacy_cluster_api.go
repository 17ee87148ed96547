package simulation

import (
	"context"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/apiserver"
)

// This file has the objects to which machines of Cluster API refer. The old controller in a run does not look at
// spec.paused of the Cluster, so only its Lease and the policy keep it from acting.

const clusterName = "one"

var clusterKind = schema.GroupVersionKind{Group: provider.SourceClusterAPI, Version: "v1beta2", Kind: "Cluster"}

func infrastructureKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "infrastructure.cluster.x-k8s.io", Version: "v1beta1", Kind: kind}
}

func linkedObject(kind schema.GroupVersionKind, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(oldNamespace)
	o.SetName(name)
	return o
}

// cluster returns the Cluster and the template of all machines.
func (l *legacy) cluster() []client.Object {
	if !l.isClusterAPI() {
		return nil
	}
	return []client.Object{
		linkedObject(clusterKind, clusterName, map[string]any{"infrastructureRef": map[string]any{
			"apiGroup": infrastructureKind("").Group, "kind": "SimCluster", "name": clusterName}}),
		linkedObject(infrastructureKind("SimCluster"), clusterName, map[string]any{
			"identityRef": map[string]any{"name": "account"}}),
		linkedObject(infrastructureKind("SimMachineTemplate"), "pool", map[string]any{"template": map[string]any{
			"spec": map[string]any{"image": "legacy"}}}),
	}
}

// createMachine creates an old machine. In Cluster API, a machine has an infrastructure object of the same name.
func (l *legacy) createMachine(ctx context.Context, c client.Client, machine *unstructured.Unstructured) error {
	if l.isClusterAPI() {
		infrastructure := linkedObject(infrastructureKind("SimMachine"), machine.GetName(), map[string]any{"image": "legacy"})
		infrastructure.SetAnnotations(map[string]string{"cluster.x-k8s.io/cloned-from-name": "pool"})
		infrastructure.SetFinalizers([]string{"simmachine.infrastructure.cluster.x-k8s.io"})
		if err := client.IgnoreAlreadyExists(c.Create(ctx, infrastructure)); err != nil {
			return err
		}
		ref := machine.Object["spec"].(map[string]any)["infrastructureRef"].(map[string]any)
		ref["kind"], ref["name"] = "SimMachine", machine.GetName()
	}
	if err := c.Create(ctx, machine); err != nil || !l.isClusterAPI() {
		return err
	}
	return l.ownInfrastructure(ctx, machine.GetName(), machine.GetUID())
}

// ownInfrastructure makes a machine the owner of its infrastructure object.
func (l *legacy) ownInfrastructure(ctx context.Context, name string, uid types.UID) error {
	o := linkedObject(infrastructureKind("SimMachine"), name, nil)
	return l.world.control.Client(oldController).Patch(ctx, o, client.RawPatch(types.MergePatchType, fmt.Appendf(nil,
		`{"metadata":{"ownerReferences":[{"apiVersion":%q,"kind":"Machine","name":%q,"uid":%q,"controller":true}]}}`,
		l.kind(source.RoleMachine).GroupVersion(), name, uid)))
}

// lacksOwner reports whether the infrastructure object of a machine exists, but does not belong to the machine yet.
func (l *legacy) lacksOwner(machine *apiserver.Custom) bool {
	if !l.isClusterAPI() {
		return false
	}
	return slices.ContainsFunc(l.world.control.Snapshot(infrastructureKind("SimMachine")), func(o client.Object) bool {
		return o.GetName() == machine.Name && !metav1.IsControlledBy(o, machine)
	})
}

// deleteInfrastructure deletes the infrastructure object of an old machine whose instance is gone.
func (l *legacy) deleteInfrastructure(ctx context.Context, name string) error {
	if !l.isClusterAPI() {
		return nil
	}
	o := linkedObject(infrastructureKind("SimMachine"), name, nil)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := l.client().Patch(ctx, o.DeepCopy(), patch); client.IgnoreNotFound(err) != nil {
		return err
	}
	return client.IgnoreNotFound(l.client().Delete(ctx, o))
}

// pauses returns the Clusters that a migration has paused.
func (l *legacy) pauses() (all []string) {
	for _, o := range l.world.control.Snapshot(clusterKind) {
		paused, _, _ := unstructured.NestedBool(o.(*apiserver.Custom).Content, "spec", "paused")
		if _, marked := o.GetAnnotations()[v1beta1.AnnotationPausedByMigration]; paused || marked {
			all = append(all, "the pause of Cluster "+o.GetName())
		}
	}
	return all
}

func (l *legacy) infrastructure() (all []string) {
	for _, o := range l.world.control.Snapshot(infrastructureKind("SimMachine")) {
		all = append(all, "SimMachine "+o.GetName())
	}
	return all
}

// mayPause checks J6: a migration changes only the pause of a Cluster, and only while the fence is up or is being
// removed. J7: users do not change the Cluster while the fence is up.
func (l *legacy) mayPause(c apiserver.Change) {
	phase := l.world.phase()
	switch before, _ := c.Old.(*apiserver.Custom); {
	case c.Actor == oldController || before == nil:
	case c.Actor == person && phase == v1beta1.MigrationAdopted:
		l.breach("J7", "%s changes Cluster %s while the fence is up", c.Actor, c.Key)
	case c.Actor == person:
	case c.Type == watch.Deleted:
		l.breach("J6", "%s deletes Cluster %s", c.Actor, c.Key)
	case phase == "" || phase == v1beta1.MigrationPlanning:
		l.breach("J6", "%s changes Cluster %s in the phase %s", c.Actor, c.Key, phase)
	}
}

// mayChangeInfrastructure checks J3 and J6 for the infrastructure object of a machine. If the object were deleted with
// its finalizer, the old controller would delete the instance.
func (l *legacy) mayChangeInfrastructure(c apiserver.Change) {
	if c.Actor == oldController {
		return
	}
	if c.Old != nil && !l.world.phase().Irrevocable() {
		l.breach("J6", "%s does %s of SimMachine %s in the phase %s", c.Actor, c.Verb, c.Key, l.world.phase())
	}
	var in *instance
	for _, one := range l.world.cloud.instances {
		if one.legacy.machine == c.Key.Name {
			in = one
		}
	}
	switch {
	case in == nil || !in.dying.IsZero() || c.Type == watch.Added:
	case c.Type != watch.Deleted && c.New.GetDeletionTimestamp() != nil:
		l.breach("J3", "%s deletes SimMachine %s, whose finalizers and instance still exist", c.Actor, c.Key)
	case c.Type == watch.Deleted && in.MachineUID == "":
		l.breach("J3", "SimMachine %s is gone, but its instance has no tags of Machinist", c.Key)
	}
}
