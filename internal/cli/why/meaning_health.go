package why

import "machinist.dev/machinist/api/v1beta1"

// healthMeanings are the reasons of RemediationRequested, InterruptionNotice, OrphanRemovalBlocked and
// RemediationAllowed.
func healthMeanings() map[string]Meaning {
	const turn = "Its set deletes and replaces it when it is its turn: only so many are replaced at a time (spec.remediation.maxInFlight)."
	allowed := v1beta1.ConditionRemediationAllowed + "/"
	return map[string]Meaning{
		v1beta1.ReasonMachineHealthCheck: {Explanation: "A health check found it unhealthy: it must be replaced.",
			Ends: turn, Do: v1beta1.AnnotationSkipRemediation + " on it keeps it."},
		v1beta1.ReasonBuiltInPolicy:       {Explanation: "The manager's own health policy found it unhealthy: it must be replaced.", Ends: turn, Do: v1beta1.AnnotationSkipRemediation + " on it keeps it."},
		v1beta1.ReasonExternalRemediation: {Explanation: "A health check found it unhealthy and leaves it to a remediator outside Machinist.", Ends: "It goes on when that one acts.", Do: "See whether the remediator runs, or delete the machine."},
		v1beta1.ReasonRemediateAnnotation: {Explanation: "A person asked for its replacement.", Ends: turn, Do: "Take " +
			v1beta1.AnnotationRemediate + " off it to keep it."},
		v1beta1.ReasonRetriesExhausted: {Explanation: "It is not replaced: as many machines in a row were replaced before it as its health check allows.", Ends: "Replacement goes on when one in this place works for an hour, or maxRetries is raised.", Do: "Find out why machines in this place fail, then delete this one."},

		v1beta1.ReasonPreemptionNotice:      {Explanation: "The cloud is about to take its spot or preemptible instance back: its node is drained.", Ends: "Its set replaces it at once."},
		v1beta1.ReasonTerminationNotice:     {Explanation: "Its instance is about to be terminated, and not by Machinist: its node is drained.", Ends: "Its set replaces it at once.", Do: "If that is not wanted, stop what terminates it: its message says who announced it."},
		v1beta1.ReasonInterruptionWithdrawn: {Explanation: "It was announced that the cloud would reclaim its instance, and that was withdrawn."},

		v1beta1.ReasonMostInstancesOrphaned: {Explanation: "So many instances lost their Machines at once that more likely the Machines were lost by mistake: instances are not removed.", Ends: "A person decides.", Do: "Find out what became of the Machines. If the instances are really left over, set " + v1beta1.AnnotationRemoveOrphansUntil + " on the class to a time at most 24h ahead."},
		v1beta1.ReasonOrphanNodeReady:       {Explanation: "An instance without a Machine is a Ready Node, so it is not removed.", Ends: "A person decides.", Do: "Find out what became of its Machine. If the instance is really left over, set " + v1beta1.AnnotationRemoveOrphansUntil + " on the class to a time at most 24h ahead: its Node is drained first."},

		v1beta1.ReasonRemediationAllowed:                 {Explanation: "Unhealthy machines are replaced."},
		v1beta1.ReasonTooManyUnhealthy:                   {Explanation: "More machines are unhealthy than its maxUnhealthy allows: machines are not replaced.", Ends: "Replacement continues when enough of them are well again.", Do: "Find out what they have in common, such as a network. If they are broken, raise maxUnhealthy, or have this one replaced: kubectl annotate machines.machinist.dev NAME " + v1beta1.AnnotationRemediate + "="},
		allowed + v1beta1.ReasonMeltdown:                 {Explanation: "Too many nodes became unhealthy at once, which is no failure of machines: they are not replaced.", Ends: "It goes on by itself when enough of them are well again.", Do: "Look for what they have in common: network, zone, API server, an image that was rolled out."},
		allowed + v1beta1.ReasonControlPlaneUnreachable:  {Explanation: "The control or the target cluster cannot be reached: nothing is judged.", Ends: "It goes on by itself when it is back, and clocks start anew.", Do: "Bring that cluster's API server back, or the way from the processes to it."},
		allowed + v1beta1.ReasonTargetCredentialsRefused: {Explanation: "The target cluster refuses the manager's credentials or permissions: nothing is judged.", Ends: "It goes on by itself when they are renewed, and clocks start anew.", Do: "Renew the file of the manager's --target-kubeconfig, or its roles in the target cluster."},
		allowed + v1beta1.ReasonFrozen:                   {Explanation: "The owner of the machines is frozen: they are not replaced.", Ends: "It goes on when the freeze is over."},
		allowed + v1beta1.ReasonRetriesExhausted:         {Explanation: "A machine is not replaced any more: as many in a row were replaced before it as maxRetries allows.", Ends: "It goes on when one in its place works for an hour, or maxRetries is raised.", Do: "Find out why machines in that place fail, then delete the broken one."},
		allowed + v1beta1.ReasonInvalidConfiguration:     {Explanation: "No Node can be unhealthy by a condition of the check: it judges nothing.", Ends: untilChanged, Do: "Correct spec.unhealthyNodeConditions."},
		allowed + v1beta1.ReasonInvalidSelector:          {Explanation: "The check's selector cannot be used: it judges nothing.", Ends: untilChanged, Do: "Correct spec.selector."},
	}
}
