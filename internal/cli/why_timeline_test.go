package cli

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/timeline"
)

func (p *testFleet) showsTimelines(t *testing.T, set *v1beta1.MachineSet) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "timeline-" + p.namespace}}
	p.create(node)
	t.Cleanup(func() { _ = p.api.Delete(context.Background(), node) })
	m := p.machine("timed", set)
	now := m.CreationTimestamp // An event before the creation would not belong to this machine's timeline.
	launched := condition(v1beta1.ConditionLaunched, metav1.ConditionTrue, v1beta1.ReasonInstanceLaunched, "")
	launched.LastTransitionTime = now
	m.Status.Conditions = []metav1.Condition{launched}
	m.Status.Phase, m.Status.NodeRef = v1beta1.MachineRunning, &v1beta1.NodeRef{Name: node.Name, UID: node.UID}
	m.Status.LastOperation = &v1beta1.LastOperation{Type: v1beta1.OperationCreate, State: v1beta1.OperationSucceeded,
		LastUpdateTime: &now}
	if err := p.api.Status().Update(context.Background(), m); err != nil {
		t.Fatal(err)
	}
	p.create(&corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "timed.1"}, Reason: v1beta1.ReasonCreateFailed, Message: "Internal: try again",
		InvolvedObject: corev1.ObjectReference{Kind: "Machine", Namespace: p.namespace, Name: m.Name, UID: m.UID,
			APIVersion: v1beta1.GroupVersion.String()},
		FirstTimestamp: now, LastTimestamp: now, Count: 2, Type: corev1.EventTypeWarning,
	})
	p.run("why", "machine/timed", "--timeline").succeeds(t).prints(t, "machine/timed -n "+p.namespace, "Create", "SHARE",
		"event CreateFailed 2 times: Internal: try again")
	var read timeline.Timeline
	out := execute(t, "why", "node/"+node.Name, "--timeline", "-o", "json").succeeds(t).out
	if err := json.Unmarshal([]byte(out), &read); err != nil {
		t.Fatal(err)
	}
	if len(read.Operations) != 1 || read.Operations[0].Kind != timeline.Create || read.Operations[0].End == nil {
		t.Errorf("read %+v", read)
	}
	p.run("why", "md/web", "--timeline").fails(t, "--timeline needs machine/NAME or node/NAME", "machinedeployment/web")
	p.showsReplacement(t, m)
}

func (p *testFleet) showsReplacement(t *testing.T, m *v1beta1.Machine) {
	t.Helper()
	deployment := &v1beta1.MachineDeployment{}
	if err := p.api.Get(context.Background(), client.ObjectKey{Namespace: p.namespace, Name: "web"},
		deployment); err != nil {
		t.Fatal(err)
	}
	old := &v1beta1.MachineSet{}
	if err := p.api.Get(context.Background(), client.ObjectKey{Namespace: p.namespace, Name: "web-1"}, old); err != nil {
		t.Fatal(err)
	}
	newest := &v1beta1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: "web-2",
		Annotations:     map[string]string{v1beta1.AnnotationRevision: "2"},
		OwnerReferences: old.OwnerReferences}, Spec: *old.Spec.DeepCopy()}
	p.create(newest)
	t.Cleanup(func() { _ = p.api.Delete(context.Background(), newest) })
	p.run("why", "machine/"+m.Name, "--timeline").succeeds(t).prints(t, "Replace", "the rollout to reach the machine")
}

func TestEventOfReadsBothEventAPIs(t *testing.T) {
	first, last := time.Unix(1000, 5000), time.Unix(2000, 5000)
	for name, e := range map[string]corev1.Event{
		"older": {FirstTimestamp: metav1.NewTime(first), LastTimestamp: metav1.NewTime(last), Count: 3},
		"newer": {EventTime: metav1.NewMicroTime(first),
			Series: &corev1.EventSeries{Count: 3, LastObservedTime: metav1.NewMicroTime(last)}},
	} {
		got := eventOf(&e)
		if !got.First.Equal(time.Unix(1000, 0)) || !got.Last.Equal(time.Unix(2000, 0)) || got.Count != 3 {
			t.Errorf("%s: read %+v", name, got)
		}
	}
	if got := eventOf(&corev1.Event{EventTime: metav1.NewMicroTime(first)}); !got.Last.Equal(time.Unix(1000, 0)) {
		t.Errorf("read %+v", got)
	}
}
