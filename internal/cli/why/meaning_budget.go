package why

import "machinist.dev/machinist/api/v1beta1"

func budgetMeanings() map[string]Meaning {
	const invalid = " is invalid, so the budget allows no disruption."
	return map[string]Meaning{
		v1beta1.ReasonWaitingForDisruptionBudget: {
			Explanation: "The rollout waits, because disruption budgets or the annotation " + v1beta1.AnnotationDoNotDisrupt +
				" currently protect all machines of old revisions.",
			NextStep:     "The rollout continues automatically when a budget allows another disruption, or when a window opens or closes. If the fleet is paused, run machinist resume --fleet to continue.",
			Instructions: "To see the budgets and when they change next: kubectl get machinedisruptionbudgets.machinist.dev -o wide",
		},
		v1beta1.ReasonBudgetUnderstood: {Explanation: "The budget is valid."},
		v1beta1.ReasonInvalidWindow: {Explanation: "A window of the budget" + invalid, NextStep: untilChanged,
			Instructions: "Correct the window in spec.windows that the message names."},
		v1beta1.ReasonInvalidMaxDisrupted: {Explanation: "The field spec.maxDisrupted of the budget" + invalid,
			NextStep: untilChanged, Instructions: "Correct spec.maxDisrupted."},
		v1beta1.ConditionValid + "/" + v1beta1.ReasonInvalidSelector: {Explanation: "The selector of the budget" + invalid +
			" The budget applies to all machines of the namespace.", NextStep: untilChanged, Instructions: "Correct spec.selector."},
	}
}
