package machine

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// Another part of the process may report a Machine that no longer exists, while a new Machine has the same name.
//
// Rule: no-create-from-stale-view.
func TestFormerMachineDoesNotChangeTheStateOfItsSuccessor(t *testing.T) {
	t.Parallel()
	at := time.Unix(1000, 0)
	of := func(uid types.UID, created time.Time) *v1beta1.Machine {
		return &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "m", UID: uid,
			CreationTimestamp: metav1.NewTime(created)}}
	}
	former, successor := of("former", at), of("successor", at.Add(time.Minute))
	s := newStateStore()
	s.update(former, func(m *machineState) { m.instance.suspectID = "i-1" })
	s.update(successor, func(m *machineState) { m.launch.ambiguousAt = at })
	s.update(former, func(m *machineState) { m.instance.suspectID = "i-1" })
	if got := s.get(successor).launch.ambiguousAt; !got.Equal(at) {
		t.Errorf("the unanswered Create of the successor is forgotten: %v", got)
	}
	if got := s.get(former); got != (machineState{}) {
		t.Errorf("the state of the former machine is kept: %+v", got)
	}
}
