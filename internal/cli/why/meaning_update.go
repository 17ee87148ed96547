package why

import "machinist.dev/machinist/api/v1beta1"

func updateMeanings() map[string]Meaning {
	return map[string]Meaning{
		v1beta1.ReasonUpToDate: {Explanation: "The instance matches the specification of the machine."},
		v1beta1.ReasonUpdatePending: {Explanation: "The specification of the machine has changed, and the update of its instance has not started yet.",
			NextStep: "The update starts when nothing prevents it any more. For example, a pause or the creation of the machine prevents an update."},
		v1beta1.ReasonUpdating: {Explanation: "The instance is being updated in place."},
		v1beta1.ReasonReplacing: {Explanation: "The instance is being replaced under the same Machine: Machinist deletes the old instance, and then creates a new one.",
			NextStep: "The replacement continues automatically. The update takes as long as a drain and a creation together."},
		v1beta1.ReasonWaitingForAgent: {
			Explanation:  "The agent on the Node was asked to update the machine, and has not answered.",
			NextStep:     "Machinist continues when the agent sets " + v1beta1.NodeAnnotationUpdateResult + " on the Node.",
			Instructions: "Check that the agent runs on the Node.",
		},
		v1beta1.ReasonUnsupportedChange: {
			Explanation:  "The provider can neither make the change in place nor replace the instance. The instance keeps running without the change.",
			NextStep:     "Machinist does not try again until the specification changes.",
			Instructions: "Undo the change, or delete the machine so that its set creates a new one.",
		},
		v1beta1.ReasonUpdateError: {Explanation: "The update of the instance failed. The instance keeps running without the change.",
			NextStep:     "Machinist tries again automatically, unless the driver does not support such a change at all.",
			Instructions: "Fix the error in the message, or undo the change. " + tryNow},
		v1beta1.ReasonUpdateTimeout: {Explanation: "The update of the instance takes longer than timeouts.update.",
			NextStep:     "Machinist keeps waiting for the update, which may still succeed.",
			Instructions: "Inspect the instance. If the machine no longer works, delete it."},
		v1beta1.ConditionUpToDate + "/" + v1beta1.ReasonUnknownTypeVersion: {Explanation: "The label " +
			v1beta1.LabelTypeVersion + " names a version of the types that this version of Machinist does not know, so the machine is not updated.",
			NextStep: untilChanged},
	}
}
