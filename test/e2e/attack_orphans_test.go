//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/internal/install/manifests"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/test/env"
)

func (m *machinist) extensions() client.Client {
	m.t.Helper()
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		m.t.Fatal(err)
	}
	c, err := client.New(m.Control.Config(), client.Options{Scheme: scheme})
	if err != nil {
		m.t.Fatal(err)
	}
	return c
}

func (m *machinist) confirmOrphanRemoval() {
	m.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1beta1.AnnotationRemoveOrphansUntil,
		time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: examples.SmallClass}}
	if err := m.control.Patch(context.Background(), class,
		client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machinist) awaitOrphansBlocked(reasons ...string) {
	m.t.Helper()
	env.Await(m.t, m.control, &v1beta1.MachineClassList{}, "a class that reports orphans which wait for an administrator",
		func(l *v1beta1.MachineClassList) (bool, string) {
			for i := range l.Items {
				c := meta.FindStatusCondition(l.Items[i].Status.Conditions, v1beta1.ConditionOrphanRemovalBlocked)
				if c != nil && slices.Contains(reasons, c.Reason) {
					return true, ""
				}
			}
			return false, fmt.Sprintf("%d classes", len(l.Items))
		}, client.InNamespace(namespace))
}

func (m *machinist) awaitNodesGone(instances ...simcloud.Instance) {
	m.t.Helper()
	env.Await(m.t, m.target, &corev1.NodeList{}, "no Node of the removed instances",
		func(l *corev1.NodeList) (bool, string) {
			var left []string
			for _, node := range l.Items {
				if slices.ContainsFunc(instances, func(in simcloud.Instance) bool {
					return in.ProviderID == node.Spec.ProviderID
				}) {
					left = append(left, node.Name)
				}
			}
			return len(left) == 0, strings.Join(left, ", ")
		})
}

// If a CRD is deleted, Kubernetes deletes all objects of this kind, and the deletion of a Machine deletes its instance.
// Therefore, a policy must refuse the deletion of the CRDs.
//
// Rule: crd-deletion-refused.
func TestAttackCRDDeletionIsRefused(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(3, nil)
	before := m.awaitRunning(3)
	for _, crd := range manifests.CRDs() {
		if err := m.extensions().Delete(context.Background(), crd); err == nil ||
			!strings.Contains(err.Error(), v1beta1.AnnotationAllowDeletion) {
			t.Errorf("delete %s: got %v, want a rejection that names the annotation", crd.Name, err)
		}
	}
	// Once the garbage collector has deleted this object, it has had enough time to delete Machines.
	owner := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "owner"}}
	if err := m.control.Create(context.Background(), owner); err != nil {
		t.Fatal(err)
	}
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "owned",
		OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
		}}}
	if err := errors.Join(m.control.Create(context.Background(), owned),
		m.control.Delete(context.Background(), owner)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the garbage collector has deleted an object", func() (bool, string) {
		return apierrors.IsNotFound(m.control.Get(context.Background(), client.ObjectKeyFromObject(owned),
			&corev1.ConfigMap{})), ""
	})
	after := m.awaitRunning(3)
	for i := range before {
		if before[i].UID != after[i].UID {
			t.Errorf("machine %s is gone", before[i].Name)
		}
	}
}

// An administrator deletes the CRD of Machines by force, removes the finalizers of the Machines, and installs the CRD
// again. Then the sets create new Machines. The instances of the old Machines still have Ready Nodes. These instances
// must remain until an administrator confirms their removal.
//
// Rules: most-orphaned-needs-confirmation, ready-orphan-needs-confirmation, node-of-removed-instance-deleted,
// person-confirms-removal.
func TestAttackForcedCRDDeletionKeepsInstances(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := start(t, stack.Options{ProviderArgs: orphanChecks()})
	m.removeDelays()
	m.createFleet(4, nil)
	m.awaitRunning(4)
	var old []simcloud.Instance
	for _, r := range m.instances() {
		old = append(old, r.Instance)
	}
	// Stop the processes, so that they neither see the deletion of the Machines nor create objects of the kind.
	if err := errors.Join(m.Provider.Stop(15*time.Second), m.Manager.Stop(15*time.Second)); err != nil {
		t.Fatal(err)
	}

	extensions := m.extensions()
	at := slices.IndexFunc(manifests.CRDs(), func(crd *apiextensionsv1.CustomResourceDefinition) bool {
		return crd.Spec.Names.Kind == "Machine"
	})
	crd := manifests.CRDs()[at]
	allow := fmt.Sprintf(`{"metadata":{"annotations":{%q:"true"}}}`, v1beta1.AnnotationAllowDeletion)
	if err := extensions.Patch(ctx, crd.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(allow))); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the CRD may be deleted", func() (bool, string) {
		err := extensions.Delete(ctx, crd.DeepCopy())
		return err == nil || apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	eventually(t, "the CRD is gone", func() (bool, string) {
		list := &v1beta1.MachineList{}
		if err := m.control.List(ctx, list); err == nil {
			for i := range list.Items {
				_ = m.control.Patch(ctx, &list.Items[i],
					client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
			}
		}
		err := extensions.Get(ctx, client.ObjectKeyFromObject(crd), &apiextensionsv1.CustomResourceDefinition{})
		return apierrors.IsNotFound(err), fmt.Sprintf("%d machines, %v", len(list.Items), err)
	})
	if err := extensions.Create(ctx, manifests.CRDs()[at]); err != nil {
		t.Fatal(err)
	}
	eventually(t, "Machines are served again", func() (bool, string) {
		err := m.control.List(ctx, &v1beta1.MachineList{})
		return err == nil, fmt.Sprint(err)
	})
	if err := errors.Join(m.Manager.Start(), m.Provider.Start()); err != nil {
		t.Fatal(err)
	}
	m.awaitRunning(4)
	m.awaitOrphansBlocked(v1beta1.ReasonMostInstancesOrphaned, v1beta1.ReasonOrphanNodeReady)
	m.wantUntouched(old...)

	m.confirmOrphanRemoval()
	m.awaitTerminated(old...)
	m.awaitNodesGone(old...)
	m.awaitRunning(4)
}

// A tenant may write classes and Secrets in one namespace. The tenant has credentials for a cloud account that another
// namespace also uses. With a class in this namespace, the tenant confirms the removal of orphans in the account. Only
// the instances of the tenant's namespace may be removed.
//
// Rule: confirmation-within-namespace.
func TestAttackTenantConfirmsRemovalInOtherNamespace(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := start(t, stack.Options{ProviderArgs: orphanChecks()})
	m.removeDelays()
	m.createFleet(0, nil)
	const tenantNamespace = "a-tenant" // This name sorts before the other namespace.
	class, credentials := &v1beta1.MachineClass{}, &corev1.Secret{}
	err := errors.Join(
		m.control.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenantNamespace}}),
		m.control.Get(ctx, client.ObjectKey{Namespace: namespace, Name: examples.SmallClass}, class),
		m.control.Get(ctx, client.ObjectKey{Namespace: namespace, Name: examples.CredentialsSecret}, credentials))
	if err != nil {
		t.Fatal(err)
	}
	author := m.asClassAuthor(tenantNamespace)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: tenantNamespace, Name: credentials.Name,
		Labels: credentials.Labels}, Data: credentials.Data}
	eventually(t, "the tenant may create Secrets", func() (bool, string) {
		err := author.Create(ctx, secret.DeepCopy())
		return err == nil, errorText(err)
	})
	attack := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: tenantNamespace, Name: class.Name},
		Spec: *class.Spec.DeepCopy()}
	attack.Spec.UserDataRef = nil
	eventually(t, "the tenant may create a class", func() (bool, string) {
		err := author.Create(ctx, attack.DeepCopy())
		return err == nil, errorText(err)
	})
	// Create all instances while the provider is stopped. In its first check, most instances in the account are then
	// orphans.
	if err := m.Provider.Stop(15 * time.Second); err != nil {
		t.Fatal(err)
	}
	id := m.clusterID()
	var theirs []simcloud.Instance
	for i := range 3 {
		theirs = append(theirs, m.createOrphan(id, fmt.Sprintf("%s/lost-%d", namespace, i)))
	}
	own := m.createOrphan(id, tenantNamespace+"/lost")
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	patch := client.RawPatch(types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1beta1.AnnotationRemoveOrphansUntil, until))
	if err := author.Patch(ctx, attack, patch); err != nil {
		t.Fatal(err)
	}
	if err := m.Provider.Start(); err != nil {
		t.Fatal(err)
	}
	// The confirmation has taken effect when the instance of the tenant has been deleted.
	m.awaitTerminated(own)
	m.awaitOrphansBlocked(v1beta1.ReasonMostInstancesOrphaned)
	m.wantUntouched(theirs...)
	m.confirmOrphanRemoval()
	m.awaitTerminated(theirs...)
}

func (m *machinist) asClassAuthor(namespace string) client.Client {
	m.t.Helper()
	const user = "class-author"
	meta := metav1.ObjectMeta{Namespace: namespace, Name: user}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{v1beta1.GroupVersion.Group}, Resources: []string{"machineclasses"}, Verbs: []string{"*"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"*"}},
	}}
	binding := &rbacv1.RoleBinding{ObjectMeta: meta,
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}}
	for _, o := range []client.Object{role, binding} {
		if err := m.control.Create(context.Background(), o); err != nil {
			m.t.Fatal(err)
		}
	}
	return m.asUser(user)
}
