package why

import "machinist.dev/machinist/api/v1beta1"

// budgetMeanings are the reasons of Valid, and what a rollout says of budgets.
func budgetMeanings() map[string]Meaning {
	const nothing = " cannot be understood: the budget allows no disruption."
	return map[string]Meaning{
		v1beta1.ReasonWaitingForDisruptionBudget: {
			Explanation: "The rollout waits: disruption budgets, or the annotation " + v1beta1.AnnotationDoNotDisrupt +
				", let no machine of an old revision go now.",
			Ends: "It goes on by itself when a budget has room or a window changes; a paused fleet with machinist resume --fleet.",
			Do:   "See the budgets and when they change next: kubectl get machinedisruptionbudgets.machinist.dev -o wide",
		},
		v1beta1.ReasonBudgetUnderstood: {Explanation: "The budget can be understood."},
		v1beta1.ReasonInvalidWindow: {Explanation: "A window of the budget" + nothing, Ends: untilChanged,
			Do: "Correct spec.windows: the message says what is wrong with which."},
		v1beta1.ReasonInvalidMaxDisrupted: {Explanation: "The number of the budget" + nothing, Ends: untilChanged,
			Do: "Correct spec.maxDisrupted."},
		v1beta1.ConditionValid + "/" + v1beta1.ReasonInvalidSelector: {Explanation: "The selector of the budget" + nothing +
			" It counts as the selector of all machines of the namespace.", Ends: untilChanged, Do: "Correct spec.selector."},
	}
}
