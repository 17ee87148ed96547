package incidents

import "slices"

// gardenerOthers are those with other causes.
func gardenerOthers() []Incident {
	return []Incident{
		{
			Reference: "gardener/machine-controller-manager#482", Theme: Stampedes,
			Title: "A wrong route between masters and workers replaced 80 nodes",
			Happened: "A release of a network plugin broke the routing between the masters and the workers of a cluster. " +
				"All machines became Unknown, then Failed, and were deleted all at the same moment. Disks were slow " +
				"to detach, the hypervisors were busy with new machines, and the cluster of 80 nodes needed very " +
				"long to recover. The workload had not been affected before.",
			Here: "Silence of most nodes at once freezes remediation, and the machines stay. What is replaced after " +
				"that goes a few at a time, within the remediation budget of its owner.",
			Proofs: scenarios("meltdown", "too-many-unhealthy", "remediate"),
		},
		{
			Reference: "gardener/machine-controller-manager#1091", Theme: StaleCaches,
			Title: "43 machines too many in a large scale-up, and orphan nodes after it",
			Happened: "A set grew from 3 to 131 machines in several steps. The controller made about 43 machines more " +
				"than were asked for, saw that and deleted them seconds after their creation. The names of their " +
				"nodes had not been recorded yet, because that write met a conflict. Their virtual machines booted, " +
				"registered, and stayed in the cluster as nodes of nobody.",
			Here: "A creation is sent only from a view that has all of the writer's own writes, and from a live list " +
				"after a restart or a lost answer. A machine that is deleted while it is made waits until a " +
				"creation that may still be under way would show, finds its instance by its tags, and takes the " +
				"Node of that instance along.",
			Proofs: scenarios("burst-cancelled", "create-then-delete"),
		},
		{
			Reference: "gardener/machine-controller-manager#1069", Theme: StaleCaches,
			Title: "A machine was made and deleted at once because of an old replica count",
			Happened: "Two controllers worked on one scale-down. One had deleted the machines that an autoscaler had " +
				"marked, the other one still saw the former number of replicas. It made new machines for them, and " +
				"deleted these as soon as it saw the new number.",
			Here: "Deployment and set agree on one order of deletion. Victims are chosen from machines at least as " +
				"new as the set's own specification, and a set makes no machine that goes beyond what its " +
				"deployment may have.",
			Proofs: scenarios("autoscaler", "scale-down"),
		},
		{
			Reference: "gardener/machine-controller-manager#175", Theme: StaleCaches,
			Title: "A set waited for a deletion that it had forgotten",
			Happened: "A set remembers in memory which deletions it expects. The memory and the cluster came apart in a " +
				"rolling update. The set wanted to delete a machine, refused to expect the same deletion twice, and " +
				"did nothing until the controller was restarted.",
			Here: "There are no expectations in memory. A reader waits until the cache has its own last write, and a " +
				"write of unknown outcome is followed by a live list.",
			Proofs: scenarios("roll", "scale-down"),
		},
		{
			Reference: "gardener/machine-controller-manager#563", Theme: ClocksAndZones,
			Title: "Drains were forced from their first second",
			Happened: "After a change in the code the time of a drain counted from an older time stamp of the machine. " +
				"For a machine that had been running for longer than the drain timeout, the timeout was over before " +
				"the drain began. Pods were deleted against their disruption budgets and volumes were detached one " +
				"after another.",
			Here: "The time of a drain begins when the Node was cordoned, and is written down. Budgets hold until " +
				"shortly before its end, however old the machine is.",
			Proofs: scenarios("old-fleet-drained", "drain-never-allowed"),
		},
		{
			Reference: "gardener/machine-controller-manager#811", Theme: ClocksAndZones,
			Title: "A flapping node kept a machine from its creation timeout",
			Happened: "A machine has a time in which it must become a Ready node. Each change of a condition of its node " +
				"made the controller write the status and skip the check of that time in this round. A node whose " +
				"conditions kept changing was never given up.",
			Here: "The time to join is a time at which the machine is reconciled, whatever comes before. What a Node " +
				"that is not Ready says of itself neither delays it nor costs a write each time.",
			Proofs: scenarios("flapping-join"),
		},
		{
			Reference: "gardener/machine-controller-manager#680", Theme: ClocksAndZones,
			Title: "After an outage all Unknown machines were set to Running",
			Happened: "When the API server was reachable again, the controller marked every machine that was Unknown as " +
				"Running, without a check of why it had been Unknown. A machine that was really broken began its " +
				"time anew and looked healthy.",
			Here: "What a machine says of its Node is what the Node says. Only the clocks that judge it begin again " +
				"at the end of an outage, at most until three times their length.",
			Proofs: scenarios("target-outage", "control-outage"),
		},
		{
			Reference: "gardener/machine-controller-manager#772", Theme: Certificates,
			Title: "Nodes that booted slowly met an expired bootstrap token",
			Happened: "Machines at a provider of bare metal need more than 20 minutes to boot, and their creation timeout " +
				"was set to 50 minutes. The bootstrap token in their user data was valid for a fixed 20 minutes. " +
				"When they came up, they could not join.",
			Here: "A token lives as long as its machine may take to join. Where that is longer than a few hours, it " +
				"is extended while the machine may still join, and it goes when the machine runs.",
			Proofs: slices.Concat(scenarios("slow-boot"),
				tests("test/e2e.TestNodesJoinThroughUserDataTokenAndCSR")),
		},
		{
			Reference: "gardener/machine-controller-manager#181", Theme: Quota,
			Title: "A used-up quota looked like a flapping fleet",
			Happened: "An upgrade needed an instance more than the quota of the project allowed. Machines were created, " +
				"failed and were replaced, over and over. The reason, that the quota was used up, was not visible " +
				"to the user.",
			Here: "A machine that the cloud has no quota for stays the same machine, says InsufficientResources, and " +
				"tries again from one to ten minutes later. The old machines stay. When the quota is raised, the " +
				"rollout goes on.",
			Proofs: slices.Concat(scenarios("quota-full"),
				tests("providers/openstack/e2e.TestAQuotaIsUsedUpAndFreed")),
		},
		{
			Reference: "gardener/machine-controller-manager#425", Theme: Quota,
			Title: "Machines that were still terminating were replaced beyond the quota",
			Happened: "When machines of a new set failed during a rollout, they were terminated and replaced in the same " +
				"moment. A termination that failed or took long left both, so that the fleet was larger than its " +
				"surge allows. At clouds with tight quotas nothing went on any more.",
			Here: "Where a rollout may have no machine more, the old one goes first. A creation that the quota does " +
				"not allow, because what goes still counts, is tried again when it may have gone.",
			Proofs: slices.Concat(scenarios("quota-full"),
				tests("providers/openstack/e2e.TestAQuotaIsUsedUpAndFreed")),
		},
		{
			Reference: "gardener/machine-controller-manager#874", Theme: Nodes,
			Title: "A Node stayed that had no Machine and no virtual machine",
			Happened: "The name of its Node is a label of a Machine. The label was not written before the cluster was " +
				"deleted, and there was no second try. The Machine and the virtual machine went, the Node stayed, " +
				"and the cluster reported errors because of it.",
			Here: "When the instance is gone, the Node with its provider ID is looked up and deleted, whether it was " +
				"recorded or not. Nothing can register any more by then.",
			Proofs: scenarios("create-then-delete", "burst-cancelled"),
		},
		{
			Reference: "gardener/machine-controller-manager#1044", Theme: Nodes,
			Title: "A Machine was removed by force, and its Node stayed",
			Happened: "Support staff deleted a Machine explicitly, past its finalizer. Its Node was not cleaned up, " +
				"because the code that deletes Nodes begins with a Machine, and the node lifecycle controller of " +
				"the cluster did not clean it up either.",
			Here: "The instance of such a Machine is an orphan. Its Node is Ready, so nothing is removed until a " +
				"person lets it go. Then the Node is drained, and goes with the instance.",
			Proofs: slices.Concat(scenarios("finalizer-stripped"),
				tests("test/e2e.TestAttackDeletedCRDsByForceLeaveInstancesThatWork")),
		},
		{
			Reference: "gardener/machine-controller-manager#802", Theme: Rollouts,
			Title: "A rolling update scaled the old and the new set to zero",
			Happened: "During a live update the new machine set had reached the highest number of machines that the " +
				"rollout allowed. The code that shares the size of a deployment among its sets then had no entry " +
				"for the sets, read zero from an empty map, and scaled both sets to zero.",
			Here: "The planner computes the sizes of all sets in one pure function. Each write of a size is judged in " +
				"the deterministic world against the bounds of the deployment, while people and an autoscaler " +
				"change replicas in the middle of rollouts.",
			Proofs: scenarios("autoscaler-roll", "churn"),
		},
		{
			Reference: "gardener/machine-controller-manager#754", Theme: Rollouts,
			Title: "Changes by an autoscaler went to the old and to the new set",
			Happened: "While a rolling update was under way, an autoscaler changed the size of the deployment. The change " +
				"was applied to both machine sets. When the fleet grew, the old set got a machine that nobody " +
				"needed. When it shrank, nodes were drained although there was not enough new capacity, and pods " +
				"were pending.",
			Here: "A change of the size is shared among the sets once, in proportion, and never takes more available " +
				"machines than the deployment allows. Marks of an autoscaler are read from a view that is at least " +
				"as new as the change of the size.",
			Proofs: scenarios("autoscaler-roll", "autoscaler"),
		},
		{
			Reference: "gardener/machine-controller-manager#826", Theme: Rollouts,
			Title: "A machine set shrank to nothing within minutes of a rollout",
			Happened: "A rolling update of several deployments was under way while an autoscaler worked on the same " +
				"fleet. One machine set lost 21 machines in less than a minute, in steps of up to nine, until it " +
				"was empty.",
			Here: "A removal of an available machine is written only if enough machines stay available in all sets of " +
				"the deployment together. The set that deletes asks once more what its deployment wants, right " +
				"before it deletes.",
			Proofs: scenarios("autoscaler-roll"),
		},
		{
			Reference: "gardener/machine-controller-manager#603", Theme: BadInput,
			Title: "A class that became invalid blocked the deletion of its machines",
			Happened: "The class of a running machine was changed to something invalid. The controller validated the " +
				"class before each step, also before a deletion. Machines could not be deleted until somebody " +
				"mended the class.",
			Here: "A deletion needs the provider ID and credentials. It does not validate the class.",
			Proofs: slices.Concat(scenarios("class-vanishes-at-deletion"),
				tests("test/e2e.TestBadInputHarmsNobody")),
		},
	}
}
