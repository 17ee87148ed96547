package why

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// mustReport checks that a finding about the object has the reason and all texts. It also fails if a finding contains
// the words "waits for nothing".
func mustReport(t *testing.T, findings []Finding, about, reason string, texts ...string) Finding {
	t.Helper()
	for _, f := range findings {
		if strings.Contains(f.Description, "waits for nothing") {
			t.Errorf("%s: %q", f.Object, f.Description)
		}
	}
	for _, f := range findings {
		if f.Object != about || f.Reason != reason {
			continue
		}
		for _, text := range texts {
			if !strings.Contains(f.Description+f.Message+f.NextStep+f.Instructions, text) {
				t.Errorf("%+v does not contain %q", f, text)
			}
		}
		return f
	}
	t.Fatalf("no finding about %s with the reason %s in %+v", about, reason, findings)
	return Finding{}
}

func setOf(name, deployment, color string, conditions ...metav1.Condition) v1beta1.MachineSet {
	s := v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name, UID: types.UID("set-" + name)}}
	s.Spec.Selector.MatchLabels = map[string]string{"pool": "web", "color": color}
	s.Status.Conditions = conditions
	if deployment != "" {
		yes := true
		s.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineDeployment", Name: "web", UID: "d", Controller: &yes}}
	}
	return s
}

func unownedMachine(labels map[string]string, from string) *v1beta1.Machine {
	return machine(func(m *v1beta1.Machine) {
		m.OwnerReferences, m.Labels = nil, labels
		if from != "" {
			annotated(v1beta1.AnnotationReleasedFrom, from)(m)
		}
	})
}

// Rule: why-says-who-owns-no-machine.
func TestExplainUnownedMachine(t *testing.T) {
	skipped := newCondition(v1beta1.ConditionAdoptionSkipped, metav1.ConditionTrue, v1beta1.ReasonEnoughReplicas,
		"The set has enough machines, so it does not adopt these matching machines: web-1")
	sets := []v1beta1.MachineSet{setOf("other", "", "red"), setOf("old", "web", "red"), setOf("new", "web", "blue")}
	explain := func(m *v1beta1.Machine, sets []v1beta1.MachineSet) []Finding {
		return Explain(Facts{Now: now, Machine: m, Sets: sets, Provider: running})
	}
	t.Run("its labels were changed", func(t *testing.T) {
		f := mustReport(t, explain(unownedMachine(map[string]string{"color": "blue", "pool": "x"}, "d"), sets),
			"machine/web-1", NoOwner,
			"MachineSet new released the machine", "pool=web")
		if !strings.HasSuffix(f.Instructions, "kubectl label --overwrite machines.machinist.dev web-1 -n prod pool=web") {
			t.Errorf("the command is %q", f.Instructions)
		}
	})
	t.Run("its set is gone", func(t *testing.T) {
		mustReport(t, explain(unownedMachine(nil, "gone"), sets), "machine/web-1", NoOwner, "no longer exists")
	})
	t.Run("its set has enough", func(t *testing.T) {
		sets := append(sets, setOf("alone", "", "green", skipped))
		m := unownedMachine(map[string]string{"color": "green", "pool": "web"}, "")
		mustReport(t, explain(m, sets), "machineset/alone", v1beta1.ReasonEnoughReplicas, "as many machines as replicas", "web-1")
	})
	t.Run("no set ever owned it", func(t *testing.T) {
		if f := explain(unownedMachine(map[string]string{"pool": "other"}, ""), sets); len(f) != 1 ||
			!strings.HasPrefix(f[0].Description, "The machine waits for nothing") {
			t.Errorf("got %+v", f)
		}
	})
}

// Rule: refused-request-in-condition.
func TestExplainReportsPendingCertificateRequest(t *testing.T) {
	refused := no(v1beta1.ConditionCertificateApproved, v1beta1.ReasonServingCertificateNotApproved,
		"A request of system:node:node-1 for a serving certificate is left pending (UnknownAddress): 10.0.0.6.", time.Hour)
	mustReport(t, Explain(Facts{Now: now, Machine: machine(refused), Provider: running}), "machine/web-1",
		v1beta1.ReasonServingCertificateNotApproved, "kubectl logs", "10.0.0.6")
	joining := no(v1beta1.ConditionCertificateApproved, v1beta1.ReasonClientCertificateNotApproved, "WrongName", time.Hour)
	waits := no(v1beta1.ConditionRegistered, v1beta1.ReasonWaitingForNode, "", time.Hour)
	mustReport(t, Explain(Facts{Now: now, Machine: machine(joining, waits), Provider: running}), "machine/web-1",
		v1beta1.ReasonClientCertificateNotApproved, "WrongName")
}

func TestExplainClass(t *testing.T) {
	class := func(conditions ...metav1.Condition) *v1beta1.MachineClass {
		c := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "small", Generation: 1}}
		c.Status.ObservedGeneration, c.Status.Conditions = 1, conditions
		return c
	}
	explain := func(c *v1beta1.MachineClass) []Finding {
		return ExplainClass(ClassFacts{Class: c, Provider: running})
	}
	ready := newCondition(v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonValid, "")
	if f := explain(class(ready)); len(f) != 1 || !strings.HasPrefix(f[0].Description, "The class waits for nothing") {
		t.Errorf("got %+v", f)
	}
	const about = "machineclass/small"
	mustReport(t, explain(class(newCondition(v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonSecretNotFound,
		"user-data"))),
		about, v1beta1.ReasonSecretNotFound, "user-data")
	mustReport(t, explain(class(ready, newCondition(v1beta1.ConditionOrphanRemovalBlocked, metav1.ConditionTrue,
		v1beta1.ReasonMostInstancesOrphaned, "3 of 3"))), about, v1beta1.ReasonMostInstancesOrphaned, "3 of 3")
	exhausted := class(ready, newCondition(v1beta1.ConditionCapacityAvailable, metav1.ConditionFalse,
		v1beta1.ReasonInsufficientResources, "no host"))
	retry := metav1.NewTime(now.Add(time.Minute))
	exhausted.Status.CapacityRetryTime = &retry
	f := mustReport(t, explain(exhausted), about, v1beta1.ReasonInsufficientResources, "no host", "spec.placement")
	if f.NextStepTime == nil || !f.NextStepTime.Equal(retry.Time) {
		t.Errorf("the next step is at %v, want %v", f.NextStepTime, retry)
	}
	if f := explain(class(ready, newCondition(v1beta1.ConditionCapacityAvailable, metav1.ConditionTrue,
		v1beta1.ReasonCapacityFound, ""))); len(f) != 1 || !strings.HasPrefix(f[0].Description, "The class waits for nothing") {
		t.Errorf("a class with capacity: %+v", f)
	}
	mustReport(t, explain(class()), about, ReasonUnobserved)
	changed := class(ready)
	changed.Generation = 2
	mustReport(t, explain(changed), about, ReasonUnobserved)
	deleted := class(ready, newCondition(v1beta1.ConditionDeleting, metav1.ConditionTrue, v1beta1.ReasonInUse, "web-1"))
	deleted.Finalizers = []string{v1beta1.InUseFinalizer, "example.com/x"}
	at := ago(time.Minute)
	deleted.DeletionTimestamp = &at
	mustReport(t, explain(deleted), about, v1beta1.ReasonInUse, "web-1")
	mustReport(t, explain(deleted), about, OtherFinalizers, "example.com/x")
}
