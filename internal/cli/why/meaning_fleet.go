package why

import "machinist.dev/machinist/api/v1beta1"

// annotateCapacity is a part of a kubectl command: the annotations that an autoscaler needs to scale up a node group
// without Nodes.
const annotateCapacity = v1beta1.AutoscalerCPUAnnotation + "=4 " + v1beta1.AutoscalerMemoryAnnotation + "=16Gi"

func fleetMeanings() map[string]Meaning {
	const (
		retried         = "Machinist tries again automatically."
		apiServerCauses = "See the message for the cause. A quota, a policy or a webhook of the control cluster may be responsible."
		seeMachines     = "See what each machine waits for."
		notFromZero     = "An autoscaler cannot scale the group up from zero machines"
		undo            = "To go back, run machinist rollout undo md/NAME"
	)
	return map[string]Meaning{
		v1beta1.ReasonScalingUp: {Explanation: "Machines are being created.",
			NextStep: "Scaling ends when the number of machines equals spec.replicas."},
		v1beta1.ReasonScalingDown: {Explanation: "Machines are being deleted.",
			NextStep: "Scaling ends when the number of machines equals spec.replicas."},
		v1beta1.ReasonAtDesiredReplicas: {Explanation: "There are as many machines as replicas."},
		v1beta1.ReasonBackingOff: {Explanation: "Failed machines are not replaced yet, because their replacements failed too.",
			NextStep:     "Machinist tries again after a delay of 10 seconds to 30 minutes, and at once when a machine becomes Running.",
			Instructions: "Find out why the machines fail: run machinist why machine/NAME for one of them."},

		v1beta1.ReasonMachineCreateFailed: {Explanation: "The API server refuses the creation of a machine.",
			NextStep: retried, Instructions: apiServerCauses},
		v1beta1.ReasonMachineDeleteFailed: {Explanation: "The API server refuses the deletion of a machine.",
			NextStep:     retried,
			Instructions: "See the message for the cause. A policy or a webhook of the control cluster may be responsible."},
		v1beta1.ReasonReplacementsFailing: {Explanation: "Three machines in a row were replaced because their instances never became Ready Nodes, so replacement is limited to one machine per hour.",
			NextStep: "When a machine becomes Ready, or the template changes, all failed machines are replaced as usual.",
			Instructions: "Find out why machines do not join: run machinist why machine/NAME for one of them. To replace one machine at once: kubectl annotate machines.machinist.dev NAME " +
				v1beta1.AnnotationRemediate + "="},
		v1beta1.ReasonTooManyMachines: {Explanation: "There are far too many machines, including those that are being deleted, so no more are created.",
			NextStep:     "Machinist creates machines again after enough of the existing machines are deleted.",
			Instructions: "Run machinist status to see what delays the deletions."},
		v1beta1.ReasonInvalidSelector: {Explanation: "The selector is empty, invalid or does not match the labels of the template, so Machinist does nothing.",
			NextStep:     untilChanged,
			Instructions: "Create another object with a selector that matches its template. The selector of an existing object cannot be changed."},
		v1beta1.ReasonNoFailure: {Explanation: "Machines can be created and deleted."},
		v1beta1.ConditionReplicaFailure + "/" +
			v1beta1.ReasonInvalidConfiguration: {Explanation: "The configuration of new machines is rejected, so Machinist creates no more machines. If only the provider rejects the configuration, at most three machines are created.",
			NextStep:     "If the provider rejects a machine, Machinist tries again every 10 to 30 minutes. In all other cases, Machinist continues when the configuration is fixed.",
			Instructions: "Fix the error in the template that the message describes. For more details, run machinist why machine/NAME for one of the machines."},

		v1beta1.ReasonEnoughReplicas: {Explanation: "The set does not adopt a matching machine without an owner, because it already has as many machines as replicas.",
			NextStep:     "The set adopts the machine when the set has too few machines.",
			Instructions: "Delete the machine, remove its labels, or raise replicas."},
		v1beta1.ReasonSetDeleting:      {Explanation: "The set does not adopt a matching machine without an owner, because the set is being deleted."},
		v1beta1.ReasonNothingToAdopt:   {Explanation: "There is no machine to adopt."},
		v1beta1.ReasonAllMachinesReady: {Explanation: "All machines are Ready."},
		v1beta1.ReasonMachinesNotReady: {Explanation: "Some machines are not Ready.", NextStep: seeMachines},
		v1beta1.ReasonMachinesNotAvailable: {Explanation: "All machines exist, but some are not available.",
			NextStep: seeMachines + " A Ready machine becomes available after minReadySeconds."},

		v1beta1.ReasonCapacityKnown: {Explanation: "An autoscaler can scale the group up from zero machines."},
		v1beta1.ReasonCapacityUnknown: {
			Explanation:  notFromZero + ": the CPUs and the memory of its Nodes are not known.",
			NextStep:     "An autoscaler can scale the group when the provider reports the capacity in the status of the class.",
			Instructions: "Set spec.capacity.resources of the class, or annotate the group: kubectl annotate md/NAME " + annotateCapacity,
		},
		v1beta1.ReasonNoClass: {
			Explanation:  notFromZero + ": it has no class for new machines, so the capacity of its Nodes is not known.",
			Instructions: "Move providerSpec into a MachineClass, or annotate the group: kubectl annotate md/NAME " + annotateCapacity,
		},
		v1beta1.ReasonMalformedCapacity: {
			Explanation:  notFromZero + ": a capacity annotation that a user set is invalid.",
			Instructions: "Correct the annotation that the message names. If you remove the annotation, Machinist sets the correct value.",
		},
		v1beta1.ConditionScalableFromZero + "/" + v1beta1.ReasonClassNotFound: {
			Explanation:  notFromZero + ": its MachineClass does not exist.",
			NextStep:     "An autoscaler can scale the group when the class exists and its capacity is known.",
			Instructions: "Create the class, or name another one in the template.",
		},

		v1beta1.ReasonOvershoot: {
			Explanation: "The fleet is frozen, because it has more machines than its limits allow. Machinist creates no machines, but it still deletes surplus machines.",
			NextStep:    "The freeze ends automatically when enough machines are gone.",
			Instructions: "Find out which other client creates machines with the labels or the owner of this fleet. To end the freeze after that, set the annotation " +
				v1beta1.AnnotationUnfreeze + " on the frozen object.",
		},
		v1beta1.ReasonControlPlaneUnreachable: {
			Explanation:  "The fleet is frozen, because the API server of the control or target cluster cannot be reached. No machine is created or replaced, and no rollout advances.",
			NextStep:     "The freeze ends automatically within seconds after the API server answers again.",
			Instructions: restoreAPIServer,
		},
		v1beta1.ReasonTargetCredentialsRefused: {
			Explanation:  "The target cluster refuses the credentials or permissions of Machinist. No machine is created, replaced, drained or deleted, and no rollout advances.",
			NextStep:     "Machinist continues automatically within seconds after the kubeconfig file is renewed or the permissions are restored. No restart is needed.",
			Instructions: "Renew the kubeconfig file in --target-kubeconfig of the process, or restore the roles of the process in the target cluster. The log of the process shows which request was refused.",
		},
		v1beta1.ReasonControlCredentialsRefused: {
			Explanation:  "The control cluster refuses the credentials or permissions of Machinist, so Machinist does nothing.",
			NextStep:     "Machinist continues automatically after the kubeconfig file is renewed or the permissions are restored.",
			Instructions: "Renew the kubeconfig file in --control-kubeconfig of the process, or restore the roles of the process in the control cluster.",
		},
		v1beta1.ReasonMeltdown: {
			Explanation:  "Too many Nodes became unhealthy at once. The machines are probably not the cause, so they are not replaced.",
			NextStep:     "Machinist continues automatically when enough Nodes are healthy again.",
			Instructions: "Find out what the unhealthy Nodes have in common: the network, a zone, the API server, an image that was rolled out.",
		},
		v1beta1.ReasonFrozenByLabel: {Explanation: "The fleet is frozen by the label " + v1beta1.LabelFreeze +
			". Machinist creates no machines, and no rollout advances.",
			NextStep: "The freeze ends when the label is removed.",
			Instructions: "If the object has the label " + v1beta1.LabelMigration + ", commit or abort this Migration. " +
				"Otherwise, remove the label " + v1beta1.LabelFreeze + " when the freeze is no longer needed."},
		v1beta1.ReasonFrozen: {Explanation: "The fleet is frozen.",
			NextStep: "Machinist continues when the freeze ends. The condition Frozen describes the cause."},
		v1beta1.ReasonThawed: {Explanation: "The fleet is no longer frozen."},

		v1beta1.ReasonMinimumReplicasAvailable:   {Explanation: "Enough machines are available."},
		v1beta1.ReasonMinimumReplicasUnavailable: {Explanation: "Too few machines are available.", NextStep: seeMachines},

		v1beta1.ReasonNewMachineSetCreated:   {Explanation: "The rollout of a new revision has started."},
		v1beta1.ReasonFoundNewMachineSet:     {Explanation: "The rollout back to an earlier revision has started."},
		v1beta1.ReasonMachineSetUpdated:      {Explanation: "The rollout is in progress."},
		v1beta1.ReasonNewMachineSetAvailable: {Explanation: "The rollout is complete."},
		v1beta1.ReasonMachineSetCreateError: {Explanation: "The MachineSet of the new revision cannot be created.",
			NextStep:     retried,
			Instructions: "See the message, which comes from the API server. A quota, a policy or the template may be the cause."},
		v1beta1.ReasonProgressDeadlineExceeded: {
			Explanation:  "The rollout has made no progress within its deadline.",
			NextStep:     "The rollout is not stopped, and continues when the machines that it waits for become available.",
			Instructions: "See what the new machines wait for. " + undo,
		},
		v1beta1.ReasonDeploymentPaused: {Explanation: "The rollout is paused. Machines are still created, deleted and replaced for scaling and remediation.",
			NextStep:     "The rollout continues when spec.paused is false.",
			Instructions: "machinist rollout resume md/NAME"},
		v1beta1.ReasonDeploymentResumed: {Explanation: "The rollout continues after a pause."},
		v1beta1.ReasonRevisionFailing: {
			Explanation:  "The rollout has stopped, because three consecutive machines of the new revision failed. Machinist creates no more machines of the new revision beyond spec.replicas, and keeps the old machines.",
			NextStep:     "The rollout continues when a machine of the new revision becomes Running, or when the template is changed again.",
			Instructions: "Find out why the machines failed, and roll out a correct template. " + undo,
		},

		v1beta1.ReasonRollingOut: {Explanation: "Machines of an old revision are being replaced.",
			NextStep: "The rollout continues automatically."},
		v1beta1.ReasonRolloutComplete: {Explanation: "All machines have the newest revision."},
		v1beta1.ReasonRolloutBlocked: {Explanation: "The rollout cannot take its next step now.",
			NextStep: "The rollout continues when the obstacle in the message is gone."},
		v1beta1.ReasonWaitingForDeletion: {Explanation: "The rollout waits until you delete machines of an old revision (strategy OnDelete). Each deleted machine is replaced by one of the new revision.",
			NextStep:     "The rollout advances by one step each time a machine is deleted.",
			Instructions: "Delete the machines of the old revision, one after the other: kubectl delete machines.machinist.dev NAME"},
		v1beta1.ReasonWaitingForSelection: {Explanation: "The rollout waits until you select machines (strategy InPlace, orchestration Manual).",
			NextStep:     "The rollout advances by one step each time a machine is selected.",
			Instructions: "kubectl label machines.machinist.dev NAME " + v1beta1.LabelSelectedForUpdate + "=true"},
		v1beta1.ReasonPartitionReached: {
			Explanation:  "The rollout has updated all machines except those that spec.strategy.rollingUpdate.partition keeps on old revisions.",
			NextStep:     "The rollout continues when partition is lowered.",
			Instructions: "Lower spec.strategy.rollingUpdate.partition: kubectl edit machinedeployments.machinist.dev NAME",
		},
		v1beta1.ReasonWaitingForPromotion: {
			Explanation:  "The rollout has stopped after the first machines of the new revision (spec.strategy.rollingUpdate.pauseAfter).",
			NextStep:     "The rollout continues at the time in the message, or when the revision is promoted. Without a time, only the promotion continues it.",
			Instructions: "Check the new machines, and continue: machinist rollout promote md/NAME. " + undo,
		},
		v1beta1.ReasonHibernated: {
			Explanation:  "All machines are stopped, because spec.hibernated is set.",
			NextStep:     "The machines are started when spec.hibernated is removed.",
			Instructions: "To start the machines, set spec.hibernated to false: kubectl edit machinedeployments.machinist.dev NAME",
		},
		v1beta1.ReasonHibernating: {
			Explanation: "The machines are being drained and stopped, because spec.hibernated is set.",
			NextStep:    "The hibernation is complete when the cloud has stopped all instances.",
		},
		v1beta1.ReasonWakingUp: {
			Explanation: "The machines are being started after the hibernation.",
			NextStep:    "The deployment continues as usual when all machines have been started.",
		},
		v1beta1.ReasonVersionStepMissing: {
			Explanation:  "The rollout waits, because it needs a version that spec.versionSteps does not contain, or because the strategy InPlace would skip a minor version.",
			NextStep:     "The rollout continues when spec.versionSteps contains the version in the message, or when the template gets another version.",
			Instructions: "Add the version: kubectl edit machinedeployments.machinist.dev NAME",
		},
		v1beta1.ReasonVersionSkew: {
			Explanation:  "The rollout waits, because Kubernetes does not support the kubelet version in the template: it is newer than the API server of the target cluster, or more than three minor versions older.",
			NextStep:     "The rollout continues within two minutes after the control plane is upgraded, and at once when the template gets another version.",
			Instructions: "Upgrade the control plane, or set another version. To roll out this version anyway: kubectl annotate machinedeployments.machinist.dev NAME " + v1beta1.AnnotationAllowVersionSkew + "=",
		},
	}
}
