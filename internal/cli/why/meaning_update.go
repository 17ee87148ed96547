package why

import "machinist.dev/machinist/api/v1beta1"

// updateMeanings are the reasons of UpToDate.
func updateMeanings() map[string]Meaning {
	return map[string]Meaning{
		v1beta1.ReasonUpToDate: {Explanation: "Its instance is what its specification asks for."},
		v1beta1.ReasonUpdatePending: {Explanation: "Its specification has changed, and its instance is not changed yet.",
			Ends: "It begins when nothing holds it any more: a pause, or the machine's own start."},
		v1beta1.ReasonUpdating:  {Explanation: "Its instance is being changed in place."},
		v1beta1.ReasonReplacing: {Explanation: "Its instance is being replaced under the same machine: the old one goes first, then a new one is made.", Ends: "It goes on by itself, and takes as long as a drain and a launch."},
		v1beta1.ReasonWaitingForAgent: {
			Explanation: "The agent on its node was asked to update it, and has not answered.",
			Ends:        "It goes on when the agent sets " + v1beta1.NodeAnnotationUpdateResult + " on the node.",
			Do:          "See whether the agent runs on that node.",
		},
		v1beta1.ReasonUnsupportedChange: {
			Explanation: "Its provider can neither make the change in place nor replace the instance. The old one goes on running.",
			Ends:        "Nothing is tried until the specification changes.",
			Do:          "Take the change back, or delete the machine so that its set makes a new one.",
		},
		v1beta1.ReasonUpdateError: {Explanation: "The change of its instance failed. The instance goes on as it is.",
			Ends: "It is tried again by itself, unless the driver cannot make such a change at all.",
			Do:   "The message says what failed: mend that, or take the change back. " + tryNow},
		v1beta1.ReasonUpdateTimeout: {Explanation: "The change of its instance takes longer than timeouts.update.",
			Ends: "It is still followed, and may end well.",
			Do:   "Inspect the instance; delete the machine if it is of no use any more."},
		v1beta1.ConditionUpToDate + "/" + v1beta1.ReasonUnknownTypeVersion: {Explanation: "Its label " +
			v1beta1.LabelTypeVersion + " names a schema that this version does not know: it is not changed.",
			Ends: untilChanged},
	}
}
