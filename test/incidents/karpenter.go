package incidents

import "slices"

// karpenter are incidents of Karpenter and its provider for AWS.
func karpenter() []Incident {
	return []Incident{
		{
			Reference: "kubernetes-sigs/karpenter#1100", Theme: DeletedFleets,
			Title: "One wrong NotFound of a cloud ends an instance",
			Happened: "When a cloud answers that an instance does not exist, its node claim is deleted. A maintainer " +
				"described that a cloud with inconsistent answers would thereby end instances whose nodes are " +
				"healthy, and asked for a check that the node has stopped to report.",
			Here: "A Ready Node is not questioned. For one that is not Ready, two reads must say NotFound, and the " +
				"cloud must show the instance of another machine of the class whose Node is Ready. If it denies " +
				"that as well, nothing follows from its answer, which an event reports.",
			Proofs: scenarios("cloud-forgets"),
		},
		{
			Reference: "aws/karpenter-provider-aws#3979", Theme: DeletedFleets,
			Title: "Drift removed all nodes although no new node joined",
			Happened: "An image was changed to one whose nodes cannot join. The replacement of drifted nodes launched a " +
				"new node, waited ten minutes for it, removed the old node and went on with the next one, until the " +
				"cluster had no healthy node.",
			Here: "An old machine goes only when enough others are available. With new ones that never join a rollout " +
				"stops: the old fleet stays whole, failed machines are replaced one at a time, and the deployment " +
				"says RevisionFailing.",
			Proofs: scenarios("rollout-never-joins"),
		},
		{
			Reference: "aws/karpenter-provider-aws#549", Theme: LeakedInstances,
			Title: "A tenth of the instances leaked after a burst of 1000 pods",
			Happened: "A test scaled to 1000 pods and back with a short time to live. About ten percent of the instances " +
				"stayed at the cloud. They had been created, and their Node objects had not, so that nothing in the " +
				"cluster pointed at them.",
			Here: "The Machine is there before its instance, and stays until that is gone. A fleet that is given up " +
				"while most of its creations are under way, at a cloud that loses answers, ends with nothing.",
			Proofs: slices.Concat(scenarios("burst-cancelled"),
				tests("test/e2e.TestKillingTheProviderNeitherLeaksNorDoubles")),
		},
		{
			Reference: "aws/karpenter-provider-aws#7684", Theme: LeakedInstances,
			Title: "A node claim was gone while its instance was still shutting down",
			Happened: "One call to terminate an instance was made and counted as done. Because of the eventual " +
				"consistency of the cloud the instance could still be there when its claim was removed.",
			Here: "The Machine waits until the cloud says that the instance is gone, and confirms that by a read " +
				"where the removal was not accepted before.",
			Proofs: slices.Concat(scenarios("scale-down", "delete"),
				tests("test/e2e.TestWaysOfClouds")),
		},
		{
			Reference: "kubernetes-sigs/karpenter#1776", Theme: StuckDrains,
			Title: "A disruption budget blocked a termination that had a deadline",
			Happened: "Nodes had a termination grace period, after which pods may be deleted against their disruption " +
				"budgets. Users saw nodes that stayed in termination for long after that, with a budget as the " +
				"reason.",
			Here: "Budgets hold until the deadline less the grace of a pod. Then pods are deleted with what is left " +
				"of their grace, and the instance goes at the deadline.",
			Proofs: scenarios("drain-never-allowed", "drain-long-grace"),
		},
		{
			Reference: "aws/karpenter-provider-aws#8629", Theme: StuckDrains,
			Title: "Nodes that fell silent while they were disrupted stayed for days",
			Happened: "When a maintenance window began, some nodes that were being replaced stopped to report. Their pods " +
				"stayed in Terminating or seemed to run, and the nodes were neither drained nor removed for hours " +
				"or days, until somebody deleted them by hand.",
			Here: "A node that falls silent during its drain needs nobody: its pods that are terminating count as " +
				"gone, its instance goes, and its volumes are detached by force.",
			Proofs: scenarios("drain-silent-node", "remediate"),
		},
		{
			Reference: "kubernetes-sigs/karpenter#1121", Theme: StuckDrains,
			Title: "A blocked drain kept new nodes from being made",
			Happened: "The drains of a few nodes were blocked by disruption budgets. More than 80 pods were pending at " +
				"the same time, and no new node came up for them until the budgets were changed.",
			Here: "Drains have workers of their own and hold up nothing else. Two hundred blocked drains beside a " +
				"fleet that grows are a test.",
			Proofs: tests("test/e2e.TestManyBlockedDrainsDoNotStarveCreation"),
		},
		{
			Reference: "kubernetes-sigs/karpenter#1294", Theme: StuckDrains,
			Title: "Stateful pods waited six minutes for their volumes",
			Happened: "A node was terminated when its pods had ended, before their volumes were unmounted and detached. " +
				"Kubernetes could not know that it was safe to attach them elsewhere, and stateful pods waited more " +
				"than six minutes on their new nodes.",
			Here: "An instance goes after the VolumeAttachments of the pods that were drained from it, and not later " +
				"than its volume timeout.",
			Proofs: scenarios("drain-same-names", "drain-stuck-volume", "interrupted"),
		},
		{
			Reference: "aws/karpenter-provider-aws#2831", Theme: StuckDeletions,
			Title: "A node in the middle of its drain was orphaned by the deletion of its owner",
			Happened: "A node was being drained when its provisioner was deleted. Nobody went on with the drain, nobody " +
				"removed the finalizer, and the node stayed in deletion until a person removed the finalizer.",
			Here:   "What a Machine needs for its deletion belongs to the Machine. Its owner may go at any time.",
			Proofs: scenarios("delete-while-draining", "namespace-deleted-in-a-roll"),
		},
		{
			Reference: "kubernetes-sigs/karpenter#2169", Theme: StuckDeletions,
			Title: "Claims hung on their finalizer for a week, and no log named them",
			Happened: "Node claims had been marked for deletion for more than a week. They had no pods but daemons, their " +
				"finalizer was not removed, and even the debug log of the controller did not mention them.",
			Here: "A Machine that is being deleted says in its condition Deleting which step it waits for and since " +
				"when. An alert fires for one that lasts, and the command \"why\" names a way out.",
			Proofs: tests("test/e2e.TestWhyNamesAWayOutThatWorks",
				"test/e2e.TestAlertsAboutTheFleetFireForTheirCauseOnly"),
		},
		{
			Reference: "aws/karpenter-provider-aws#2011", Theme: Stampedes,
			Title: "One pending pod made new nodes without an end",
			Happened: "A deployment with one replica, a node selector and a toleration should have led to one node. " +
				"Instead nodes were launched one after another without an end, and the maintainers gave the " +
				"report their label for urgent bugs.",
			Here: "Machinist makes as many machines as replicas say. Beyond that there is a ceiling, owners with a " +
				"surplus are frozen, and the replacement of machines that never join is slow and one at a time.",
			Proofs: slices.Concat(scenarios("rollout-never-joins", "overshoot"),
				tests("test/e2e.TestAFloodOfMachinesFreezesTheirOwners")),
		},
		{
			Reference: "kubernetes-sigs/karpenter#2183", Theme: ClocksAndZones,
			Title: "Nodes were replaced outside of the maintenance window",
			Happened: "A user wanted nodes to be replaced on Monday nights only, and wrote a budget with a schedule for " +
				"that. A new image was published on a Thursday morning, and nodes were replaced at once: outside of " +
				"its schedule a budget does not limit anything.",
			Here: "A disruption budget holds at all times, and its windows say when it allows more or less, in a time " +
				"zone of its own. The command \"why\" says which budget is in the way and when that changes.",
			Proofs: slices.Concat(scenarios("budget-windows", "budgets-overlap"),
				tests("test/e2e.TestDisruptionStaysWithinBudgets")),
		},
		{
			Reference: "aws/karpenter-provider-aws#2876", Theme: Webhooks,
			Title: "After an upgrade the API server did not trust the webhook",
			Happened: "After an upgrade the webhook served a certificate that was not signed by the authority in its " +
				"configuration. Each write of the objects that it is for was refused with \"certificate signed by " +
				"unknown authority\".",
			Here: "Processes keep the certificate and its authority themselves, in one secret for all replicas. An " +
				"authority is trusted before it signs, and no request is lost while it is replaced.",
			Proofs: tests("test/e2e.TestNoRequestForAdmissionIsLost"),
		},
		{
			Reference: "kubernetes-sigs/karpenter#2104", Theme: Quota,
			Title: "Reads used up the rate limit of the cloud, and nodes were scaled down",
			Happened: "Ten to twenty minutes after a migration the retry quota of the client of the cloud was used up, " +
				"for calls that only read. Launches failed with that error, and nodes were scaled down.",
			Here: "A settled machine costs no call. Calls that are refused wait longer each time, with jitter, and so " +
				"do those of all other machines.",
			Proofs: slices.Concat(scenarios("rate-limited"),
				tests("test/e2e.TestWaysOfClouds")),
		},
		{
			Reference: "aws/karpenter-provider-aws#5578", Theme: Quota,
			Title: "Claims were made and deleted in a loop while there was no capacity",
			Happened: "No instance type that was asked for was available. Each claim failed at its launch, was deleted, " +
				"and was made anew 15 seconds later, for as long as the lack lasted.",
			Here: "The Machine stays and asks again after a wait that grows from one to ten minutes. A cloud that " +
				"accepts an instance and fails it later for lack of capacity is handled the same way.",
			Proofs: slices.Concat(scenarios("quota-full"),
				tests("providers/openstack/e2e.TestAFlavorThatFitsNoHost")),
		},
		{
			Reference: "kubernetes-sigs/karpenter#2072", Theme: Nodes,
			Title: "A claim stayed after its Node was deleted during a restart",
			Happened: "The controller was scaled to zero, a Node was deleted by force, and the controller was started " +
				"again. It reported that the claim had no node, and did nothing about it.",
			Here: "A process compares what is there when it begins. A machine whose Node is gone is Unhealthy and is " +
				"replaced by the health policy.",
			Proofs: scenarios("node-deleted-while-away"),
		},
		{
			Reference: "aws/karpenter-provider-aws#5373", Theme: Upgrades,
			Title: "An upgrade of the controller replaced every node",
			Happened: "After an upgrade of the controller all nodes of two production clusters counted as drifted and " +
				"were replaced, although nobody had changed what nodes should be. The hash of the specification had " +
				"changed with the version of the software.",
			Here: "What rolls is a change of the template by a person. An upgrade writes to no Machine, and a test " +
				"with a thousand machines counts that.",
			Proofs: tests("test/install.TestUpgradeOverManyMachines",
				"test/install.TestInstallUpgradeUninstall"),
		},
		{
			Reference: "aws/karpenter-provider-aws#6870", Theme: Upgrades,
			Title: "An uninstallation removed the controller before its nodes",
			Happened: "Helm removed the pods of the controller first. Claims and nodes stayed with finalizers that nobody " +
				"was there to remove. Users asked that the nodes be drained first, while the controller is still there.",
			Here: "An uninstallation leaves instances, Machines and their kinds as they are, and the next " +
				"installation takes them over. Machines go when somebody deletes them, before or after.",
			Proofs: tests("test/install.TestInstallUpgradeUninstall"),
		},
		{
			Reference: "kubernetes-sigs/karpenter#1886", Theme: Upgrades,
			Title: "A kind that was left behind stopped garbage collection in the whole cluster",
			Happened: "A version of the controller was uninstalled, and its kinds stayed. They named a version that " +
				"nothing could convert any more. The garbage collector of the cluster could not list them, and " +
				"stopped deleting anything, also replica sets and pods of others.",
			Here: "The kinds have one version and no conversion webhook: whatever is uninstalled, they can be listed. " +
				"Their deletion by accident is refused, because it would take the machines along.",
			Proofs: tests("test/e2e.TestAttackDeletedCRDsAreRefused",
				"test/install.TestInstallUpgradeUninstall"),
		},
	}
}
