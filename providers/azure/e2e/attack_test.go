//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/fleet"
)

// A tenant writes a Secret with the public IDs of the subscription, the tenant and the application. This Secret must
// not give access to the provider's own identity.
//
// Rule: workload-identity-by-namespace.
func TestAttackTenantNamesPublicIDsOnly(t *testing.T) {
	// The file contains a token, as in a pod with a workload identity.
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("header.payload.signature"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AZURE_FEDERATED_TOKEN_FILE", token)
	a := start(t, stack.Options{})
	a.Apply()
	a.Running(examples.SmallClass)
	const tenant = "tenant"
	inTenant := func(o client.Object) {
		t.Helper()
		o.SetNamespace(tenant)
		if err := a.Control.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Control.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: tenant}}); err != nil {
		t.Fatal(err)
	}
	ids := a.Credentials()
	delete(ids, "clientSecret")
	inTenant(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: examples.Azure.Credentials(),
			Labels: map[string]string{v1beta1.LabelSecretUse: v1beta1.SecretUseCredentials}},
		StringData: ids,
	})
	class := a.Class(examples.LargeClass, "borrowed", func(map[string]any) {})
	class.Spec.UserDataRef = nil
	inTenant(class)
	machine := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "borrowed",
		Labels: map[string]string{v1beta1.LabelTypeVersion: v1beta1.TypeVersion}}}
	machine.Spec.ClassRef = &v1beta1.LocalRef{Name: class.Name}
	inTenant(machine)
	env.Await(t, a.Control, &v1beta1.MachineList{}, "an error with the flag",
		func(l *v1beta1.MachineList) (bool, string) {
			if len(l.Items) != 1 {
				return false, fmt.Sprintf("got %d machines", len(l.Items))
			}
			launched := meta.FindStatusCondition(l.Items[0].Status.Conditions, v1beta1.ConditionLaunched)
			return launched != nil && launched.Status == metav1.ConditionFalse &&
				strings.Contains(launched.Message, "--azure-workload-identity-for="+tenant+"/"), fmt.Sprintf("%+v", launched)
		}, client.InNamespace(tenant))
	if state := a.state(); state.Created != fleet.Machines {
		t.Errorf("Azure created %d machines, want the %d of the fleet", state.Created, fleet.Machines)
	}
}
