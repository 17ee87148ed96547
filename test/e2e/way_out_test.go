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

// Where nothing goes on by itself, why names a command that helps, and here it is run as it stands there.
func TestWhyNamesAWayOutThatWorks(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := start(t, stack.Options{ProviderArgs: defaultLease}) // It is killed, and why notices.
	m.quick()
	m.fleet(1, nil)
	m.running(1)
	waits := func(reason string) func(v1beta1.Machine) bool {
		return func(machine v1beta1.Machine) bool {
			c := meta.FindStatusCondition(machine.Status.Conditions, v1beta1.ConditionReady)
			return c != nil && c.Reason == reason
		}
	}

	t.Log("the class is being deleted, serves the machines that refer to it, and ends with the last of them")
	m.kubectl("delete", "mclass/"+examples.SmallClass, "--wait=false")
	m.scale(2)
	m.running(2)
	m.rollTo(examples.LargeClass)
	env.Await(t, m.control, &v1beta1.MachineClassList{}, "the end of the class",
		func(l *v1beta1.MachineClassList) (bool, string) {
			return len(l.Items) == 1, fmt.Sprintf("%d classes", len(l.Items))
		}, client.InNamespace(namespace))

	t.Log("the class names a provider that does not exist")
	m.apply(strings.ReplaceAll(classManifest("elsewhere", "large"), "provider: sim", "provider: nowhere"))
	m.rollTo("elsewhere")
	m.follow(m.oneThat("has a class of no provider", func(machine v1beta1.Machine) bool {
		return machine.Spec.ClassRef.Name == "elsewhere" && len(machine.Status.Conditions) == 0
	}), examples.LargeClass)
	m.letGo()
	m.running(2)

	t.Log("the Secret with the credentials never existed")
	m.apply(strings.ReplaceAll(classManifest("unpaid", "large"), examples.CredentialsSecret, "no-such-secret"))
	if err := m.control.Create(ctx, &v1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "alone"},
		Spec:       v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "unpaid"}},
	}); err != nil {
		t.Fatal(err)
	}
	m.oneThat("misses its credentials", waits(v1beta1.ReasonCredentialsNotFound))
	m.kubectl("delete", "ma/alone", "--wait=false")
	m.follow(m.oneThat("cannot be deleted", func(machine v1beta1.Machine) bool {
		c := meta.FindStatusCondition(machine.Status.Conditions, v1beta1.ConditionDeleting)
		return c != nil && c.Reason == v1beta1.ReasonCredentialsNotFound
	}), "")
	m.forced("alone")
	m.running(2)

	t.Log("the account of a machine that runs is gone")
	d := m.deployment()
	victim := m.running(2)[0]
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: examples.CredentialsSecret}}
	if err := m.control.Patch(ctx, secret, client.RawPatch("application/merge-patch+json",
		[]byte(`{"stringData":{"token":"of-a-closed-account"}}`))); err != nil {
		t.Fatal(err)
	}
	m.kubectl("delete", "ma/"+victim.Name, "--wait=false")
	m.follow(m.oneThat("cannot be deleted", func(machine v1beta1.Machine) bool {
		c := meta.FindStatusCondition(machine.Status.Conditions, v1beta1.ConditionDeleting)
		return c != nil && c.Reason == v1beta1.ReasonCredentialsRefused
	}), "")
	m.forced(victim.Name)

	t.Log("the provider's process runs no more")
	if err := m.Provider.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := m.control.Delete(ctx, d); err != nil {
		t.Fatal(err)
	}
	m.await("the fleet to be deleted", func(machines []v1beta1.Machine) bool {
		return !slices.ContainsFunc(machines, func(m v1beta1.Machine) bool { return m.DeletionTimestamp.IsZero() })
	})
	eventually(t, "why says that no process is running", func() (bool, string) {
		view := m.why(m.oneThat("is being deleted", deleted).Name)
		return view.Findings[0].Reason == why.NoProcess, fmt.Sprint(view.Findings)
	})
	m.letGo()
	m.none()
}

// forced waits for the end of a machine that is deleted by force. The cloud gets two minutes to answer.
func (m *machinist) forced(name string) {
	m.t.Helper()
	env.AwaitFor(m.t, 2*env.Patience, m.control, &v1beta1.MachineList{}, "the end of machine "+name,
		func(l *v1beta1.MachineList) (bool, string) {
			return !slices.ContainsFunc(l.Items, func(m v1beta1.Machine) bool { return m.Name == name }), describe(l.Items)
		}, client.InNamespace(namespace))
}

// oneThat waits for a machine.
func (m *machinist) oneThat(what string, is func(v1beta1.Machine) bool) (found v1beta1.Machine) {
	m.t.Helper()
	m.await("a machine that "+what, func(machines []v1beta1.Machine) bool {
		i := slices.IndexFunc(machines, is)
		if i >= 0 {
			found = machines[i]
		}
		return i >= 0
	})
	return found
}

func deleted(machine v1beta1.Machine) bool { return !machine.DeletionTimestamp.IsZero() }

// letGo does what why says of all machines that nobody serves and that are being deleted.
func (m *machinist) letGo() {
	m.t.Helper()
	list := &v1beta1.MachineList{}
	m.oneThat("is being deleted", deleted)
	if err := m.control.List(context.Background(), list, client.InNamespace(namespace)); err != nil {
		m.t.Fatal(err)
	}
	for _, machine := range list.Items {
		if deleted(machine) {
			m.follow(machine, "")
		}
	}
}

// why asks machinist why.
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

// follow runs the first command that machinist why names of a machine, with a class for the reader's choice.
func (m *machinist) follow(machine v1beta1.Machine, class string) {
	m.t.Helper()
	for _, f := range m.why(machine.Name).Findings {
		command := commandInAdvice.FindString(f.Do)
		if command == "" {
			continue
		}
		cmd := exec.Command("bash", "-c", strings.ReplaceAll(command, "CLASS", class))
		cmd.Env = append(os.Environ(), "KUBECONFIG="+m.Control.Kubeconfig(), "PATH="+filepath.Dir(m.Control.Kubectl())+":"+
			os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		m.t.Logf("%s\n%s", command, out)
		if err != nil {
			m.t.Fatalf("what why says of machine %s fails: %s: %v\n%s", machine.Name, command, err, out)
		}
		return
	}
	m.t.Fatalf("why names no command for machine %s:\n%s", machine.Name, describe([]v1beta1.Machine{machine}))
}
