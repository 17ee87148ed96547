package migration

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/manifests/sources"
)

const (
	oldPool = `
apiVersion: cluster.k8s.io/v1alpha1
kind: MachineDeployment
metadata: {name: general, namespace: NS}
spec:
  replicas: 0
  selector: {matchLabels: {workerset: general}}
  template:
    metadata: {labels: {workerset: general}}
    spec:
      providerSpec:
        value:
          cloudProvider: sim
          cloudProviderSpec:
            {region: sim-1, size: small, image: sim-os-1,
              credentials: {token: {secretKeyRef: {namespace: NS, name: old-account, key: token}}}}
      versions: {kubelet: 1.36.3}
`
	oldMachine = `
apiVersion: cluster.k8s.io/v1alpha1
kind: Machine
metadata: {name: single, namespace: NS}
spec:
  providerSpec:
    value:
      cloudProvider: sim
      cloudProviderSpec:
        {region: sim-1, size: small, image: sim-os-1,
          credentials: {token: {secretKeyRef: {namespace: NS, name: old-account, key: token}}}}
  versions: {kubelet: 1.36.3}
`
	olderMachine = `
apiVersion: machine.k8s.io/v1alpha1
kind: Machine
metadata: {name: single}
spec:
  providerConfig:
    cloudProvider: sim
    cloudProviderSpec:
      {region: sim-1, size: small, image: sim-os-1,
        credentials: {token: {secretKeyRef: {namespace: NS, name: old-account, key: token}}}}
  versions: {kubelet: 1.36.3}
`
)

// Rule: migration-names-are-free.
func TestTakenNameBlocksMigration(t *testing.T) {
	x := newFixture(t, provider.SourceClusterK8s)
	x.createOld(oldPool)
	labels := map[string]string{"app": "other"}
	x.create(&v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Namespace: x.namespace, Name: "general"},
		Spec: v1beta1.MachineDeploymentSpec{Selector: metav1.LabelSelector{MatchLabels: labels},
			Template: v1beta1.MachineTemplateSpec{ObjectMeta: v1beta1.TemplateMeta{Labels: labels},
				Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "small"}}}}})
	x.migrate("over", provider.SourceClusterK8s, v1beta1.MigrationPlan)
	x.reconcileUntil("over", notPlanned("NameTaken MachineDeployment/general", "Delete or rename it"))
}

// Rule: migration-names-are-free.
func TestTakenNameOfSecretBlocksMigration(t *testing.T) {
	x := newFixture(t, provider.SourceClusterK8s)
	old := x.createOld(oldPool)
	class := source.Systems()[provider.SourceClusterK8s].Convert(source.RoleDeployment, old, nil).Class
	name := class.ContentName("general") + "-credentials"
	x.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: x.namespace, Name: name}})
	x.migrate("over", provider.SourceClusterK8s, v1beta1.MigrationPlan)
	x.reconcileUntil("over", notPlanned("NameTaken MachineDeployment/general", "Secret "+name, "Delete or rename it"))
}

// Rule: migration-one-at-a-time.
func TestYoungerMigrationOfSameFleetIsBlocked(t *testing.T) {
	x := newFixture(t, provider.SourceClusterK8s)
	x.createOld(oldPool)
	x.migrate("a", provider.SourceClusterK8s, v1beta1.MigrationPlan)
	x.migrate("b", provider.SourceClusterK8s, v1beta1.MigrationPlan)
	younger, older := x.byAge("a", "b")
	x.reconcileUntil(older, func(m *v1beta1.Migration) bool {
		return m.Status.PlanHash != "" &&
			!notPlanned("Overlaps")(m)
	})
	x.reconcileUntil(younger, notPlanned("Overlaps", "Migration "+x.namespace+"/"+older, "Delete one of them"))
	x.abort(older)
	x.reconcileUntil(younger, func(m *v1beta1.Migration) bool { return !notPlanned("Overlaps")(m) })
}

// Rule: migration-one-at-a-time.
func TestYoungerMigrationOfSameControllerIsBlocked(t *testing.T) {
	workload := v1beta1.MigrationWorkload{Kind: "Deployment", Namespace: "kube-system", Name: "machine-controller"}
	lease := v1beta1.MigrationLease{Namespace: "kube-system", Name: "machine-controller"}
	electsLeader := true
	for name, fence := range map[string]v1beta1.MigrationFence{
		"Deployment kube-system/machine-controller": {Workloads: []v1beta1.MigrationWorkload{workload}},
		"Lease kube-system/machine-controller":      {ElectsLeader: &electsLeader, Leases: []v1beta1.MigrationLease{lease}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newFixture(t, provider.SourceMachineK8s, provider.SourceClusterK8s)
			x.createOld(oldPool)
			x.createOld(olderMachine)
			x.migrate("a", provider.SourceMachineK8s, v1beta1.MigrationPlan)
			x.migrate("b", provider.SourceClusterK8s, v1beta1.MigrationPlan)
			younger, older := x.byAge("a", "b")
			x.reconcileUntil(younger, func(m *v1beta1.Migration) bool {
				return m.Status.PlanHash != "" && !notPlanned("Overlaps")(m)
			})
			for _, migration := range []string{"a", "b"} {
				x.change(migration, func(m *v1beta1.Migration) { m.Spec.Fence = fence })
			}
			x.reconcileUntil(younger, notPlanned("Overlaps", "spec.fence", name, "Complete or abort it first"))
			x.abort(older)
			x.reconcileUntil(younger, func(m *v1beta1.Migration) bool { return !notPlanned("Overlaps")(m) })
		})
	}
}

// Rule: migration-one-at-a-time.
func TestInstanceOfTwoSystemsIsAdoptedOnce(t *testing.T) {
	x := newFixture(t, provider.SourceMachineK8s, provider.SourceClusterK8s)
	in := x.instance(x.createOld(olderMachine))
	newer := strings.Replace(oldMachine, "spec:\n", "spec:\n  providerID: "+in.ProviderID+"\n", 1)
	x.createOld(newer)
	x.migrate("newer", provider.SourceClusterK8s, v1beta1.MigrationAdopt)
	x.migrate("older", provider.SourceMachineK8s, v1beta1.MigrationAdopt)
	x.reconcileUntil("newer", reached(v1beta1.MigrationAdopting))
	// The older Migration must be blocked although its plan was already accepted.
	x.reconcileUntil("older", notPlanned("InstanceClaimed", "Machine "+x.namespace+"/single",
		"If two Migrations have this "+
			"instance, abort one of them"))
	x.abort("older")
	x.abort("newer")
}

// Rule: migration-loses-nothing-silently.
func TestInvalidObjectsBlockMigration(t *testing.T) {
	for _, group := range provider.Sources() {
		t.Run(group, func(t *testing.T) {
			x := newFixture(t, group)
			accepted := 0
			for _, object := range sources.Samples(group)["half-broken"] {
				x.awaitServed(object)
				if object.GetNamespace() != "" {
					object.SetNamespace(x.namespace)
				}
				object.SetFinalizers(nil)
				if err := x.user.Create(context.Background(), object); err != nil {
					continue // The CRD refuses the object.
				}
				accepted++
				t.Cleanup(func() { _ = x.user.Delete(context.Background(), object) })
			}
			if accepted == 0 {
				t.Fatal("the API server refused all samples")
			}
			x.migrate("over", group, v1beta1.MigrationPlan)
			x.reconcileUntil("over", notPlanned())
			blockers := 0
			for line := range strings.Lines(x.findings("over")) {
				if strings.HasPrefix(line, "Blocker ") {
					blockers++
				}
			}
			if blockers == 0 {
				t.Errorf("the findings contain no Blocker:\n%s", x.findings("over"))
			}
		})
	}
}

// The migrator must not treat an old object that it cannot read as missing.
//
// Rule: migration-reads-all-or-nothing.
func TestUnavailableConversionWebhookBlocksMigration(t *testing.T) {
	x := newFixture(t, provider.SourceClusterK8s)
	x.createOld(oldMachine)
	crd := &apiextensionsv1.CustomResourceDefinition{}
	admin := x.migratorClient()
	key := client.ObjectKey{Name: "machines.cluster.k8s.io"}
	change := func(edit func()) {
		t.Helper()
		x.eventually("the CRD is changed", func() (bool, string) {
			x.must(admin.Get(context.Background(), key, crd))
			edit()
			err := admin.Update(context.Background(), crd)
			return err == nil, fmt.Sprint(err)
		})
	}
	// Add a later version as the storage version.
	change(func() {
		next := *crd.Spec.Versions[0].DeepCopy()
		next.Name, crd.Spec.Versions[0].Storage = "v1alpha2", false
		crd.Spec.Versions = append(crd.Spec.Versions, next)
	})
	t.Cleanup(func() { // Later tests need the original CRD.
		change(func() { crd.Spec.Conversion = nil })
		x.must(admin.Delete(context.Background(), crd))
		x.eventually("the CRD is gone", func() (bool, string) {
			err := admin.Get(context.Background(), key, crd)
			return apierrors.IsNotFound(err), fmt.Sprint(err)
		})
	})
	stored := &unstructured.Unstructured{}
	stored.SetGroupVersionKind(schema.GroupVersionKind{Group: provider.SourceClusterK8s, Version: "v1alpha2",
		Kind: "Machine"})
	stored.SetNamespace(x.namespace)
	stored.SetName("later")
	x.eventually("the API server accepts the later version", func() (bool, string) {
		err := x.user.Create(context.Background(), stored)
		return err == nil, fmt.Sprint(err)
	})
	path := "/convert"
	change(func() {
		crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{ConversionReviewVersions: []string{"v1"},
				ClientConfig: &apiextensionsv1.WebhookClientConfig{Service: &apiextensionsv1.ServiceReference{
					Namespace: x.namespace, Name: "gone", Path: &path}}}}
	})
	x.migrate("over", provider.SourceClusterK8s, v1beta1.MigrationPlan)
	x.reconcileUntil("over", notPlanned("conversion webhook", "Start the conversion webhook server again"))
}
