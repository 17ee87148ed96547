package incidents

import "slices"

// gardener are incidents of Gardener's machine-controller-manager and its providers.
func gardener() []Incident { return slices.Concat(gardenerLost(), gardenerOthers()) }

// gardenerLost are incidents of machine-controller-manager in which machines were lost, or did not go.
func gardenerLost() []Incident {
	return []Incident{
		{
			Reference: "gardener/machine-controller-manager#657", Theme: DeletedFleets,
			Title: "All worker nodes deleted as orphans after a restart",
			Happened: "The controller was restarted while the API server that holds its Machines was not available. Its " +
				"safety check listed the virtual machines of the cluster, found no Machine for any of them, took " +
				"all of them for orphans and deleted the whole worker pool within seconds.",
			Here: "A process looks for orphans only after the control cluster has answered for a whole period, reads " +
				"a complete list of Machines at the API server, and removes only an instance that had no Machine in " +
				"two passes in a row. When most instances seem to be orphans, or the Node of one is Ready, it waits " +
				"for a person. While a cluster is unreachable it looks for none.",
			Proofs: scenarios("restart-in-outage", "orphans-in-outage", "orphans-seen-late", "machines-lost"),
		},
		{
			Reference: "gardener/machine-controller-manager#718", Theme: DeletedFleets,
			Title: "The controller of an old control plane went on deleting nodes",
			Happened: "After a control plane had been moved to another cluster the hard way, the controller of the old " +
				"place was still running. The API server that it belonged to was down. It was expected to freeze, " +
				"and it went on acting upon the nodes of the fleet and removed them.",
			Here: "Each process watches by itself whether both API servers answer. While one does not, owners make, " +
				"replace and roll nothing, and a drain or a deletion waits before it begins. A leader that is not " +
				"surely the leader any more ends.",
			Proofs: slices.Concat(scenarios("target-outage", "control-outage"),
				tests("test/e2e.TestAnOutageOfTheTargetLongerThanEveryTimeout",
					"test/e2e.TestAFrozenLeaderDoesNotActWhenItResumes")),
		},
		{
			Reference: "gardener/machine-controller-manager#354", Theme: DeletedFleets,
			Title: "An outage of the infrastructure made most machines unhealthy at once",
			Happened: "In several outages of an infrastructure most machines of a cluster became unhealthy at the same " +
				"time, although many of them were working. The controller began to replace all of them, which the " +
				"infrastructure could not do either, and which made the outage worse.",
			Here: "While more than a set share of the Nodes is not well, nothing is replaced for its health. When the " +
				"Nodes are back, each has its full time again.",
			Proofs: slices.Concat(scenarios("meltdown", "too-many-unhealthy"),
				tests("test/e2e.TestWhatIsBrokenIsReplacedAndWhatIsUnreachableIsNot")),
		},
		{
			Reference: "gardener/machine-controller-manager#81", Theme: DeletedFleets,
			Title: "One machine too many was deleted when a fleet shrank",
			Happened: "A fleet was scaled from 40 machines to 2. The system deleted 39 and made a new one, so that of two " +
				"machines that should have stayed only one did. It was seen again in the middle of upgrades.",
			Here: "A set counts the machines that it owns at a version not older than its own last write, and deletes " +
				"exactly those beyond its replicas. A scale-down makes no machine.",
			Proofs: scenarios("scale-down", "churn"),
		},
		{
			Reference: "gardener/machine-controller-manager-provider-aws#127", Theme: DeletedFleets,
			Title: "The orphan check removed a machine that was being created",
			Happened: "A creation and the check for orphans ran at the same moment. The check had listed the Machines " +
				"before the creation and the instances after it. It saw an instance without a Machine, terminated " +
				"it, and the machine never joined.",
			Here: "An instance is an orphan only if a complete list of Machines, read at the API server after the " +
				"list of instances, does not have it, in two passes in a row, and if it is older than a set age. It " +
				"is read once more right before it is removed.",
			Proofs: scenarios("retry-beside-collection", "orphans"),
		},
		{
			Reference: "gardener/machine-controller-manager#583", Theme: DeletedFleets,
			Title: "A machine that was tried again was taken for an orphan",
			Happened: "The first attempt to create a machine failed, for example because of a quota, and the machine was " +
				"in a crash loop. A later attempt succeeded at a cloud that answers slowly. Before the answer was " +
				"there, the orphan check found the new virtual machine, did not count its Machine as one that is " +
				"being created, and removed it.",
			Here: "Whether an instance has a Machine is decided by the UID in its tags, whatever the phase of the " +
				"Machine is.",
			Proofs: scenarios("retry-beside-collection"),
		},
		{
			Reference: "gardener/machine-controller-manager#318", Theme: LeakedInstances,
			Title: "A lost lease produced orphaned machines every four minutes",
			Happened: "The controller lost its lease again and again while a cluster was created, and was restarted each " +
				"time. What it had created was not recorded. After twelve minutes there were nine virtual machines " +
				"where three were wanted. The orphan check removed them 20 minutes later.",
			Here: "The UID of a Machine is the tag of its instance, and part of the token that makes a creation " +
				"idempotent. Whoever leads next finds the instance and goes on with it. A leader without a lease " +
				"has no calls left: its fence is closed.",
			Proofs: slices.Concat(scenarios("create"),
				tests("test/e2e.TestKillingTheProviderNeitherLeaksNorDoubles")),
		},
		{
			Reference: "gardener/machine-controller-manager#850", Theme: LeakedInstances,
			Title: "Network interfaces and disks stayed when the machine was gone",
			Happened: "The deletion of a machine asked the cloud first whether the virtual machine exists. When the " +
				"answer was no, nothing was deleted at all. Interfaces and disks of the machine stayed, and blocked " +
				"the deletion of the network. With the last machine the controller was removed as well, so that " +
				"nobody cleaned up later.",
			Here: "Delete is called until the driver says that the instance and its parts are gone. Parts that belong " +
				"to no instance are listed with the orphans, and are removed like them.",
			Proofs: tests("providers/openstack/e2e.TestPartsThatAKilledProviderLeft"),
		},
		{
			Reference: "gardener/machine-controller-manager#445", Theme: LeakedInstances,
			Title: "An instance leaked because a step after its creation failed",
			Happened: "An instance was created, and a call that followed it failed: no device was mapped where the " +
				"template named one. The creation counted as failed as a whole. The instance was not recorded, ran " +
				"on, and blocked the deletion of its subnet and its security group.",
			Here: "The provider ID is written down as soon as the cloud names the instance. Where an answer is lost, " +
				"the instance is found by its tags. A Machine goes only when the instances with its UID are gone, " +
				"those that are yet to come included.",
			Proofs: slices.Concat(scenarios("burst-cancelled", "create-then-delete"),
				tests("providers/openstack/e2e.TestRabbitMQIsKilledInTheMiddleOfTwentyCreations")),
		},
		{
			Reference: "gardener/machine-controller-manager#508", Theme: StuckDrains,
			Title: "Machines went before their volumes were detached",
			Happened: "The wait for volumes knew only volumes of drivers that were built into Kubernetes. Volumes of CSI " +
				"drivers were not waited for. Machines were deleted with volumes attached, and pods had to wait " +
				"elsewhere until the cloud gave the volumes free.",
			Here: "The wait is for VolumeAttachments, which all drivers have. The instance goes when those of drained " +
				"pods are gone, or when their time is over.",
			Proofs: slices.Concat(scenarios("drain-same-names", "drain-stuck-volume"),
				tests("test/e2e.TestDaemonsAndTheirVolumesHoldNoRolloutUp")),
		},
		{
			Reference: "gardener/machine-controller-manager#465", Theme: StuckDrains,
			Title: "Machines that had never joined could not be drained",
			Happened: "Machines failed before they became Nodes, and people deleted them. The drain asked for the Node, of " +
				"which there was no name, and failed with \"resource name may not be empty\", for ever. The " +
				"machines stayed.",
			Here: "A step of a deletion that has nothing to do is followed by the next one at once. For a machine " +
				"without a Node the API server is asked whether one has its name, and the instance goes.",
			Proofs: scenarios("rollout-never-joins", "create-then-delete"),
		},
		{
			Reference: "gardener/machine-controller-manager#306", Theme: StuckDrains,
			Title: "The drain of a silent node lasted twelve hours",
			Happened: "When a kubelet was silent, the drain waited for pods that nobody could end and for volumes that " +
				"nobody could detach. It went on only when the drain timeout of twelve hours was over.",
			Here: "On a node that does not report, pods that are terminating count as gone, and volumes are not " +
				"waited for. When the instance is gone, they are detached by the out-of-service taint.",
			Proofs: scenarios("drain-silent-node"),
		},
		{
			Reference: "gardener/machine-controller-manager#415", Theme: StuckDrains,
			Title: "Disruption budgets blocked a deletion by force",
			Happened: "When a cluster is deleted or hibernated, all pods may go at once. The drain still tried to evict " +
				"them, politely, as often as the timeout of a usual drain allows. A budget that could not be met " +
				"held up the deletion of the cluster for that long.",
			Here: "There is one deadline for a drain, also where all nodes go at once and no pod has another place. " +
				"An annotation ends the drain at once, in the middle of it too.",
			Proofs: scenarios("nowhere-to-go", "drain-forced"),
		},
		{
			Reference: "gardener/machine-controller-manager#1061", Theme: StuckDeletions,
			Title: "A machine without its class could not be deleted",
			Happened: "A Machine was left whose class did not exist any more. The controller answered each event with " +
				"\"class not found\", put the machine back into its queue, and removed neither the virtual machine " +
				"nor the Node.",
			Here: "A class is held while machines use it. If it is removed by force anyway, the deletion goes " +
				"on without it, with the credentials that the status of the machine names.",
			Proofs: slices.Concat(scenarios("class-vanishes-at-deletion"),
				tests("test/e2e.TestWhyNamesAWayOutThatWorks")),
		},
		{
			Reference: "gardener/machine-controller-manager#259", Theme: StuckDeletions,
			Title: "Classes and secrets were removed before their machines",
			Happened: "Classes and secrets were sometimes cleaned up before the machines that needed them, and sometimes " +
				"never, because a missed event was not made up for by another look. Operators had to restart the " +
				"controller to make it notice.",
			Here: "Classes and the secrets that they name are protected by finalizers as long as a machine uses them. " +
				"A deletion triggers the check of what it used.",
			Proofs: scenarios("secret-vanishes-at-deletion", "namespace-deleted", "inline-secret-deleted"),
		},
	}
}
