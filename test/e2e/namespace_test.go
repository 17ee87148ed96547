//go:build e2e

package e2e

import (
	"context"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
)

// olderAPIServer is an API server flag that turns off streaming lists, so that informers send list requests.
const olderAPIServer = "--feature-gates=WatchList=false"

// An installation for one namespace needs no permission elsewhere. So such an installation cannot read the Secrets of
// another team.
//
// Rule: roles-are-minimal.
func TestNamespacedInstallationNeedsPermissionsOnlyThere(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{Namespace: namespace, ExtraAPIServerArgs: []string{olderAPIServer}})
	m.removeDelays()
	others := metav1.ObjectMeta{Namespace: "others", Name: "untouched"}
	for _, o := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: others.Namespace}},
		&corev1.Secret{ObjectMeta: others, StringData: map[string]string{"token": "theirs"}},
		&v1beta1.Machine{ObjectMeta: others,
			Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: examples.SmallClass}}},
	} {
		if err := m.control.Create(context.Background(), o); err != nil {
			t.Fatalf("create %T %s: %v", o, o.GetName(), err)
		}
	}
	m.createFleet(2, nil)
	m.awaitRunning(2)
	for _, program := range []string{stack.Manager, stack.Provider} {
		for _, here := range []bool{true, false} {
			in := map[bool]string{true: namespace, false: others.Namespace}[here]
			for _, what := range []authorizationv1.ResourceAttributes{
				{Verb: "patch", Group: v1beta1.GroupName, Resource: "machines", Subresource: "status", Namespace: in},
				{Verb: "get", Resource: "secrets", Namespace: in},
				{Verb: "list", Resource: "secrets", Namespace: in},
			} {
				want := here && (program == stack.Provider || what.Resource != "secrets")
				if got := m.isAllowed(program, what); got != want {
					t.Errorf("%s may %s %s in %s: %t, want %t", program, what.Verb, what.Resource, in, got, want)
				}
			}
		}
	}
	m.scale(0)
	m.awaitNoMachines()
	untouched := &v1beta1.Machine{}
	if err := m.control.Get(context.Background(), client.ObjectKey{Namespace: others.Namespace, Name: others.Name},
		untouched); err != nil {
		t.Fatal(err)
	}
	if len(untouched.Finalizers) > 0 || untouched.Status.Phase != "" {
		t.Errorf("a machine of another namespace was changed: finalizers %v, phase %q", untouched.Finalizers,
			untouched.Status.Phase)
	}
}

func (m *machinist) isAllowed(user string, what authorizationv1.ResourceAttributes) bool {
	m.t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, Groups: []string{"system:authenticated"}, ResourceAttributes: &what,
	}}
	if err := m.control.Create(context.Background(), review); err != nil {
		m.t.Fatalf("review the access of %s: %v", user, err)
	}
	return review.Status.Allowed
}
