package demo

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
)

// The processes must run with the settings that a scenario prints.
func TestAScenarioPrintsItsSettings(t *testing.T) {
	for _, sc := range scenarios() {
		o := stack.Options{}
		sc.arrange(&o)
		fleet, err := examples.Fleet()
		if err != nil {
			t.Fatal(err)
		}
		kubelets := ""
		for _, o := range fleet {
			sc.declare(o)
			if secret, ok := o.(*corev1.Secret); ok && secret.Name == examples.UserDataSecret {
				kubelets = secret.StringData[v1beta1.DefaultUserDataKey]
			}
		}
		reported := &strings.Builder{}
		explain(newScreen(reported, false), sc.settings)
		for _, q := range sc.settings {
			flag := "--" + q.name + "=" + q.value
			where := map[string][][]string{
				componentManager: {o.ManagerArgs}, componentProcesses: {o.ManagerArgs, o.ProviderArgs},
				componentControllerManager: {o.ExtraControllerManagerArgs},
			}[q.component]
			for _, args := range where {
				if !slices.Contains(args, flag) {
					t.Errorf("%s: %s is started without %s: %q", sc.name, q.component, flag, args)
				}
			}
			line := "\n      " + q.name + ": " + q.value + "\n"
			if q.component == componentKubelets && !strings.Contains(kubelets, line) {
				t.Errorf("%s: the kubelets lack %q:\n%s", sc.name, line, kubelets)
			}
			if !strings.Contains(reported.String(), q.name+"="+q.value+" (by default "+q.defaultValue+")") {
				t.Errorf("%s: %s is not reported:\n%s", sc.name, q.name, reported)
			}
		}
	}
}

func TestOnlyTheOutageScenarioHasASeparateTarget(t *testing.T) {
	for name, want := range map[string]bool{"outage": true, "drain": false} {
		sc, err := findScenario(name)
		if err != nil {
			t.Fatal(err)
		}
		o := stack.Options{}
		sc.arrange(&o)
		if o.SeparateTarget != want {
			t.Errorf("%s: a separate target is %v, want %v", name, o.SeparateTarget, want)
		}
	}
}

func TestCheckKept(t *testing.T) {
	machine := func(change func(*v1beta1.Machine)) v1beta1.Machine {
		m := v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", UID: types.UID("1")}}
		m.Status.Phase = v1beta1.MachineRunning
		change(&m)
		return m
	}
	before := []v1beta1.Machine{machine(func(*v1beta1.Machine) {})}
	marked := metav1.Condition{Type: v1beta1.ConditionRemediationRequested, Status: metav1.ConditionTrue}
	blocked := metav1.Condition{Type: v1beta1.ConditionRemediationRequested, Status: metav1.ConditionFalse}
	for name, c := range map[string]struct {
		change func(*v1beta1.Machine)
		want   string
	}{
		"unchanged":               {func(*v1beta1.Machine) {}, ""},
		"unhealthy":               {func(m *v1beta1.Machine) { m.Status.Phase = v1beta1.MachineUnhealthy }, ""},
		"remediation not allowed": {func(m *v1beta1.Machine) { m.Status.Conditions = []metav1.Condition{blocked} }, ""},
		"another machine":         {func(m *v1beta1.Machine) { m.UID = "2" }, "machine m no longer exists"},
		"being deleted": {func(m *v1beta1.Machine) { now := metav1.Now(); m.DeletionTimestamp = &now },
			"machine m is being deleted"},
		"failed": {func(m *v1beta1.Machine) { m.Status.Phase = v1beta1.MachineFailed }, "machine m is Failed"},
		"to be replaced": {func(m *v1beta1.Machine) { m.Status.Conditions = []metav1.Condition{marked} },
			"machine m is marked for replacement"},
	} {
		got := ""
		if err := (snapshot{machines: []v1beta1.Machine{machine(c.change)}}).checkKept(before); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	if err := (snapshot{}).checkKept(before); err == nil {
		t.Error("checkKept() = nil for a machine that does not exist")
	}
}

func TestConditionPart(t *testing.T) {
	const description = `Name:  workers
Status:
  Conditions:
    Last Transition Time:  2026-01-01T00:00:00Z
    Message:               fine
    Reason:                MinimumReplicasAvailable
    Status:                True
    Type:                  Available
    Last Transition Time:  2026-01-01T00:00:01Z
    Message:               The target cluster cannot be reached.
    Reason:                ControlPlaneUnreachable
    Status:                True
    Type:                  Frozen
  Replicas:  3
Events:  <none>
`
	const want = `Conditions:
  Last Transition Time:  2026-01-01T00:00:01Z
  Message:               The target cluster cannot be reached.
  Reason:                ControlPlaneUnreachable
  Status:                True
  Type:                  Frozen`
	if got := conditionPart("Frozen")(description); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if got := conditionPart("Paused")(description); got != "" {
		t.Errorf("conditionPart() of a missing condition is\n%s", got)
	}
	if got := conditionsPart(description); strings.Count(got, "Type:") != 2 {
		t.Errorf("conditionsPart() lacks a condition:\n%s", got)
	}
}
