package simulation

import (
	"context"
	"fmt"
	"slices"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/install/manifests"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/manifests/sources"
)

// migrationPolicies returns the policies of the migrator's chart. Rendering them takes longer than a run, so it happens
// only once.
var migrationPolicies = sync.OnceValue(func() []client.Object {
	return manifests.MigrationPolicies(providerName, namespace, oldNamespace)
})

// OldSystem describes the system whose fleet is migrated in a scenario.
type OldSystem struct {
	// Group is the API group of the system's machines: provider.SourceClusterK8s, provider.SourceGardener or
	// provider.SourceClusterAPI.
	Group string
	// If Role is set, the instances of the old system have a role tag. The old system uses this tag to find and delete
	// instances without a machine.
	Role bool
}

// installOldSystem adds an old system with a running fleet and a migrator. One machine belongs to a deployment, one to
// a set, and one has no owner.
func (w *World) installOldSystem(old OldSystem) error {
	l := &legacy{world: w, system: source.Systems()[old.Group], role: old.Role}
	w.legacy, w.cloud.Settle = l, settleOfMigrations
	ctx, c := context.Background(), l.client()
	for _, u := range slices.Concat(sources.CRDs(old.Group), sources.LinkedCRDs(old.Group)) {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, definition); err != nil {
			return fmt.Errorf("decode %s: %w", u.GetName(), err)
		}
		if err := c.Create(ctx, definition); err != nil {
			return err
		}
	}
	labels := map[string]string{"app": oldController}
	for _, o := range migrationPolicies() {
		if err := c.Create(ctx, o.DeepCopyObject().(client.Object)); err != nil {
			return err
		}
	}
	for _, o := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: oldNamespace, Name: "account"},
			Data: map[string][]byte{"token": []byte(canary), "userData": []byte("#cloud-config " + canary)}},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: oldNamespace, Name: oldController},
			Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels}}},
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: oldNamespace, Name: oldController, Labels: labels}},
		l.newLease(),
	} {
		if err := c.Create(ctx, o); err != nil {
			return err
		}
	}
	for _, o := range append(l.cluster(), l.fleet()...) {
		if err := c.Create(ctx, o); err != nil {
			return err
		}
	}
	if err := l.createDependents(ctx, c); err != nil {
		return err
	}
	for _, m := range l.objects(source.RoleMachine) {
		l.createInstance(m.Name, m.UID)
	}
	migrator, err := w.start(Migrator, 0, func() int { return 0 })
	if err != nil {
		return err
	}
	w.processes = append(w.processes, migrator)
	return nil
}

func (l *legacy) machineFinalizers() []string {
	if l.system.Group() == provider.SourceGardener {
		return []string{"machine.sapcloud.io/machine-controller-manager"}
	}
	if l.isClusterAPI() {
		return []string{"machine.cluster.x-k8s.io"}
	}
	return []string{"machine-delete-finalizer", "machine-node-delete-finalizer"}
}

func (l *legacy) object(role source.Role, name string, spec map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetGroupVersionKind(l.kind(role).GroupVersionKind)
	o.SetNamespace(oldNamespace)
	o.SetName(name)
	if spec != nil {
		o.Object["spec"] = spec
	}
	return o
}

func (l *legacy) machineSpec() map[string]any {
	if l.system.Group() == provider.SourceGardener {
		return map[string]any{"class": map[string]any{"kind": "MachineClass", "name": "pool"}}
	}
	if l.isClusterAPI() {
		return map[string]any{"clusterName": clusterName, "infrastructureRef": map[string]any{
			"apiGroup": infrastructureKind("").Group, "kind": "SimMachineTemplate", "name": "pool"}}
	}
	return map[string]any{"providerSpec": map[string]any{"value": map[string]any{
		"cloudProvider": providerName,
		"cloudProviderSpec": map[string]any{"image": "legacy", "token": map[string]any{"secretKeyRef": map[string]any{
			"namespace": oldNamespace, "name": "account", "key": "token"}}},
	}}}
}

func (l *legacy) fleet() (all []client.Object) {
	specFor := func(name string) map[string]any {
		spec := map[string]any{"replicas": int64(1),
			"selector": map[string]any{"matchLabels": map[string]any{"pool": name}},
			"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"pool": name}},
				"spec": l.machineSpec()}}
		if l.isClusterAPI() {
			spec["clusterName"] = clusterName
		}
		return spec
	}
	if l.system.Group() == provider.SourceGardener {
		class := l.object(source.RoleClass, "pool", nil)
		class.Object["provider"] = providerName
		class.Object["providerSpec"] = map[string]any{"image": "legacy"}
		class.Object["secretRef"] = map[string]any{"namespace": oldNamespace, "name": "account"}
		class.SetFinalizers(l.machineFinalizers())
		all = append(all, class)
	}
	deployment := l.object(source.RoleDeployment, "web", specFor("web"))
	deployment.SetFinalizers([]string{metav1.FinalizerDeleteDependents})
	return append(all, deployment, l.object(source.RoleSet, "web-1", specFor("web")),
		l.object(source.RoleSet, "alone", specFor("alone")))
}

func (l *legacy) createDependents(ctx context.Context, c client.Client) error {
	controller := true
	deployment := l.objects(source.RoleDeployment)[0]
	for _, set := range l.objects(source.RoleSet) {
		if set.Name == "web-1" {
			owned := l.editable(source.RoleSet, set)
			if err := c.Get(ctx, client.ObjectKeyFromObject(owned), owned); err != nil {
				return err
			}
			owned.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: l.kind(source.RoleDeployment).GroupVersion().String(),
				Kind: "MachineDeployment", Name: deployment.Name, UID: deployment.UID, Controller: &controller,
				BlockOwnerDeletion: &controller}})
			if err := c.Update(ctx, owned); err != nil {
				return err
			}
		}
		if err := l.createMachine(ctx, c, l.newMachine(set, set.Name+"-1")); err != nil {
			return err
		}
	}
	single := l.object(source.RoleMachine, "single", l.machineSpec())
	single.SetFinalizers(l.machineFinalizers())
	return l.createMachine(ctx, c, single)
}
