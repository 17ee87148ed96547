//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/pkg/provider"
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
	a.WaitRunning(examples.SmallClass)
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

// A tenant may create Machines of a class that allows adoption. The tenant names virtual machines of other owners: one
// without the tag for adoption, and, with a class that permits adoption from another cluster, one in another resource
// group. The provider must change none of them. With the tag, it adopts the virtual machine.
//
// Rules: azure-adopts-marked-only, former-identity-in-scope.
func TestAttackTenantAdoptsForeignVirtualMachines(t *testing.T) {
	a := start(t, stack.Options{})
	a.Apply()
	a.WaitRunning(examples.SmallClass)
	customer, err := a.cloud.Customer()
	if err != nil {
		t.Fatal(err)
	}
	subnet := a.subnetOf(examples.SmallClass)
	const lostCluster = "lost"
	former := func(name string) map[string]string {
		return map[string]string{provider.TagCluster: lostCluster, provider.TagMachineUID: "uid-" + name,
			provider.TagMachine: fleet.Namespace + "/" + name}
	}
	marked := map[string]string{"machinist-adoptable": "true"}
	class := a.Class(examples.SmallClass, "adopts", func(map[string]any) {})
	class.Spec.Adoption = v1beta1.AdoptionAllow
	a.Create(class)
	fromLost := a.Class(examples.SmallClass, "adopts-from-lost", func(map[string]any) {})
	fromLost.Spec.Adoption = v1beta1.AdoptionAllow
	fromLost.Annotations = map[string]string{v1beta1.AnnotationAdoptFromCluster: lostCluster,
		v1beta1.AnnotationAdoptFromClusterUntil: time.Now().Add(time.Hour).Format(time.RFC3339)}
	a.Create(fromLost)
	type attack struct {
		class, group string
		tags         map[string]string
		reason, text string
	}
	attacks := map[string]attack{
		"unmarked":      {"adopts", "machines", nil, v1beta1.ReasonAdoptionRefused, "machinist-adoptable=true"},
		"other-group":   {"adopts", "network", nil, v1beta1.ReasonAdoptionRefused, "machinist-adoptable=true"},
		"other-cluster": {"adopts", "machines", former("other-cluster"), v1beta1.ReasonAdoptionRefused, lostCluster},
		"elsewhere":     {"adopts-from-lost", "network", former("elsewhere"), v1beta1.ReasonAdoptionRefused, "resource group network"},
		"marked":        {"adopts", "machines", marked, v1beta1.ReasonInstanceAdopted, ""},
		"former":        {"adopts-from-lost", "machines", former("former"), v1beta1.ReasonInstanceAdopted, ""},
	}
	for name, attack := range attacks {
		var vm string
		if waitErr := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true,
			func(ctx context.Context) (bool, error) {
				vm, err = customer.Launch(ctx, attack.group, name, subnet, attack.tags)
				return err == nil, nil
			}); waitErr != nil {
			t.Fatalf("launch virtual machine %s: %v", name, err)
		}
		machine := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name,
			Labels: map[string]string{v1beta1.LabelTypeVersion: v1beta1.TypeVersion}}}
		machine.Spec.ClassRef = &v1beta1.LocalRef{Name: attack.class}
		machine.Spec.ProviderID = "azure://" + vm
		a.Create(machine)
	}
	env.Await(t, a.Control, &v1beta1.MachineList{}, "the decisions about all virtual machines",
		func(l *v1beta1.MachineList) (bool, string) {
			decided := map[string]bool{}
			state := ""
			for i := range l.Items {
				m := &l.Items[i]
				attack, ours := attacks[m.Name]
				if launched := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched); ours && launched != nil {
					decided[m.Name] = launched.Reason == attack.reason && strings.Contains(launched.Message, attack.text)
					state += fmt.Sprintf("%s: %s: %s\n", m.Name, launched.Reason, launched.Message)
				}
			}
			return !slices.ContainsFunc(slices.Collect(maps.Keys(attacks)),
				func(name string) bool { return !decided[name] }), state
		}, client.InNamespace(fleet.Namespace))
	state := a.state()
	for name, attack := range attacks {
		tags, adopted := state.Tags[name], attack.reason == v1beta1.ReasonInstanceAdopted
		if !adopted && !maps.Equal(tags, attack.tags) {
			t.Errorf("%s: got the tags %v, want %v without a change", name, tags, attack.tags)
		}
		if adopted && (tags[provider.TagMachineUID] == "" || tags[provider.TagCluster] == lostCluster) {
			t.Errorf("%s: got the tags %v, want those of the new Machine", name, tags)
		}
		// The deletion of the Machine must not delete a foreign virtual machine.
		machine := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: name}}
		if err := a.Control.Delete(t.Context(), machine); err != nil {
			t.Fatal(err)
		}
	}
	env.Await(t, a.Control, &v1beta1.MachineList{}, "the end of the Machines",
		func(l *v1beta1.MachineList) (bool, string) {
			return !slices.ContainsFunc(l.Items, func(m v1beta1.Machine) bool { return attacks[m.Name].class != "" }),
				fmt.Sprint(len(l.Items))
		}, client.InNamespace(fleet.Namespace))
	for name, attack := range attacks {
		_, exists := a.state().Sizes[name]
		if want := attack.reason != v1beta1.ReasonInstanceAdopted; exists != want {
			t.Errorf("virtual machine %s exists: %t, want %t", name, exists, want)
		}
	}
}

// subnetOf returns the subnet of the first network interface of a class.
func (a *azure) subnetOf(class string) (subnet string) {
	a.Helper()
	a.Class(class, "any", func(spec map[string]any) {
		subnet, _ = spec["networkInterfaces"].([]any)[0].(map[string]any)["subnetID"].(string)
	})
	return subnet
}
