package why

import "machinist.dev/machinist/api/v1beta1"

// annotateCapacity is the least that lets an autoscaler plan with a node group without Nodes.
const annotateCapacity = v1beta1.AutoscalerCPUAnnotation + "=4 " + v1beta1.AutoscalerMemoryAnnotation + "=16Gi"

// fleetMeanings are the reasons of sets and deployments.
func fleetMeanings() map[string]Meaning {
	return map[string]Meaning{
		v1beta1.ReasonScalingUp: {Explanation: "Machines are being made.",
			Ends: "It is done when there are as many as replicas."},
		v1beta1.ReasonScalingDown: {Explanation: "Machines are being deleted.",
			Ends: "It is done when there are as many as replicas."},
		v1beta1.ReasonAtDesiredReplicas: {Explanation: "There are as many machines as replicas."},
		v1beta1.ReasonBackingOff:        {Explanation: "Failed machines are not replaced yet, since their replacements failed too.", Ends: "It is tried again after 10 seconds to 30 minutes, and at once when a machine comes to run.", Do: "See why machines fail: machinist why machine/NAME for one of them."},

		v1beta1.ReasonMachineCreateFailed: {Explanation: "The API server refuses to let a machine be made.",
			Ends: "It is tried again by itself.",
			Do:   "The message says why: a quota, a policy or a webhook of the control cluster may be in the way."},
		v1beta1.ReasonMachineDeleteFailed: {Explanation: "The API server refuses to let a machine be deleted.",
			Ends: "It is tried again by itself.",
			Do:   "The message says why: a policy or a webhook of the control cluster may be in the way."},
		v1beta1.ReasonReplacementsFailing: {Explanation: "Three machines in a row were replaced because their instances never became Ready nodes: no more are replaced.",
			Ends: "One machine is replaced every hour. When one becomes Ready, or the template changes, all are replaced as usual.",
			Do: "Find out why machines do not join: machinist why machine/NAME for one of them. To try one at once: kubectl annotate machines.machinist.dev NAME " +
				v1beta1.AnnotationRemediate + "="},
		v1beta1.ReasonTooManyMachines: {Explanation: "There are far too many machines, those being deleted included: no more are made.", Ends: "It goes on when deletions are done.", Do: "See what holds those deletions up: machinist status."},
		v1beta1.ReasonInvalidSelector: {Explanation: "The selector is empty, cannot be read or does not match the template: nothing is done.", Ends: untilChanged, Do: "Make a new object with a selector that matches its template; a selector does not change."},
		v1beta1.ReasonNoFailure:       {Explanation: "Machines can be made and deleted."},
		v1beta1.ConditionReplicaFailure + "/" +
			v1beta1.ReasonInvalidConfiguration: {Explanation: "The configuration of new machines is rejected: no more are created; of a configuration that only the provider rejects, no more than three.", Ends: "Machines that the provider refuses are tried again by themselves, 10 to 30 minutes apart; the rest goes on when it is mended.", Do: "Mend what the message names in the template, or see machinist why machine/NAME for one of the machines."},

		v1beta1.ReasonEnoughReplicas:   {Explanation: "A matching machine without an owner is not adopted: there are as many as wanted.", Ends: "It is adopted when one is missing.", Do: "Delete it, take its labels off, or raise replicas."},
		v1beta1.ReasonSetDeleting:      {Explanation: "A matching machine without an owner is not adopted: the set is being deleted."},
		v1beta1.ReasonNothingToAdopt:   {Explanation: "There is nothing to adopt."},
		v1beta1.ReasonAllMachinesReady: {Explanation: "All machines are Ready."},
		v1beta1.ReasonMachinesNotReady: {Explanation: "Some machines are not Ready.", Ends: "See what each waits for."},
		v1beta1.ReasonMachinesNotAvailable: {Explanation: "All machines are there, and some are not available.",
			Ends: "See what each waits for. One that is Ready becomes available after minReadySeconds."},

		v1beta1.ReasonCapacityKnown: {Explanation: "An autoscaler can scale the group up from zero machines."},
		v1beta1.ReasonCapacityUnknown: {
			Explanation: "An autoscaler cannot scale the group up from zero machines: nobody states the CPUs and the memory of its Nodes.",
			Ends:        "It can when the provider states them in the status of the class.",
			Do:          "Set spec.capacity.resources of the class, or annotate the group: kubectl annotate md/NAME " + annotateCapacity,
		},
		v1beta1.ReasonNoClass: {
			Explanation: "An autoscaler cannot scale the group up from zero machines: a template without a class has no capacity.",
			Do:          "Move providerSpec into a MachineClass, or annotate the group: kubectl annotate md/NAME " + annotateCapacity,
		},
		v1beta1.ReasonMalformedCapacity: {
			Explanation: "An autoscaler cannot scale the group up from zero machines: it cannot read a capacity that a person wrote on it.",
			Do:          "Correct the annotation that the message names, or remove it to have it filled in.",
		},
		v1beta1.ConditionScalableFromZero + "/" + v1beta1.ReasonClassNotFound: {
			Explanation: "An autoscaler cannot scale the group up from zero machines: its MachineClass does not exist.",
			Ends:        "It can when the class is there and its capacity is known.",
			Do:          "Make the class, or name another one in the template.",
		},

		v1beta1.ReasonOvershoot: {
			Explanation: "It is frozen: there are more machines than there may be. No machines are made; too many are deleted as ever.",
			Ends:        "It goes on by itself when enough of them are gone.",
			Do: "See who else makes machines under its labels or owner; " + v1beta1.AnnotationUnfreeze +
				" on it ends the freeze once that is settled.",
		},
		v1beta1.ReasonControlPlaneUnreachable: {
			Explanation: "It is frozen: the control or the target cluster cannot be reached. Nothing is made, exchanged or replaced.",
			Ends:        "It goes on by itself within seconds after the cluster is back.",
			Do:          "Bring that cluster's API server back, or the way from the processes to it.",
		},
		v1beta1.ReasonTargetCredentialsRefused: {
			Explanation: "The target cluster answers, and refuses Machinist's credentials or permissions. Nothing is made, exchanged, replaced, drained or deleted.",
			Ends:        "It goes on by itself within seconds after the kubeconfig file was renewed or the permissions were given back; no restart is needed.",
			Do:          "Renew the file of --target-kubeconfig of the process, or its roles in the target cluster. The log of the process says which request was refused.",
		},
		v1beta1.ReasonControlCredentialsRefused: {
			Explanation: "The control cluster answers, and refuses Machinist's credentials or permissions. Nothing is done.",
			Ends:        "It goes on by itself after the kubeconfig file was renewed or the permissions were given back.",
			Do:          "Renew the file of --control-kubeconfig of the process, or its roles in the control cluster.",
		},
		v1beta1.ReasonMeltdown: {
			Explanation: "It is frozen: too many nodes became unhealthy at once, which is no failure of machines. Machines are not replaced.",
			Ends:        "It goes on by itself when enough of them are well again.",
			Do:          "Look for what they have in common: network, zone, API server, an image that was rolled out.",
		},
		v1beta1.ReasonFrozenByLabel: {Explanation: "It is frozen by a person: the label " + v1beta1.LabelFreeze +
			" stops the making of machines and rollouts.", Ends: "It goes on when the label is gone.",
			Do: "Take the label off when its reason is over."},
		v1beta1.ReasonFrozen: {Explanation: "It is frozen.",
			Ends: "It goes on when the freeze is over; the condition Frozen says why."},
		v1beta1.ReasonThawed: {Explanation: "It is no longer frozen."},

		v1beta1.ReasonMinimumReplicasAvailable: {Explanation: "Enough machines are available."},
		v1beta1.ReasonMinimumReplicasUnavailable: {Explanation: "Too few machines are available.",
			Ends: "See what each waits for."},

		v1beta1.ReasonNewMachineSetCreated:   {Explanation: "The rollout of a new revision has begun."},
		v1beta1.ReasonFoundNewMachineSet:     {Explanation: "The rollout back to an earlier revision has begun."},
		v1beta1.ReasonMachineSetUpdated:      {Explanation: "The rollout advances."},
		v1beta1.ReasonNewMachineSetAvailable: {Explanation: "The rollout is complete."},
		v1beta1.ReasonMachineSetCreateError: {Explanation: "The set of the new revision cannot be made.",
			Ends: "It is tried again by itself.",
			Do:   "The message is the API server's own: a quota, a policy or the template may be in the way."},
		v1beta1.ReasonProgressDeadlineExceeded: {
			Explanation: "The rollout makes no progress within its deadline. It is not stopped, and goes on when it can.",
			Ends:        "It goes on when what it waits for comes.",
			Do:          "See what the new machines wait for; to go back: machinist rollout undo md/NAME",
		},
		v1beta1.ReasonDeploymentPaused: {Explanation: "Its rollout is paused. Scaling and repair go on.",
			Ends: "It goes on when spec.paused is taken back.", Do: "machinist rollout resume md/NAME"},
		v1beta1.ReasonDeploymentResumed: {Explanation: "Its rollout goes on after a stop."},
		v1beta1.ReasonRevisionFailing: {
			Explanation: "Three machines of the new revision in a row failed: no more of them are made beyond replicas. The old ones stay.",
			Ends:        "It goes on when one of the new revision comes to run, or with another revision.",
			Do:          "See why they failed, and roll out what is right; to go back: machinist rollout undo md/NAME",
		},

		v1beta1.ReasonRollingOut: {Explanation: "Machines of an old revision are being replaced.",
			Ends: "It goes on by itself."},
		v1beta1.ReasonRolloutComplete: {Explanation: "All machines are of the newest revision."},
		v1beta1.ReasonRolloutBlocked: {Explanation: "The rollout takes no step at the moment.",
			Ends: "It goes on when what it waits for comes."},
		v1beta1.ReasonWaitingForDeletion:  {Explanation: "The new revision is only used for machines that somebody deletes (strategy OnDelete).", Ends: "It goes on with each machine of an old revision that is deleted.", Do: "Delete machines of the old revision, one after the other, as it suits you: kubectl delete machines.machinist.dev NAME"},
		v1beta1.ReasonWaitingForSelection: {Explanation: "The rollout waits until somebody chooses machines (strategy InPlace, orchestration Manual).", Ends: "It goes on with each machine that is chosen.", Do: "kubectl label machines.machinist.dev NAME " + v1beta1.LabelSelectedForUpdate + "=true"},
		v1beta1.ReasonVersionSkew: {
			Explanation: "The rollout waits: Kubernetes supports no kubelet that is newer than the API server of the target cluster, or more than three minor versions older.",
			Ends:        "It goes on within two minutes after the control plane was upgraded, and at once with another version in the template.",
			Do:          "Upgrade the control plane, or set another version; to roll it out all the same: kubectl annotate machinedeployments.machinist.dev NAME " + v1beta1.AnnotationAllowVersionSkew + "=",
		},
	}
}
