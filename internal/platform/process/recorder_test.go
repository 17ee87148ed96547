package process

import (
	"fmt"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Two events with different texts are different events, even if the object did not change in between.
//
// Rule: events-by-text.
func TestEventsWithDifferentTextsAreNotCombined(t *testing.T) {
	c := testConfig(t)
	class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: c.LeaderElectionNamespace, Name: "small",
		UID: "1", ResourceVersion: "7"}}
	want := map[string]int32{"Created 3 machines: a, b, c.": 2, "Created 1 machine: d.": 1}
	p := start(t, c, testOptions(), func(p *Process) error {
		recorder := p.Manager().GetEventRecorder("test")
		for text, times := range want {
			for range times {
				recorder.Eventf(class, nil, corev1.EventTypeNormal, "Created", "Create", "%s", text)
			}
		}
		return nil
	})
	p.elected()
	api := clientset(t, planes.control.Config()).CoreV1().Events(c.LeaderElectionNamespace)
	eventually(t, func() error {
		list, err := api.List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=MachineClass"})
		if err != nil {
			return err
		}
		got := map[string]int32{}
		for i := range list.Items {
			got[list.Items[i].Message] += list.Items[i].Count
		}
		if !maps.Equal(got, want) {
			return fmt.Errorf("the events are %v, want %v", got, want)
		}
		return nil
	})
}

// Rule: events-by-text.
func TestEventsHaveTheirActionsAndRelatedObjects(t *testing.T) {
	c := testConfig(t)
	class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: c.LeaderElectionNamespace, Name: "small",
		UID: "1", ResourceVersion: "7"}}
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: c.LeaderElectionNamespace, Name: "a", UID: "2"}}
	p := start(t, c, testOptions(), func(p *Process) error {
		recorder := p.Manager().GetEventRecorder("test")
		for range 3 { // A repeated event is patched.
			recorder.Eventf(class, m, corev1.EventTypeNormal, "Created", "Create", "Created %s", "it")
		}
		recorder.Eventf(class, nil, corev1.EventTypeNormal, "Gone", "Delete", "Gone")
		return nil
	})
	p.elected()
	api := clientset(t, planes.control.Config()).CoreV1().Events(c.LeaderElectionNamespace)
	eventually(t, func() error {
		list, err := api.List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=MachineClass"})
		if err != nil {
			return err
		}
		got := map[string]string{}
		for _, e := range list.Items {
			related := "nothing"
			if e.Related != nil {
				related = e.Related.Kind + " " + e.Related.Name + " " + string(e.Related.UID)
			}
			got[fmt.Sprintf("%s %d", e.Reason, e.Count)] = fmt.Sprintf("%s of %s %v", e.Action, related, e.Annotations)
		}
		want := map[string]string{"Created 3": "Create of Machine a 2 map[]", "Gone 1": "Delete of nothing map[]"}
		if !maps.Equal(got, want) {
			return fmt.Errorf("the events are %v, want %v", got, want)
		}
		return nil
	})
}
