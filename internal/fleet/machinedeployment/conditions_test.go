package machinedeployment

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: only-template-changes-roll.
func TestInPlaceReportsThatRolloutAfterReplacesNothing(t *testing.T) {
	past := metav1.NewTime(noon.Add(30 * time.Minute))
	old := func(m *v1beta1.Machine) { isReady(m); m.CreationTimestamp = metav1.NewTime(noon) }
	later := func(m *v1beta1.Machine) { isReady(m); m.CreationTimestamp = metav1.NewTime(noon.Add(50 * time.Minute)) }
	replaced := func(m *v1beta1.Machine) {
		old(m)
		launched := metav1.NewTime(noon.Add(40 * time.Minute))
		m.Status.Instance = &v1beta1.InstanceStatus{LaunchTime: &launched}
	}
	for name, test := range map[string]struct {
		strategy     v1beta1.DeploymentStrategyType
		rolloutAfter *metav1.Time
		want         string
	}{
		"rolloutAfter in the past": {v1beta1.StrategyInPlace, &past,
			"Strategy InPlace does not replace 1 machine launched before"},
		"without rolloutAfter":       {v1beta1.StrategyInPlace, nil, ""},
		"with another strategy":      {v1beta1.StrategyRollingUpdate, &past, ""},
		"rolloutAfter in the future": {v1beta1.StrategyInPlace, &metav1.Time{Time: noon.Add(2 * time.Hour)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := deployment("a")
			d.Spec.Strategy.Type, d.Spec.RolloutAfter = test.strategy, test.rolloutAfter
			set := setOf("a", 1, noon)
			three := int32(3)
			set.Spec.Replicas, d.Spec.Replicas = &three, &three
			v := viewed(t, d, []*v1beta1.MachineSet{set}, map[types.UID][]*v1beta1.Machine{
				set.UID: {machine("a1", 1, old), machine("a2", 1, later), machine("a3", 1, replaced)},
			})
			status := v1beta1.MachineDeploymentStatus{}
			conditions{&status, 1, noon.Add(time.Hour), ""}.writeRollingOut(v, rollout{})
			message := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionRollingOut).Message
			if test.want == "" && strings.Contains(message, "rolloutAfter") || !strings.Contains(message, test.want) {
				t.Errorf("RollingOut is %q, expected %q in it", message, test.want)
			}
		})
	}
}
