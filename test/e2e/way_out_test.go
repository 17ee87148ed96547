//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/internal/cli/why"
	"machinist.dev/machinist/test/env"
)

// For a machine that cannot continue, "machinist why" prints a command that solves the problem. The test runs these
// commands.
func TestWhyAdviceWorks(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	// "machinist why" reports a killed provider when its Lease has expired.
	m := start(t, stack.Options{ProviderArgs: defaultLease})
	m.removeDelays()
	m.createFleet(1, nil)
	m.awaitRunning(1)
	notReady := func(reason string) func(v1beta1.Machine) bool {
		return func(machine v1beta1.Machine) bool {
			c := meta.FindStatusCondition(machine.Status.Conditions, v1beta1.ConditionReady)
			return c != nil && c.Reason == reason
		}
	}

	t.Log("a class that is being deleted still serves its machines, and is gone after the last of them")
	m.kubectl("delete", "mclass/"+examples.SmallClass, "--wait=false")
	m.scale(2)
	m.awaitRunning(2)
	m.rollTo(examples.LargeClass)
	env.Await(t, m.control, &v1beta1.MachineClassList{}, "the class to be gone",
		func(l *v1beta1.MachineClassList) (bool, string) {
			return len(l.Items) == 1, fmt.Sprintf("%d classes", len(l.Items))
		}, client.InNamespace(namespace))

	t.Log("the class names a provider that does not exist")
	m.apply(strings.ReplaceAll(classManifest("elsewhere", "large"), "provider: sim", "provider: nowhere"))
	m.rollTo("elsewhere")
	m.followAdvice(m.awaitOne("has a class with an unknown provider", func(machine v1beta1.Machine) bool {
		return machine.Spec.ClassRef.Name == "elsewhere" && len(machine.Status.Conditions) == 0
	}), examples.LargeClass)
	m.followAdviceForDeleted()
	m.awaitRunning(2)

	t.Log("the Secret with the credentials never existed")
	m.apply(strings.ReplaceAll(classManifest("unpaid", "large"), examples.CredentialsSecret, "no-such-secret"))
	if err := m.control.Create(ctx, &v1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "alone"},
		Spec:       v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "unpaid"}},
	}); err != nil {
		t.Fatal(err)
	}
	m.awaitOne("lacks its credentials", notReady(v1beta1.ReasonCredentialsNotFound))
	m.kubectl("delete", "ma/alone", "--wait=false")
	m.followAdvice(m.awaitOne("cannot be deleted", func(machine v1beta1.Machine) bool {
		c := meta.FindStatusCondition(machine.Status.Conditions, v1beta1.ConditionDeleting)
		return c != nil && c.Reason == v1beta1.ReasonCredentialsNotFound
	}), "")
	m.awaitForceDeleted("alone")
	m.awaitRunning(2)

	t.Log("the cloud account of a running machine is gone")
	d := m.deployment()
	victim := m.awaitRunning(2)[0]
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: examples.CredentialsSecret}}
	if err := m.control.Patch(ctx, secret, client.RawPatch("application/merge-patch+json",
		[]byte(`{"stringData":{"token":"of-a-closed-account"}}`))); err != nil {
		t.Fatal(err)
	}
	m.kubectl("delete", "ma/"+victim.Name, "--wait=false")
	m.followAdvice(m.awaitOne("cannot be deleted", func(machine v1beta1.Machine) bool {
		c := meta.FindStatusCondition(machine.Status.Conditions, v1beta1.ConditionDeleting)
		return c != nil && c.Reason == v1beta1.ReasonCredentialsRefused
	}), "")
	m.awaitForceDeleted(victim.Name)

	t.Log("the provider process is not running any more")
	if err := m.Provider.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := m.control.Delete(ctx, d); err != nil {
		t.Fatal(err)
	}
	m.await("the fleet to be deleted", func(machines []v1beta1.Machine) bool {
		return !slices.ContainsFunc(machines, func(m v1beta1.Machine) bool { return m.DeletionTimestamp.IsZero() })
	})
	eventually(t, "machinist why reports that no process is running", func() (bool, string) {
		view := m.why(m.awaitOne("is being deleted", deleted).Name)
		return view.Findings[0].Reason == why.NoProcess, fmt.Sprint(view.Findings)
	})
	m.followAdviceForDeleted()
	m.awaitNoMachines()
}

// awaitForceDeleted waits until a force-deleted machine is gone. Such a deletion waits for the cloud for up to two
// minutes.
func (m *machinist) awaitForceDeleted(name string) {
	m.t.Helper()
	env.AwaitFor(m.t, 2*env.Patience, m.control, &v1beta1.MachineList{}, "machine "+name+" to be gone",
		func(l *v1beta1.MachineList) (bool, string) {
			return !slices.ContainsFunc(l.Items, func(m v1beta1.Machine) bool { return m.Name == name }), describe(l.Items)
		}, client.InNamespace(namespace))
}

func (m *machinist) awaitOne(what string, match func(v1beta1.Machine) bool) (found v1beta1.Machine) {
	m.t.Helper()
	m.await("a machine that "+what, func(machines []v1beta1.Machine) bool {
		i := slices.IndexFunc(machines, match)
		if i >= 0 {
			found = machines[i]
		}
		return i >= 0
	})
	return found
}

func deleted(machine v1beta1.Machine) bool { return !machine.DeletionTimestamp.IsZero() }

// followAdviceForDeleted runs the advised commands for all machines that are being deleted, while no provider process
// runs.
func (m *machinist) followAdviceForDeleted() {
	m.t.Helper()
	list := &v1beta1.MachineList{}
	m.awaitOne("is being deleted", deleted)
	if err := m.control.List(context.Background(), list, client.InNamespace(namespace)); err != nil {
		m.t.Fatal(err)
	}
	for _, machine := range list.Items {
		if deleted(machine) {
			m.followAdvice(machine, "")
		}
	}
}

func (m *machinist) why(machine string) (view why.View) {
	m.t.Helper()
	cmd := exec.Command(filepath.Join(binDir(m.t), "machinist"), "why", "machine/"+machine, "-n", namespace, "-o", "json",
		"--kubeconfig", m.Control.Kubeconfig())
	out, err := cmd.CombinedOutput()
	if err == nil {
		err = json.Unmarshal(out, &view)
	}
	if err != nil {
		m.t.Fatalf("machinist why machine/%s: %v\n%s", machine, err, out)
	}
	return view
}

var commandInAdvice = regexp.MustCompile(`kubectl .*$`)

// followAdvice runs the first command that "machinist why" advises for a machine. followAdvice replaces CLASS by a
// class.
func (m *machinist) followAdvice(machine v1beta1.Machine, class string) {
	m.t.Helper()
	for _, f := range m.why(machine.Name).Findings {
		command := commandInAdvice.FindString(f.Instructions)
		if command == "" {
			continue
		}
		cmd := exec.Command("bash", "-c", strings.ReplaceAll(command, "CLASS", class))
		cmd.Env = append(os.Environ(), "KUBECONFIG="+m.Control.Kubeconfig(), "PATH="+filepath.Dir(m.Control.Kubectl())+":"+
			os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		m.t.Logf("%s\n%s", command, out)
		if err != nil {
			m.t.Fatalf("the advised command for machine %s failed: %s: %v\n%s", machine.Name, command, err, out)
		}
		return
	}
	m.t.Fatalf("machinist why advises no command for machine %s:\n%s", machine.Name, describe([]v1beta1.Machine{machine}))
}
