package incidents

import "slices"

func gardenerOthers() []Incident {
	return []Incident{
		{
			Reference: "gardener/machine-controller-manager#482", Theme: Stampedes,
			Title: "A wrong route between masters and workers replaced 80 nodes",
			Report: "A release of a network plugin broke the routing between the masters and the workers of a " +
				"cluster. All machines became Unknown, then Failed, and all of them were deleted at the same moment. " +
				"The disks were slow to detach, and the hypervisors were busy with new machines. The cluster of 80 " +
				"nodes needed a very long time to recover. The workload had not been affected before the deletion.",
			Behavior: "When most nodes become silent at once, remediation freezes and the machines stay. After the " +
				"freeze, the owner replaces only a few machines at a time, within its remediation budget.",
			Proofs: scenarios("meltdown", "too-many-unhealthy", "remediate"),
		},
		{
			Reference: "gardener/machine-controller-manager#1091", Theme: StaleCaches,
			Title: "43 surplus machines in a large scale-up, and orphaned nodes after it",
			Report: "A machine set grew from 3 to 131 machines in several steps. The controller created about 43 " +
				"surplus machines, noticed them, and deleted them seconds after their creation. The names of their " +
				"nodes had not been recorded yet, because this write had failed with a conflict. Their virtual " +
				"machines booted and registered. The nodes remained in the cluster without an owner.",
			Behavior: "A MachineSet creates a machine only if its view contains all of its own writes. After a restart " +
				"or a lost answer, it reads a live list first. If a Machine is deleted during its creation, the " +
				"provider waits until the instance of a pending call would be visible. It then finds the instance by " +
				"its tags, and deletes it together with its Node.",
			Proofs: scenarios("burst-cancelled", "create-then-delete"),
		},
		{
			Reference: "gardener/machine-controller-manager#1069", Theme: StaleCaches,
			Title: "A machine was created and deleted at once because of an old replica count",
			Report: "Two controllers worked on the same scale-down. One of the two controllers had deleted the " +
				"machines that an autoscaler had marked. The second controller still saw the former number of " +
				"replicas. The second controller created new machines as replacements, and deleted these machines " +
				"when it saw the lower number of replicas.",
			Behavior: "The MachineDeployment and its MachineSets use the same deletion order. A MachineSet chooses " +
				"machines for deletion from a view that is at least as new as its own specification. It creates no " +
				"machine beyond what its MachineDeployment allows.",
			Proofs: scenarios("autoscaler", "scale-down"),
		},
		{
			Reference: "gardener/machine-controller-manager#175", Theme: StaleCaches,
			Title: "A machine set waited for a deletion that it had forgotten",
			Report: "A machine set keeps a list of expected deletions in memory. During a rolling update, the " +
				"memory and the cluster diverged. The set wanted to delete a machine, but the memory already " +
				"contained this deletion. The set did nothing until the controller was restarted.",
			Behavior: "Machinist keeps no expectations in memory. A controller bases a decision on its cache only if the " +
				"cache contains the controller's own last write. After a write with an unknown outcome, it reads a " +
				"live list.",
			Proofs: scenarios("roll", "scale-down"),
		},
		{
			Reference: "gardener/machine-controller-manager#563", Theme: ClocksAndZones,
			Title: "Drains were forced from their first second",
			Report: "After a code change, the drain timeout was counted from an older timestamp of the machine. If " +
				"a machine had been running for longer than the drain timeout, the timeout had passed before the " +
				"drain began. Pods were deleted despite their disruption budgets, and volumes were detached one " +
				"after another.",
			Behavior: "The drain timeout starts when the Node is cordoned, and that moment is recorded. Budgets hold " +
				"until shortly before the deadline, regardless of the age of the machine.",
			Proofs: scenarios("old-fleet-drained", "drain-never-allowed"),
		},
		{
			Reference: "gardener/machine-controller-manager#811", Theme: ClocksAndZones,
			Title: "A flapping node prevented the creation timeout of its machine",
			Report: "A machine must become a Ready node within its creation timeout. Each time a condition of the " +
				"node changed, the controller wrote the status and skipped the timeout check in this pass. The " +
				"controller never gave up a node whose conditions kept changing.",
			Behavior: "The end of the creation timeout triggers a pass over the machine, regardless of other events. " +
				"Condition changes of a Node that is not Ready do not delay this pass, and they do not cost one " +
				"write each.",
			Proofs: scenarios("flapping-join"),
		},
		{
			Reference: "gardener/machine-controller-manager#680", Theme: ClocksAndZones,
			Title: "After an outage all Unknown machines were set to Running",
			Report: "When the API server was reachable again, the controller marked every Unknown machine as " +
				"Running. It did not check why the machine had been Unknown. The timeout of a machine that was " +
				"really broken started again, and the machine looked healthy.",
			Behavior: "The status of a machine always shows what its Node reports. After an outage, only the timeouts " +
				"that decide whether the machine is healthy start again. An outage can extend a timeout to at most " +
				"three times its length.",
			Proofs: scenarios("target-outage", "control-outage"),
		},
		{
			Reference: "gardener/machine-controller-manager#772", Theme: Certificates,
			Title: "Nodes that booted slowly had an expired bootstrap token",
			Report: "Machines of a bare-metal provider need more than 20 minutes to boot, so their creation " +
				"timeout was set to 50 minutes. The bootstrap token in their user data was valid for a fixed 20 " +
				"minutes. When the machines had booted, they could not join.",
			Behavior: "A bootstrap token is valid for as long as its machine may take to join. If this time is longer " +
				"than a few hours, the provider extends the token while the machine may still join. The token is " +
				"deleted when the machine runs.",
			Proofs: slices.Concat(scenarios("slow-boot"),
				tests("test/e2e.TestNodesJoinThroughUserDataTokenAndCSR")),
		},
		{
			Reference: "gardener/machine-controller-manager#181", Theme: Quota,
			Title: "A used-up quota looked like a flapping fleet",
			Report: "An upgrade needed one more instance than the quota of the project allowed. Machines were " +
				"created, failed and were replaced repeatedly. The user could not see that the used-up quota was the " +
				"reason.",
			Behavior: "If the quota does not allow an instance, the Machine is not replaced. It reports " +
				"InsufficientResources, and the provider tries again after one to ten minutes. The old machines " +
				"stay. When the quota is raised, the rollout continues.",
			Proofs: slices.Concat(scenarios("quota-full"),
				tests("providers/openstack/e2e.TestFleetGrowsWhenQuotaIsRaised")),
		},
		{
			Reference: "gardener/machine-controller-manager#425", Theme: Quota,
			Title: "Machines that were still terminating were replaced beyond the quota",
			Report: "When machines of a new machine set failed during a rollout, they were terminated and replaced " +
				"at the same moment. If a termination failed or took long, both machines existed, and the fleet was " +
				"larger than its surge allowed. In clouds with tight quotas, the rollout could not continue.",
			Behavior: "If a rollout has no surge, the old machine is deleted first. If the quota refuses a creation " +
				"because a terminating instance still counts, the provider tries again later, when that instance may " +
				"be gone.",
			Proofs: slices.Concat(scenarios("quota-full"),
				tests("providers/openstack/e2e.TestFleetGrowsWhenQuotaIsRaised")),
		},
		{
			Reference: "gardener/machine-controller-manager#874", Theme: Nodes,
			Title: "A Node remained that had no Machine and no virtual machine",
			Report: "A label of a Machine holds the name of its Node. The label had not been written when the " +
				"cluster was deleted, and the write was not tried again. The Machine and the virtual machine were " +
				"removed, but the Node remained. The cluster reported errors because of this Node.",
			Behavior: "When the instance is gone, the provider looks up the Node with its provider ID and deletes it, " +
				"whether the Node was recorded or not. At that time, the instance can no longer register a Node.",
			Proofs: scenarios("create-then-delete", "burst-cancelled"),
		},
		{
			Reference: "gardener/machine-controller-manager#1044", Theme: Nodes,
			Title: "A Machine was removed by force, and its Node remained",
			Report: "Support staff deleted a Machine and bypassed its finalizer. Its Node was not removed, because " +
				"the code that deletes Nodes starts from a Machine. The node lifecycle controller of the cluster did " +
				"not remove the Node either.",
			Behavior: "The instance of such a Machine is an orphan. Because its Node is Ready, nothing is deleted until " +
				"an administrator confirms the deletion. Then the provider drains the Node and deletes it together " +
				"with the instance.",
			Proofs: slices.Concat(scenarios("finalizer-stripped"),
				tests("test/e2e.TestAttackForcedCRDDeletionKeepsInstances")),
		},
		{
			Reference: "gardener/machine-controller-manager#802", Theme: Rollouts,
			Title: "A rolling update scaled the old and the new set to zero",
			Report: "During a live update, the new machine set had reached the highest number of machines that the " +
				"rollout allowed. The code that distributes the size of a deployment among its sets had no entry for " +
				"the sets. It read zero from an empty map and scaled both sets to zero.",
			Behavior: "The planner computes the sizes of all MachineSets in one pure function. The simulation checks " +
				"each write of a size against the bounds of the MachineDeployment, while users and an autoscaler " +
				"change replicas in the middle of rollouts.",
			Proofs: scenarios("autoscaler-roll", "churn"),
		},
		{
			Reference: "gardener/machine-controller-manager#754", Theme: Rollouts,
			Title: "Changes by an autoscaler were applied to the old and the new set",
			Report: "During a rolling update, an autoscaler changed the size of the deployment. The change was " +
				"applied to both machine sets. When the fleet grew, the old set got a machine that was not needed. " +
				"When the fleet shrank, nodes were drained although there was not enough new capacity, and pods were " +
				"pending.",
			Behavior: "A change of the size is distributed among the MachineSets once, in proportion. It never removes " +
				"more available machines than the MachineDeployment allows. The manager reads the delete marks of an " +
				"autoscaler from a view that is at least as new as the change of the size.",
			Proofs: scenarios("autoscaler-roll", "autoscaler"),
		},
		{
			Reference: "gardener/machine-controller-manager#826", Theme: Rollouts,
			Title: "A machine set was scaled down to nothing during a rollout",
			Report: "A rolling update of several deployments was under way while an autoscaler worked on the same " +
				"fleet. One machine set lost 21 machines in less than a minute, in steps of up to nine, until it was " +
				"empty.",
			Behavior: "The manager plans the deletion of an available machine only if enough machines stay available in " +
				"all MachineSets of the MachineDeployment together. Right before a MachineSet deletes such a " +
				"machine, it reads its MachineDeployment again.",
			Proofs: scenarios("autoscaler-roll"),
		},
		{
			Reference: "gardener/machine-controller-manager#603", Theme: BadInput,
			Title: "A class that became invalid blocked the deletion of its machines",
			Report: "The class of a running machine was changed to an invalid configuration. The controller " +
				"validated the class before each step, including deletion. The machines could not be deleted until " +
				"the class was corrected.",
			Behavior: "To delete an instance, the provider needs only the provider ID and the credentials. It does not " +
				"validate the class.",
			Proofs: slices.Concat(scenarios("class-vanishes-at-deletion"),
				tests("test/e2e.TestBadInputIsRefusedOrHarmless")),
		},
	}
}
