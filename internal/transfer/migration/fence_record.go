package migration

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// Two admission policies protect the old objects and the objects that a migration created. The chart machinist-provider
// installs them with the migrator, which cannot change them. What they protect for one Migration is in a ConfigMap, which
// is a parameter of the policies. Without such a ConfigMap, the policies refuse nothing.

// probeLease is the Lease that probes try to create. The policy refuses each probe of the current record.
const probeLease = "machinist-fence-probe"

// The keys of the ConfigMap.
const (
	recordMigration       = "migration" // namespace/name
	recordNamespace       = "namespace" // of the Migration
	recordName            = "name"      // of the Migration
	recordUser            = "user"      // the user name of the migrator, which alone may act
	recordSource          = "source"
	recordSourceNamespace = "sourceNamespace"
	recordScope           = "scope"  // All protects the old objects of all namespaces
	recordLeases          = "leases" // namespace/name, each after a comma, and a comma at the end
	recordCopies          = "copies" // Closed protects the objects that the migration created
	recordProbe           = "probe"  // the value of AnnotationFenceProbe that is refused to the migrator too
)

// policyOfOldObjects returns the name of the policy that protects the old objects.
func policyOfOldObjects(provider string) string { return "machinist-migrator-" + provider + "-old" }

// policyOfCopies returns the name of the policy that protects the objects that a migration created.
func policyOfCopies(provider string) string { return "machinist-migrator-" + provider + "-new" }

// refusalOf returns how the policy begins its message when it refuses a change of the old objects of a Migration.
func refusalOf(m *v1beta1.Migration) string {
	return fmt.Sprintf("Migration %s/%s takes this fleet over", m.Namespace, m.Name)
}

// recordNameOf returns the name of the ConfigMap. The names of namespaces and Migrations contain no dots.
func recordNameOf(m *v1beta1.Migration) string {
	return fmt.Sprintf("machinist-migration-fence-%s.%s", m.Namespace, m.Name)
}

// fenceRecord returns the ConfigMap that makes the policies protect the objects of a Migration from all users but one.
func fenceRecord(system string, m *v1beta1.Migration, user string, leases []v1beta1.MigrationLease,
	scope fenceScope) *corev1.ConfigMap {
	protected := append(slices.Clone(leases), v1beta1.MigrationLease{Namespace: m.SourceNamespaceOrDefault(),
		Name: probeLease})
	var names strings.Builder
	for _, lease := range protected {
		names.WriteString("," + lease.Namespace + "/" + lease.Name)
	}
	data := map[string]string{
		recordMigration: m.Namespace + "/" + m.Name, recordNamespace: m.Namespace, recordName: m.Name, recordUser: user,
		recordSource: m.Spec.Source, recordSourceNamespace: m.SourceNamespaceOrDefault(), recordLeases: names.String() + ",",
		recordScope: "Namespace", recordCopies: "Closed",
	}
	if scope.allNamespaces {
		data[recordScope] = "All"
	}
	if scope.copiesOpen {
		data[recordCopies] = "Open"
	}
	// A probe of this version of the record is not refused by an API server that still has an older version.
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

// writeRecord creates or corrects the record of the fence, and reports whether it had to change anything.
func (r *Reconciler) writeRecord(ctx context.Context, want *corev1.ConfigMap) (changed bool, err error) {
	have := &corev1.ConfigMap{}
	switch err := r.Control.Get(ctx, client.ObjectKeyFromObject(want), have); {
	case apierrors.IsNotFound(err):
		err = r.Control.Create(ctx, want)
		if err != nil {
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

// recordExists reports whether there is a record of the fence.
func (r *Reconciler) recordExists(ctx context.Context, m *v1beta1.Migration) (bool, error) {
	key := client.ObjectKey{Namespace: r.SystemNamespace, Name: recordNameOf(m)}
	err := r.Control.Get(ctx, key, &corev1.ConfigMap{})
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read the ConfigMap %s: %w", key.Name, err)
	}
	return err == nil, nil
}

// removeRecord ends the protection by the policies.
func (r *Reconciler) removeRecord(ctx context.Context, m *v1beta1.Migration) error {
	record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.SystemNamespace, Name: recordNameOf(m)}}
	if err := client.IgnoreNotFound(r.Control.Delete(ctx, record)); err != nil {
		return fmt.Errorf("delete the ConfigMap %s: %w", record.Name, err)
	}
	return nil
}

// missingPolicy returns which policy, or binding of a policy, is not installed, or "".
func (r *Reconciler) missingPolicy(ctx context.Context, provider string) (missing string, err error) {
	for _, name := range []string{policyOfOldObjects(provider), policyOfCopies(provider)} {
		for _, object := range []client.Object{&admissionv1.ValidatingAdmissionPolicy{},
			&admissionv1.ValidatingAdmissionPolicyBinding{}} {
			err := r.Control.Get(ctx, client.ObjectKey{Name: name}, object)
			switch {
			case apierrors.IsNotFound(err):
				return fmt.Sprintf("the %s %s does not exist: install the chart machinist-provider of this version with "+
					"migrator.enabled=true", kindOf(object), name), nil
			case err != nil:
				return "", fmt.Errorf("read the %s %s: %w", kindOf(object), name, err)
			}
		}
	}
	return "", nil
}
