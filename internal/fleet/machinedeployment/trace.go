package machinedeployment

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/tracing"
)

// traceRollout reports a rollout to the tracer when the new status shows the end of the rollout. The time at which the
// rollout began is in the previous status.
func (p *pass) traceRollout(before, after *v1beta1.MachineDeploymentStatus) {
	if !p.Tracer.IsEnabled() {
		return
	}
	was, is := meta.FindStatusCondition(before.Conditions, v1beta1.ConditionRollingOut),
		meta.FindStatusCondition(after.Conditions, v1beta1.ConditionRollingOut)
	if was == nil || is == nil || was.Status != metav1.ConditionTrue || is.Status != metav1.ConditionFalse {
		return
	}
	revision := after.CurrentRevision
	p.Tracer.Finish(tracing.Rollout(p.deployment.UID, revision), tracing.DeploymentAttributes(p.deployment, revision),
		tracing.Span{Start: was.LastTransitionTime.Time, End: p.Clock.Now(), Reason: is.Reason})
}
