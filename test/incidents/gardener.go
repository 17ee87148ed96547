package incidents

import "slices"

func gardener() []Incident { return slices.Concat(gardenerLost(), gardenerOthers()) }

// gardenerLost returns incidents of Gardener in which machines were lost, leaked or could not be deleted.
func gardenerLost() []Incident {
	return []Incident{
		{
			Reference: "gardener/machine-controller-manager#657", Theme: DeletedFleets,
			Title: "All worker nodes deleted as orphans after a restart",
			Report: "The controller was restarted while the API server that stores its Machines was unavailable. " +
				"Its safety check listed the virtual machines of the cluster and found no Machine for any of them. " +
				"Therefore, the check treated all virtual machines as orphans and deleted the whole worker pool " +
				"within seconds.",
			Behavior: "While a cluster is unreachable, the provider does not look for orphans. It deletes orphans only " +
				"when both clusters have been reachable for a whole check period. It reads a complete list of " +
				"Machines from the API server. It deletes an instance only if the instance has no Machine in two " +
				"consecutive passes. If most instances seem to be orphans, or if the Node of an orphan is Ready, an " +
				"administrator must confirm the deletion.",
			Proofs: scenarios("restart-in-outage", "orphans-in-outage", "orphans-seen-late", "machines-lost"),
		},
		{
			Reference: "gardener/machine-controller-manager#718", Theme: DeletedFleets,
			Title: "The controller of an old control plane continued to delete nodes",
			Report: "A control plane was moved to another cluster, because its old cluster was broken. The " +
				"controller of the old control plane was still running, but its API server was down. The controller " +
				"was expected to freeze. Instead, it continued to act on the nodes of the fleet and removed them.",
			Behavior: "Each process checks on its own whether both API servers answer. While one of these API servers " +
				"does not answer, MachineDeployments and MachineSets do not create, replace or roll out machines. A " +
				"drain or deletion waits before it begins. A leader that is no longer sure of its lease exits.",
			Proofs: slices.Concat(scenarios("target-outage", "control-outage"),
				tests("test/e2e.TestTargetOutageLongerThanTimeouts",
					"test/e2e.TestFrozenLeaderDoesNotActAfterResume")),
		},
		{
			Reference: "gardener/machine-controller-manager#354", Theme: DeletedFleets,
			Title: "An outage of the infrastructure made most machines unhealthy at once",
			Report: "In several outages of an infrastructure, most machines of a cluster became unhealthy at the " +
				"same time, although many of them were working. The controller began to replace all of them. The " +
				"infrastructure could not create the replacements either, and the attempts made the outage worse.",
			Behavior: "While more than a configured share of the Nodes is not Ready, no unhealthy machine is replaced. " +
				"When the Nodes are Ready again, the timeout of each Node starts from the beginning.",
			Proofs: slices.Concat(scenarios("meltdown", "too-many-unhealthy"),
				tests("test/e2e.TestOnlyBrokenMachinesAreReplaced")),
		},
		{
			Reference: "gardener/machine-controller-manager#81", Theme: DeletedFleets,
			Title: "One machine too many was deleted when a fleet was scaled down",
			Report: "A fleet was scaled down from 40 machines to 2. The system deleted 39 machines and created a " +
				"new one. Of the two machines that should have stayed, only one did. The same happened in the middle " +
				"of upgrades.",
			Behavior: "A MachineSet counts its machines in a view that is at least as new as its own last write. It " +
				"deletes exactly the machines beyond its replicas. A scale-down creates no machine.",
			Proofs: scenarios("scale-down", "churn"),
		},
		{
			Reference: "gardener/machine-controller-manager-provider-aws#127", Theme: DeletedFleets,
			Title: "The orphan check removed a machine that was being created",
			Report: "A creation and the check for orphans ran at the same moment. The check had listed the " +
				"Machines before the creation and the instances after it. It found an instance without a Machine and " +
				"terminated it. The machine never joined.",
			Behavior: "An instance counts as an orphan only if its Machine is missing in a complete list of Machines, in " +
				"two consecutive passes. The list is read from the API server after the instances are listed. The " +
				"instance must also be older than a configured age. The provider reads the instance once more right " +
				"before the deletion.",
			Proofs: scenarios("retry-beside-collection", "orphans"),
		},
		{
			Reference: "gardener/machine-controller-manager#583", Theme: DeletedFleets,
			Title: "A machine whose creation was retried was taken for an orphan",
			Report: "The first attempt to create a machine failed, for example because of a quota, and the machine " +
				"was in a crash loop. A later attempt succeeded in a cloud that answers slowly. Before the answer " +
				"arrived, the orphan check found the new virtual machine. It did not recognize the Machine as one " +
				"that is being created, and removed the virtual machine.",
			Behavior: "The UID in the tags of an instance decides whether the instance has a Machine. The phase of the " +
				"Machine does not matter.",
			Proofs: scenarios("retry-beside-collection"),
		},
		{
			Reference: "gardener/machine-controller-manager#318", Theme: LeakedInstances,
			Title: "A lost lease produced orphaned machines every four minutes",
			Report: "While a cluster was created, the controller lost its lease repeatedly and was restarted each " +
				"time. The controller had not recorded the virtual machines that it had created. After twelve " +
				"minutes there were nine virtual machines instead of three. The orphan check removed the surplus 20 " +
				"minutes later.",
			Behavior: "The UID of a Machine is in the tags of its instance, and it is part of the token that makes a " +
				"creation idempotent. The next leader finds the instance and continues with it. When a leader loses " +
				"its lease, its fence closes and all its calls end.",
			Proofs: slices.Concat(scenarios("create"),
				tests("test/e2e.TestKilledProviderLeavesOneInstancePerMachine")),
		},
		{
			Reference: "gardener/machine-controller-manager#850", Theme: LeakedInstances,
			Title: "Network interfaces and disks remained after the machine was deleted",
			Report: "To delete a machine, the controller first asked the cloud whether the virtual machine " +
				"existed. If the virtual machine did not exist, the controller deleted nothing. The interfaces and " +
				"disks of the machine remained and blocked the deletion of the network. The controller was removed " +
				"together with the last machine, so no cleanup followed.",
			Behavior: "The provider calls Delete until the driver reports that the instance and all its parts are gone. " +
				"Parts that belong to no instance are listed together with the orphans and deleted under the same " +
				"rules.",
			Proofs: tests("providers/openstack/e2e.TestPartsOfKilledProviderAreDeleted"),
		},
		{
			Reference: "gardener/machine-controller-manager#445", Theme: LeakedInstances,
			Title: "An instance leaked because a step after its creation failed",
			Report: "An instance was created, but a later call failed: the template named a device that was not " +
				"mapped. The whole creation counted as failed. The instance was not recorded. The instance continued " +
				"to run, and blocked the deletion of its subnet and its security group.",
			Behavior: "The provider records the provider ID as soon as the cloud reports it. If an answer is lost, the " +
				"provider finds the instance by its tags. A Machine is removed only when all instances with its UID " +
				"are gone, including those that a pending call may still create.",
			Proofs: slices.Concat(scenarios("burst-cancelled", "create-then-delete"),
				tests("providers/openstack/e2e.TestFleetSurvivesRestartOfRabbitMQ")),
		},
		{
			Reference: "gardener/machine-controller-manager#508", Theme: StuckDrains,
			Title: "Machines were deleted before their volumes were detached",
			Report: "The controller waited only for volumes of drivers that were built into Kubernetes. It did not " +
				"wait for volumes of CSI drivers. Machines were deleted while volumes were attached, and the pods " +
				"had to wait on other nodes until the cloud released the volumes.",
			Behavior: "The provider waits for VolumeAttachments, which all drivers use. It deletes the instance when the " +
				"drained pods have no VolumeAttachments any more, or when the timeout for volumes has passed.",
			Proofs: slices.Concat(scenarios("drain-same-names", "drain-stuck-volume"),
				tests("test/e2e.TestDaemonSetVolumesDoNotBlockRollout")),
		},
		{
			Reference: "gardener/machine-controller-manager#465", Theme: StuckDrains,
			Title: "Machines that had never joined could not be drained",
			Report: "Machines failed before they became Nodes, and users deleted them. The drain looked up the " +
				"Node without a name and failed each time with \"resource name may not be empty\". The machines were " +
				"never removed.",
			Behavior: "If a step of a deletion has nothing to do, the next step follows at once. For a machine without a " +
				"Node, the provider asks the API server whether a Node has the name of the machine, and then deletes " +
				"the instance.",
			Proofs: scenarios("rollout-never-joins", "create-then-delete"),
		},
		{
			Reference: "gardener/machine-controller-manager#306", Theme: StuckDrains,
			Title: "The drain of an unresponsive node lasted twelve hours",
			Report: "When a kubelet did not respond, the drain waited for pods and volumes. Without the kubelet, " +
				"the pods could not end and the volumes could not be detached. The deletion continued only after the " +
				"drain timeout of twelve hours.",
			Behavior: "On a node that does not report, terminating pods count as gone, and the provider does not wait " +
				"for volumes. When the instance is gone, the out-of-service taint makes Kubernetes detach the " +
				"volumes.",
			Proofs: scenarios("drain-silent-node"),
		},
		{
			Reference: "gardener/machine-controller-manager#415", Theme: StuckDrains,
			Title: "Disruption budgets blocked a forced deletion",
			Report: "When a cluster is deleted or hibernated, all pods can be deleted at once. The drain still " +
				"tried to evict these pods within their disruption budgets, until the timeout of a normal drain had " +
				"passed. A budget that allowed no eviction delayed the deletion of the cluster by this timeout.",
			Behavior: "Each drain has one deadline. This deadline also applies when all nodes are deleted at once and " +
				"the pods have no other node. An annotation ends a drain at once, even after it has begun.",
			Proofs: scenarios("nowhere-to-go", "drain-forced"),
		},
		{
			Reference: "gardener/machine-controller-manager#1061", Theme: StuckDeletions,
			Title: "A machine without its class could not be deleted",
			Report: "A Machine existed whose class had been deleted. For each event, the controller reported " +
				"\"class not found\" and put the machine back into its queue. It removed neither the virtual machine " +
				"nor the Node.",
			Behavior: "A finalizer protects a class while machines use it. If the class is removed by force, the " +
				"deletion of its machines continues without it. The provider then uses the credentials that the " +
				"status of the Machine names.",
			Proofs: slices.Concat(scenarios("class-vanishes-at-deletion"),
				tests("test/e2e.TestWhyAdviceWorks")),
		},
		{
			Reference: "gardener/machine-controller-manager#259", Theme: StuckDeletions,
			Title: "Classes and secrets were removed before their machines",
			Report: "Classes and secrets were sometimes removed before the machines that needed them. Sometimes " +
				"they were never removed, because the controller missed an event and did not check again. Operators " +
				"had to restart the controller so that it noticed.",
			Behavior: "Finalizers protect classes, and the Secrets that they name, as long as a machine uses them. When " +
				"a machine is deleted, the provider checks again whether its class and its Secrets are still in use.",
			Proofs: scenarios("secret-vanishes-at-deletion", "namespace-deleted", "inline-secret-deleted"),
		},
	}
}
