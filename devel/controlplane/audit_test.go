package controlplane

import (
	"fmt"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/controlplane/auditlog"
)

// audit checks that the audit log already contains a write when the client receives the response to the write.
func audit(t *testing.T, cp *ControlPlane) {
	ctx := t.Context()
	const user = "counted"
	counted, other := clientOf(t, cp, user, "system:masters"), clientOf(t, cp, "other", "system:masters")
	log, err := auditlog.Open(cp.AuditLog())
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Mark(); err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	const n = 100
	for i := range n {
		must(counted.Create(ctx, configMap(fmt.Sprintf("counted-%d", i))))
		counts, err := log.Count(auditlog.Filter{Users: []string{user}})
		must(err)
		if counts.Writes != i+1 {
			t.Fatalf("after write %d the log contains %d writes", i+1, counts.Writes)
		}
	}

	stale := configMap("counted-0")
	must(counted.Get(ctx, client.ObjectKeyFromObject(stale), stale))
	changed := stale.DeepCopy()
	changed.Data = map[string]string{"a": "b"}
	must(counted.Update(ctx, changed))
	if err := counted.Update(ctx, stale); !apierrors.IsConflict(err) {
		t.Fatalf("update from an old version: %v, want a conflict", err)
	}
	must(counted.Patch(ctx, configMap("counted-1"), client.RawPatch("application/merge-patch+json",
		[]byte(`{"data":{"c":"d"}}`))))
	must(counted.Delete(ctx, configMap("counted-2")))
	must(counted.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace("kube-public")))
	must(counted.Create(ctx, configMap("dry"), client.DryRunAll))
	if err := counted.Create(ctx,
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "nowhere", Name: "a"}}); !apierrors.IsNotFound(err) {
		t.Fatalf("create in a namespace that does not exist: %v, want not found", err)
	}
	must(counted.Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: "counted"},
		InvolvedObject: corev1.ObjectReference{Namespace: "default"},
	}))
	must(counted.Create(ctx, &authenticationv1.SelfSubjectReview{}))
	must(counted.List(ctx, &corev1.ConfigMapList{}))
	must(other.Create(ctx, configMap("other")))

	counts, err := log.Count(auditlog.Filter{Users: []string{user}})
	must(err)
	const want = "104 writes, 1 events, 1 conflicts, 1 failed\n" +
		"     100 create configmaps\n" +
		"       1 delete configmaps\n" +
		"       1 deletecollection configmaps\n" +
		"       1 patch configmaps\n" +
		"       1 update configmaps"
	if got := counts.String(); got != want {
		t.Errorf("the counts are\n%s\nwant\n%s", got, want)
	}
}
