package machinedeployment

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: changed-spec-goes-first.
func TestScaledDeploymentGoesAheadOfNewDeployments(t *testing.T) {
	q := priorityqueue.New[reconcile.Request]("test")
	defer q.ShutDown()
	was, is := &v1beta1.MachineDeployment{}, &v1beta1.MachineDeployment{}
	was.Name, was.Generation, is.Name, is.Generation = "good", 1, "good", 2
	for _, w := range New(Options{}).Wiring().AllWatches() {
		if e := (event.UpdateEvent{ObjectOld: was, ObjectNew: is}); sameKind(w.Object) && w.Predicate.Update(e) {
			w.Keys.Update(t.Context(), e, q)
		}
	}
	if _, priority, _ := q.GetWithPriority(); priority <= 0 {
		t.Errorf("a scaled deployment has priority %d, not more than new deployments", priority)
	}
}

func TestVersionTriggersPassOnceTheMachineIsReady(t *testing.T) {
	of := func(version string, change func(*v1beta1.Machine)) *v1beta1.Machine {
		m := machine("a", 1, change)
		m.Status.Version = version
		return m
	}
	for _, test := range []struct {
		name    string
		was, is *v1beta1.Machine
		want    bool
	}{
		{"the machine joins and is not Ready", of("", notReady), of("v1.36.3", notReady), false},
		{"the machine becomes Ready", of("v1.36.3", notReady), of("v1.36.3", isReady), true},
		{"the kubelet is upgraded", of("v1.36.3", isReady), of("v1.37.0", isReady), true},
		{"nothing changes", of("v1.36.3", isReady), of("v1.36.3", isReady), false},
	} {
		if got := machineChanged().Update(event.UpdateEvent{ObjectOld: test.was, ObjectNew: test.is}); got != test.want {
			t.Errorf("%s: a pass is triggered: %t", test.name, got)
		}
	}
}

func TestChangesOfSetsThatTriggerPass(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1beta1.MachineSet)
		want   bool
	}{
		"fewer machines":        {func(s *v1beta1.MachineSet) { s.Status.Replicas, s.Status.ReadyReplicas = 1, 1 }, false},
		"no machine left":       {func(s *v1beta1.MachineSet) { s.Status.Replicas = 0 }, true},
		"the spec changes":      {func(s *v1beta1.MachineSet) { s.Generation = 2 }, true},
		"the spec was observed": {func(s *v1beta1.MachineSet) { s.Status.ObservedGeneration = 1 }, true},
		"a label":               {func(s *v1beta1.MachineSet) { s.Labels = map[string]string{"a": ""} }, true},
		"an annotation":         {func(s *v1beta1.MachineSet) { s.Annotations = map[string]string{"a": ""} }, true},
	} {
		was := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Generation: 1},
			Status: v1beta1.MachineSetStatus{Replicas: 2, ReadyReplicas: 2}}
		is := was.DeepCopy()
		test.change(is)
		if got := setChanged().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}); got != test.want {
			t.Errorf("%s: a pass is triggered: %t", name, got)
		}
	}
}

func TestDisruptionAnnotationsTriggerPass(t *testing.T) {
	with := func(key, value string) *v1beta1.Machine {
		return machine("a", 1, func(m *v1beta1.Machine) { m.Annotations = map[string]string{key: value} })
	}
	unannotated := machine("a", 1, func(*v1beta1.Machine) {})
	for _, test := range []struct {
		name    string
		was, is *v1beta1.Machine
		want    bool
	}{
		{"marked for replacement", unannotated, with(v1beta1.AnnotationReplace, ""), true},
		{"exempt", unannotated, with(v1beta1.AnnotationDoNotDisrupt, ""), true},
		{"no longer exempt", with(v1beta1.AnnotationDoNotDisrupt, ""), unannotated, true},
		{"exempt until another time", with(v1beta1.AnnotationDoNotDisrupt, "2026-05-04T12:00:00Z"),
			with(v1beta1.AnnotationDoNotDisrupt, "2026-05-04T13:00:00Z"), true},
		{"another annotation", unannotated, with("example.com/note", ""), false},
	} {
		if got := machineChanged().Update(event.UpdateEvent{ObjectOld: test.was, ObjectNew: test.is}); got != test.want {
			t.Errorf("%s: a pass is triggered: %t", test.name, got)
		}
	}
}

func sameKind(object any) bool {
	_, ok := object.(*v1beta1.MachineDeployment)
	return ok
}

// Rule: version-skew-waits.
func TestAllowVersionSkewAnnotationTriggersPass(t *testing.T) {
	was := deployment("a")
	is := was.DeepCopy()
	is.Annotations = map[string]string{"mine": ""}
	if deploymentChanged().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}) {
		t.Error("an unrelated annotation triggers a pass")
	}
	is.Annotations[v1beta1.AnnotationAllowVersionSkew] = ""
	if !deploymentChanged().Update(event.UpdateEvent{ObjectOld: was, ObjectNew: is}) {
		t.Error("the annotation that allows version skew triggers no pass")
	}
}
