package migration

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// Two admission policies are part of the fence. The first policy protects the old objects. The second policy protects
// the objects that a migration created. The chart machinist-provider installs the policies, and the migrator cannot
// change them.
//
// For each Migration, the migrator writes a ConfigMap as the parameter of the policies. The ConfigMap specifies which
// objects the policies protect. As long as no ConfigMap exists, the policies allow all requests.

// probeLease is the Lease that each probe tries to create. The policy refuses a probe with the value in the current
// ConfigMap.
const probeLease = "machinist-fence-probe"

// Keys of the ConfigMap.
const (
	recordMigration       = "migration" // namespace/name
	recordNamespace       = "namespace" // namespace of the Migration
	recordName            = "name"      // name of the Migration
	recordUser            = "user"      // user name of the migrator: only this user may change the objects
	recordSource          = "source"
	recordSourceNamespace = "sourceNamespace"
	recordScope           = "scope"  // All: the old objects of all namespaces are protected
	recordLease           = "lease-" // plus a number: namespace/name; a name in one list could contain the separator
	recordCopies          = "copies" // Closed: the objects of the migration are protected
	recordProbe           = "probe"  // value of AnnotationFenceProbe that is refused to the migrator too
)

func policyOfOldObjects(provider string) string { return "machinist-migrator-" + provider + "-old" }

func policyOfCopies(provider string) string { return "machinist-migrator-" + provider + "-new" }

// refusalOf returns the beginning of the policy's message for an old object of the Migration.
func refusalOf(m *v1beta1.Migration) string {
	return fmt.Sprintf("Migration %s/%s takes this fleet over", m.Namespace, m.Name)
}

// recordNameOf returns the name of the ConfigMap for a Migration. Namespaces and names of Migrations contain no dots.
func recordNameOf(m *v1beta1.Migration) string {
	return fmt.Sprintf("machinist-migration-fence-%s.%s", m.Namespace, m.Name)
}

// fenceRecord returns the ConfigMap for a Migration. Only the given user may then change the objects of the Migration.
func fenceRecord(system string, m *v1beta1.Migration, user string, leases []v1beta1.MigrationLease,
	scope fenceScope) *corev1.ConfigMap {
	data := map[string]string{
		recordMigration: m.Namespace + "/" + m.Name, recordNamespace: m.Namespace, recordName: m.Name, recordUser: user,
		recordSource: m.Spec.Source, recordSourceNamespace: m.SourceNamespaceOrDefault(), recordScope: "Namespace",
		recordCopies: "Closed",
	}
	probed := v1beta1.MigrationLease{Namespace: m.SourceNamespaceOrDefault(), Name: probeLease}
	for i, lease := range append(slices.Clone(leases), probed) {
		data[recordLease+strconv.Itoa(i)] = lease.Namespace + "/" + lease.Name
	}
	if scope.allNamespaces {
		data[recordScope] = "All"
	}
	if scope.copiesOpen {
		data[recordCopies] = "Open"
	}
	// An API server with an older ConfigMap does not refuse a probe with this value.
	data[recordProbe] = fmt.Sprintf("%s/%s/%x", m.Namespace, m.Name, hashOf(data))
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: recordNameOf(m),
		Labels: map[string]string{v1beta1.LabelMigrationFence: m.Spec.Provider}}, Data: data}
}

func hashOf(data map[string]string) []byte {
	hash := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(data)) {
		fmt.Fprintf(hash, "%s=%q\n", key, data[key])
	}
	return hash.Sum(nil)[:8]
}

func (r *Reconciler) writeRecord(ctx context.Context, want *corev1.ConfigMap) (changed bool, err error) {
	have := &corev1.ConfigMap{}
	switch err := r.Control.Get(ctx, client.ObjectKeyFromObject(want), have); {
	case apierrors.IsNotFound(err):
		if err := r.Control.Create(ctx, want); err != nil {
			return false, fmt.Errorf("create the ConfigMap %s: %w", want.Name, err)
		}
	case err != nil:
		return false, fmt.Errorf("read the ConfigMap %s: %w", want.Name, err)
	case maps.Equal(have.Data, want.Data) && maps.Equal(have.Labels, want.Labels):
		return false, nil
	default:
		have.Data, have.Labels = want.Data, want.Labels
		if err := r.Control.Update(ctx, have); err != nil {
			return false, fmt.Errorf("update the ConfigMap %s: %w", want.Name, err)
		}
	}
	return true, nil
}

func (r *Reconciler) recordExists(ctx context.Context, m *v1beta1.Migration) (bool, error) {
	key := client.ObjectKey{Namespace: r.SystemNamespace, Name: recordNameOf(m)}
	err := r.Control.Get(ctx, key, &corev1.ConfigMap{})
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read the ConfigMap %s: %w", key.Name, err)
	}
	return err == nil, nil
}

// removeRecord deletes the ConfigMap, which ends the protection by the policies.
func (r *Reconciler) removeRecord(ctx context.Context, m *v1beta1.Migration) error {
	record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.SystemNamespace, Name: recordNameOf(m)}}
	if err := client.IgnoreNotFound(r.Control.Delete(ctx, record)); err != nil {
		return fmt.Errorf("delete the ConfigMap %s: %w", record.Name, err)
	}
	return nil
}

// missingPolicy returns why the policies do not protect the objects, or "".
func (r *Reconciler) missingPolicy(ctx context.Context, provider string) (missing string, err error) {
	for _, name := range []string{policyOfOldObjects(provider), policyOfCopies(provider)} {
		binding := &admissionv1.ValidatingAdmissionPolicyBinding{}
		for _, object := range []client.Object{&admissionv1.ValidatingAdmissionPolicy{}, binding} {
			err := r.Control.Get(ctx, client.ObjectKey{Name: name}, object)
			switch {
			case apierrors.IsNotFound(err):
				return fmt.Sprintf("the %s %s does not exist: install the chart machinist-provider of this version with "+
					"migrator.enabled=true", kindOf(object), name), nil
			case err != nil:
				return "", fmt.Errorf("read the %s %s: %w", kindOf(object), name, err)
			}
		}
		if ref := binding.Spec.ParamRef; ref == nil || ref.Namespace != r.SystemNamespace {
			return fmt.Sprintf("the ValidatingAdmissionPolicyBinding %s does not use the ConfigMaps of namespace %s: run the "+
				"migrator in the namespace of the release that installed the policy", name, r.SystemNamespace), nil
		}
	}
	return "", nil
}
