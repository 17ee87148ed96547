package machine

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: locks-not-held-for-others.
func TestPreservationDoesNotWaitForAnotherOwner(t *testing.T) {
	w := newWorld(t)
	w.class("small", "")
	fail := func(name, owner string) {
		w.running(name, func(m *v1beta1.Machine) {
			ofASet(m)
			m.Labels[v1beta1.LabelMachineSet], m.OwnerReferences[0].Name = owner, owner
		})
		w.annotateWith(name, v1beta1.AnnotationPreserve, v1beta1.PreserveWhenFailed)
		w.request(name, v1beta1.ReasonBuiltInPolicy, "True")
	}
	const others = 32
	fail("slow", "slow")
	for i := range others {
		fail(fmt.Sprintf("m-%d", i), fmt.Sprintf("set-%d", i))
	}
	began, end := make(chan struct{}), make(chan struct{})
	w.refuse = func(verb string, o runtime.Object) error {
		if m, ok := o.(*v1beta1.Machine); ok && verb == "patch" && m.Name == "slow" {
			close(began)
			<-end
		}
		return nil
	}
	slowly := make(chan error, 1)
	go func() {
		_, err := w.pass("slow")
		slowly <- err
	}()
	<-began
	quickly := make(chan error, 1)
	go func() {
		for i := range others {
			if _, err := w.pass(fmt.Sprintf("m-%d", i)); err != nil {
				quickly <- err
				return
			}
		}
		quickly <- nil
	}()
	select {
	case err := <-quickly:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Error("a machine waits for the API server's answer about a machine of another owner")
	}
	close(end)
	if err := <-slowly; err != nil {
		t.Error(err)
	}
	if !t.Failed() {
		for i := range others {
			w.wantPreserved(fmt.Sprintf("m-%d", i), DefaultPreserveTimeout)
		}
	}
}
