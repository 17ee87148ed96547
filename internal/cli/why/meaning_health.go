package why

import "machinist.dev/machinist/api/v1beta1"

func healthMeanings() map[string]Meaning {
	const (
		replacedInTurn = "The set deletes and replaces the machine when its turn comes. spec.remediation.maxInFlight limits how many machines are replaced at a time."
		skip           = "To keep the machine, set the annotation " + v1beta1.AnnotationSkipRemediation + " on it."
		adminDecides   = "An administrator must decide."
		findCause      = "Find out what the unhealthy Nodes have in common: the network, a zone, the API server, an image that was rolled out."
		afterMeltdown  = "Machinist continues automatically when enough Nodes are healthy again."
	)
	const afterProblem = "The manager continues automatically within seconds after the problem is solved."
	allowed := v1beta1.ConditionRemediationAllowed + "/"
	return map[string]Meaning{
		v1beta1.ReasonMachineHealthCheck: {Explanation: "A MachineHealthCheck found the machine unhealthy and requests its replacement.",
			NextStep: replacedInTurn, Instructions: skip},
		v1beta1.ReasonBuiltInPolicy: {Explanation: "The built-in health policy of the manager found the machine unhealthy and requests its replacement.",
			NextStep: replacedInTurn, Instructions: skip},
		v1beta1.ReasonRebootRequested: {Explanation: "A health check found the machine unhealthy and requests a reboot of its instance. If this does not help, the machine is replaced.",
			NextStep:     "The set requests the reboot when the turn of the machine comes. spec.remediation.maxInFlight limits how many machines are rebooted or replaced at a time.",
			Instructions: "To exempt the machine: kubectl annotate machines.machinist.dev NAME " + v1beta1.AnnotationSkipRemediation + "="},
		v1beta1.ReasonReplaceAfterReboot: {Explanation: "A health check requests the replacement of the machine, because reboots did not help or are not possible.",
			NextStep: replacedInTurn, Instructions: "To keep the machine: kubectl annotate machines.machinist.dev NAME " + v1beta1.AnnotationSkipRemediation + "="},
		v1beta1.ReasonExternalRemediation: {Explanation: "A MachineHealthCheck found the machine unhealthy, and leaves the remediation to a remediator outside Machinist.",
			NextStep:     "The machine stays unhealthy until the remediator acts.",
			Instructions: "Check that the remediator runs, or delete the machine."},
		v1beta1.ReasonExternalRemediationFailed: {Explanation: "The remediation by another operator failed or took too long, or the machine has no Node that the operator could remediate. The health check does not request a replacement (onTimeout None).",
			NextStep: adminDecides,
			Instructions: "Delete the remediation in the target cluster to try again, or request the replacement of the machine: kubectl annotate machines.machinist.dev NAME " +
				v1beta1.AnnotationRemediate + "="},
		v1beta1.ReasonReplaceAfterRemediation: {Explanation: "The remediation by another operator failed or took too long, or the machine has no Node that the operator could remediate. The health check requests the replacement of the machine (onTimeout Replace).",
			NextStep: replacedInTurn, Instructions: skip},
		v1beta1.ReasonRemediateAnnotation: {Explanation: "The annotation " + v1beta1.AnnotationRemediate + " requests the replacement of the machine.",
			NextStep:     replacedInTurn,
			Instructions: "To keep the machine, remove the annotation."},
		v1beta1.ReasonRetriesExhausted: {Explanation: "The machine is not replaced: its predecessors were replaced in a row as often as maxRetries of the MachineHealthCheck allows.",
			NextStep:     "Replacement continues when this machine or its successor has worked for an hour, or when maxRetries is raised.",
			Instructions: "Find out why the machine and its predecessors fail. Then delete this machine."},

		v1beta1.ReasonPreemptionNotice: {Explanation: "The cloud will soon reclaim the spot or preemptible instance of the machine, so the Node is being drained.",
			NextStep: "The set replaces the machine at once."},
		v1beta1.ReasonTerminationNotice: {Explanation: "The cloud or another client will soon terminate the instance of the machine, so the Node is being drained.",
			NextStep:     "The set replaces the machine at once.",
			Instructions: "If the termination is not wanted, stop its cause. The message names who announced the termination."},
		v1beta1.ReasonInterruptionWithdrawn: {Explanation: "The announcement that the cloud would reclaim the instance was withdrawn."},

		v1beta1.ReasonMostInstancesOrphaned: {Explanation: "Most instances lost their Machines at once, probably by mistake, so Machinist does not remove the instances.",
			NextStep: adminDecides,
			Instructions: "Find out what happened to the Machines. If the instances are no longer needed, set the annotation " +
				v1beta1.AnnotationRemoveOrphansUntil + " of the class to a time at most 24 hours ahead."},
		v1beta1.ReasonOrphanNodeReady: {Explanation: "An instance without a Machine has a Ready Node, so Machinist does not remove the instance.",
			NextStep: adminDecides,
			Instructions: "Find out what happened to the Machine. If the instance is no longer needed, set the annotation " +
				v1beta1.AnnotationRemoveOrphansUntil + " of the class to a time at most 24 hours ahead. Machinist then drains the Node and removes the instance."},

		v1beta1.ReasonTemplateReady: {Explanation: "The manager can create remediations for another operator."},
		v1beta1.ReasonKindNotPermitted: {Explanation: "The manager may not create remediations of the kind that the health check names.",
			NextStep:     untilChanged,
			Instructions: "Add the kind to remediationKinds of the chart machinist, or remove spec.remediation.templateRef."},
		v1beta1.ReasonKindNotInstalled: {Explanation: "The target cluster does not have the kind of the remediation or of its template.",
			NextStep:     afterProblem,
			Instructions: "Install the operator in the target cluster, or correct spec.remediation.templateRef."},
		v1beta1.ReasonTemplateNotFound: {Explanation: "The remediation template of the health check does not exist in the target cluster.",
			NextStep:     afterProblem,
			Instructions: "Create the template, or correct spec.remediation.templateRef."},
		v1beta1.ReasonTemplateInvalid: {Explanation: "The remediation template has no spec.template.spec, or the target cluster refuses the remediation.",
			NextStep:     afterProblem,
			Instructions: "Correct the template as the message says."},
		v1beta1.ReasonRemediationForbidden: {Explanation: "The manager may not read the template, or not read and write the remediations.",
			NextStep:     afterProblem,
			Instructions: "Add the kind to remediationKinds of the chart machinist that is installed in the target cluster."},
		v1beta1.ReasonRemediationNameTaken: {Explanation: "Another client has created a remediation for the Node, so Machinist does not create one.",
			NextStep:     afterProblem,
			Instructions: "Find out which client created the remediation that the message names. Then delete the remediation, or change that client."},
		v1beta1.ConditionRemediationTemplateReady + "/" + v1beta1.ReasonNoTargetCluster: {Explanation: "The manager has no target cluster, so it creates no remediations.",
			NextStep:     untilChanged,
			Instructions: "Remove spec.remediation.templateRef, or start the manager with --target-kubeconfig."},

		v1beta1.ReasonRemediationAllowed: {Explanation: "Unhealthy machines are replaced."},
		v1beta1.ReasonTooManyUnhealthy: {Explanation: "More machines are unhealthy than unhealthyRange or maxUnhealthy of the health check allows, so machines are not replaced.",
			NextStep: "Replacement continues when enough machines are healthy again.",
			Instructions: "Find out what the unhealthy machines have in common, such as a network. If the machines are broken, raise the limit, or request the replacement of one machine: kubectl annotate machines.machinist.dev NAME " +
				v1beta1.AnnotationRemediate + "="},
		v1beta1.ReasonTooFewUnhealthy: {Explanation: "Fewer machines are unhealthy than unhealthyRange of the health check requires, so machines are not replaced.",
			NextStep: "Replacement starts when more machines are unhealthy.",
			Instructions: "Lower the first number of unhealthyRange, or request the replacement of one machine: kubectl annotate machines.machinist.dev NAME " +
				v1beta1.AnnotationRemediate + "="},
		allowed + v1beta1.ReasonMeltdown: {Explanation: "Too many Nodes became unhealthy at once. The machines are probably not the cause, so they are not replaced.",
			NextStep: afterMeltdown, Instructions: findCause},
		allowed + v1beta1.ReasonControlPlaneUnreachable: {Explanation: "The API server of the control or target cluster cannot be reached, so no machine is marked for replacement.",
			NextStep:     "Machinist continues automatically when the API server answers again. All timeouts then start again.",
			Instructions: restoreAPIServer},
		allowed + v1beta1.ReasonTargetCredentialsRefused: {Explanation: "The target cluster refuses the credentials or permissions of the manager, so no machine is marked for replacement.",
			NextStep:     "Machinist continues automatically when the credentials or permissions are restored. All timeouts then start again.",
			Instructions: "Renew the kubeconfig file in the manager's --target-kubeconfig, or restore the roles of the manager in the target cluster."},
		allowed + v1beta1.ReasonFrozen: {Explanation: "The owner of the machines is frozen, so the machines are not replaced.",
			NextStep: "Replacement continues when the freeze ends."},
		allowed + v1beta1.ReasonRetriesExhausted: {Explanation: "A machine is not replaced: its predecessors were replaced in a row as often as maxRetries allows.",
			NextStep:     "Replacement continues when this machine or its successor has worked for an hour, or when maxRetries is raised.",
			Instructions: "Find out why the machine and its predecessors fail. Then delete the broken machine."},
		allowed + v1beta1.ReasonInvalidConfiguration: {Explanation: "A field of the health check has an invalid value, so the check does nothing.",
			NextStep: untilChanged, Instructions: "Correct the field that the message names."},
		allowed + v1beta1.ReasonInvalidSelector: {Explanation: "The selector of the health check is invalid, so the check does nothing.",
			NextStep: untilChanged, Instructions: "Correct spec.selector."},
	}
}
