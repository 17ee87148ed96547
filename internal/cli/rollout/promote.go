package rollout

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
)

// NotPromotable returns why the newest revision of a deployment cannot be promoted now, or "".
func NotPromotable(d *v1beta1.MachineDeployment) string {
	const pauseAfter = "spec.strategy.rollingUpdate.pauseAfter"
	progressing := meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionProgressing)
	rolling := meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionRollingOut)
	switch {
	case d.Spec.Strategy.PauseAfter() == nil:
		return pauseAfter + " is not set, so no rollout waits for a promotion"
	case progressing == nil || rolling == nil || d.Status.ObservedGeneration < d.Generation:
		return "the controller has not processed its latest change yet"
	case progressing.Reason == v1beta1.ReasonWaitingForPromotion:
		return ""
	case rolling.Reason == v1beta1.ReasonPartitionReached:
		return "the rollout has stopped at its partition: lower spec.strategy.rollingUpdate.partition to continue"
	case rolling.Reason == v1beta1.ReasonRolloutComplete:
		return fmt.Sprintf("the rollout of revision %d is complete", d.Status.CurrentRevision)
	}
	return fmt.Sprintf("the rollout of revision %d does not wait for a promotion (%s): %s", d.Status.CurrentRevision,
		progressing.Reason, printer.Sanitize(progressing.Message))
}
