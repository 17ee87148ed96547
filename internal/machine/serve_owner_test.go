package machine

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: request-without-owner-reported.
func TestRequestsWithoutOwnerAreReported(t *testing.T) {
	t.Parallel()
	annotate := func(key string) func(*v1beta1.Machine) {
		return func(m *v1beta1.Machine) { metav1.SetMetaDataAnnotation(&m.ObjectMeta, key, "") }
	}
	mark := func(reason string) func(*v1beta1.Machine) {
		return func(m *v1beta1.Machine) {
			meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: v1beta1.ConditionRemediationRequested,
				Status: metav1.ConditionTrue, Reason: reason})
		}
	}
	own := func(m *v1beta1.Machine) {
		m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(
			&v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "set"}},
			v1beta1.GroupVersion.WithKind("MachineSet"))}
	}
	for name, test := range map[string]struct {
		change []func(*v1beta1.Machine)
		want   string
	}{
		"no request": {},
		"replace":    {[]func(*v1beta1.Machine){annotate(v1beta1.AnnotationReplace)}, "annotation machinist.dev/replace"},
		"delete in a scale-down": {[]func(*v1beta1.Machine){annotate(v1beta1.AnnotationDeleteMachine)},
			"annotation machinist.dev/delete-machine"},
		"remediate": {[]func(*v1beta1.Machine){annotate(v1beta1.AnnotationRemediate),
			mark(v1beta1.ReasonRemediateAnnotation)}, "annotation machinist.dev/remediate"},
		"unhealthy":        {[]func(*v1beta1.Machine){mark(v1beta1.ReasonBuiltInPolicy)}, "condition RemediationRequested"},
		"for a remediator": {[]func(*v1beta1.Machine){mark(v1beta1.ReasonExternalRemediation)}, ""},
		"exempt": {[]func(*v1beta1.Machine){mark(v1beta1.ReasonBuiltInPolicy),
			annotate(v1beta1.AnnotationSkipRemediation)}, ""},
		"owned":     {[]func(*v1beta1.Machine){annotate(v1beta1.AnnotationReplace), own}, ""},
		"preserved": {[]func(*v1beta1.Machine){annotate(v1beta1.AnnotationReplace), annotate(v1beta1.AnnotationPreservedUntil)}, ""},
		"paused":    {[]func(*v1beta1.Machine){annotate(v1beta1.AnnotationReplace), annotate(v1beta1.AnnotationPaused)}, ""},
	} {
		before, m := &v1beta1.Machine{}, &v1beta1.Machine{}
		for _, change := range test.change {
			change(m)
		}
		if got := strings.Join(requestsWithoutOwner(m), ", "); got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
		if test.want != "" && !machineChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: m}) {
			t.Errorf("%s: the change of the machine triggers no pass", name)
		}
		released := m.DeepCopy()
		own(m)
		if test.want != "" && !machineChanged().Update(event.UpdateEvent{ObjectOld: m, ObjectNew: released}) {
			t.Errorf("%s: the loss of the owner triggers no pass", name)
		}
	}
}

// Rule: request-without-owner-reported.
func TestConditionOwnedFollowsRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("m")
	w.annotate("m", v1beta1.AnnotationReplace)
	w.reconcile("m")
	c := w.wantCondition(w.get("m"), v1beta1.ConditionOwned, metav1.ConditionFalse, v1beta1.ReasonNoMachineSet)
	if !strings.Contains(c.Message, v1beta1.AnnotationReplace) {
		t.Errorf("the message %q does not name the annotation", c.Message)
	}
	w.wantQuiet("m")
	w.update("m", func(m *v1beta1.Machine) { delete(m.Annotations, v1beta1.AnnotationReplace) })
	w.reconcile("m")
	if c := meta.FindStatusCondition(w.get("m").Status.Conditions, v1beta1.ConditionOwned); c != nil {
		t.Errorf("without the request, the condition is %+v", c)
	}
}
