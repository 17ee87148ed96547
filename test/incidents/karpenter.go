package incidents

import "slices"

func karpenter() []Incident {
	return []Incident{
		{
			Reference: "kubernetes-sigs/karpenter#1100", Theme: DeletedFleets,
			Title: "One wrong NotFound of a cloud deletes an instance",
			Report: "When a cloud answers that an instance does not exist, its node claim is deleted. A maintainer " +
				"explained that a cloud with inconsistent answers would cause the termination of instances whose " +
				"nodes are healthy. The maintainer asked for a check that the node has stopped reporting.",
			Behavior: "While the Node of the machine is Ready, a NotFound has no consequence. If the Node is not Ready, " +
				"two reads must answer NotFound, and the cloud must show the instance of another machine of the " +
				"class whose Node is Ready. If the cloud answers NotFound for that instance too, the provider " +
				"ignores these answers and records an event.",
			Proofs: scenarios("cloud-forgets"),
		},
		{
			Reference: "aws/karpenter-provider-aws#3979", Theme: DeletedFleets,
			Title: "Drift removed all nodes although no new node joined",
			Report: "An image was changed to one whose nodes cannot join. The replacement of drifted nodes " +
				"launched a new node, waited ten minutes for it, removed the old node and continued with the next " +
				"one, until the cluster had no healthy node.",
			Behavior: "An old machine is deleted only when enough other machines are available. If the new machines " +
				"never join, the rollout stops and the old fleet stays complete. Failed machines are replaced one at " +
				"a time, and the MachineDeployment reports RevisionFailing.",
			Proofs: scenarios("rollout-never-joins"),
		},
		{
			Reference: "aws/karpenter-provider-aws#549", Theme: LeakedInstances,
			Title: "A tenth of the instances leaked after a burst of 1000 pods",
			Report: "A test scaled up to 1000 pods and back, with a short time to live. About ten percent of the " +
				"instances remained in the cloud. The instances had been created, but their Node objects had not, so " +
				"nothing in the cluster referred to them.",
			Behavior: "The Machine exists before its instance, and it remains until the instance is gone. The test " +
				"deletes a fleet while most of its creations are under way, in a cloud that loses answers. No " +
				"instance remains.",
			Proofs: slices.Concat(scenarios("burst-cancelled"),
				tests("test/e2e.TestKilledProviderLeavesOneInstancePerMachine")),
		},
		{
			Reference: "aws/karpenter-provider-aws#7684", Theme: LeakedInstances,
			Title: "A node claim was gone while its instance was still shutting down",
			Report: "The controller called the cloud once to terminate an instance, and considered the instance " +
				"terminated. Because the cloud is eventually consistent, the instance could still exist when its " +
				"claim was removed.",
			Behavior: "The Machine waits until the cloud reports that the instance is gone. If the cloud did not accept " +
				"the deletion in an earlier call, the provider confirms the answer with another read.",
			Proofs: slices.Concat(scenarios("scale-down", "delete"),
				tests("test/e2e.TestFleetWorksWithCloudSemantics")),
		},
		{
			Reference: "kubernetes-sigs/karpenter#1776", Theme: StuckDrains,
			Title: "A disruption budget blocked a termination that had a deadline",
			Report: "Nodes had a termination grace period, after which pods may be deleted despite their " +
				"disruption budgets. Users saw nodes that remained in termination long after this period, with a " +
				"budget as the reason.",
			Behavior: "Budgets hold until the deadline minus the grace period of a pod. Then the provider deletes the " +
				"pods with the remaining part of their grace period, and deletes the instance at the deadline.",
			Proofs: scenarios("drain-never-allowed", "drain-long-grace"),
		},
		{
			Reference: "aws/karpenter-provider-aws#8629", Theme: StuckDrains,
			Title: "Nodes that became silent while they were disrupted remained for days",
			Report: "When a maintenance window began, some nodes that were being replaced stopped reporting. Their " +
				"pods remained in Terminating or seemed to run. For hours or days, the nodes were neither drained " +
				"nor removed, until they were deleted manually.",
			Behavior: "A node that becomes silent during its drain needs no manual action. Its terminating pods count as " +
				"gone, the provider deletes its instance, and its volumes are detached by force.",
			Proofs: scenarios("drain-silent-node", "remediate"),
		},
		{
			Reference: "kubernetes-sigs/karpenter#1121", Theme: StuckDrains,
			Title: "A blocked drain prevented the creation of new nodes",
			Report: "Disruption budgets blocked the drains of a few nodes. At the same time, more than 80 pods " +
				"were pending. No new node was created for the pending pods until the budgets were changed.",
			Behavior: "Drains have their own workers and delay no other work. The test runs two hundred blocked drains " +
				"while a fleet grows.",
			Proofs: tests("test/e2e.TestBlockedDrainsDoNotDelayCreation"),
		},
		{
			Reference: "kubernetes-sigs/karpenter#1294", Theme: StuckDrains,
			Title: "Stateful pods waited six minutes for their volumes",
			Report: "A node was terminated when its pods had ended, but before their volumes were unmounted and " +
				"detached. Kubernetes could not know that it was safe to attach the volumes to other nodes. Stateful " +
				"pods waited more than six minutes on their new nodes.",
			Behavior: "The provider deletes an instance after the VolumeAttachments of the drained pods are gone, and at " +
				"the latest when the volume timeout has passed.",
			Proofs: scenarios("drain-same-names", "drain-stuck-volume", "interrupted"),
		},
		{
			Reference: "aws/karpenter-provider-aws#2831", Theme: StuckDeletions,
			Title: "A node in the middle of its drain was orphaned by the deletion of its owner",
			Report: "A node was being drained when its provisioner was deleted. The drain stopped and the " +
				"finalizer was not removed. The node remained in deletion until an administrator removed the " +
				"finalizer.",
			Behavior: "The deletion of a Machine depends only on the Machine itself, so users can delete the owner of " +
				"the Machine at any time.",
			Proofs: scenarios("delete-while-draining", "namespace-deleted-in-a-roll"),
		},
		{
			Reference: "kubernetes-sigs/karpenter#2169", Theme: StuckDeletions,
			Title: "Claims kept their finalizer for a week, and no log named them",
			Report: "Node claims had been marked for deletion for more than a week. Their nodes had only pods of " +
				"DaemonSets, but the finalizer of the claims was not removed. Even the debug log of the controller " +
				"did not mention the claims.",
			Behavior: "The condition Deleting of a Machine reports which step the deletion waits for, and since when. If " +
				"a deletion takes long, an alert fires. `machinist why` names a solution.",
			Proofs: tests("test/e2e.TestWhyAdviceWorks",
				"test/e2e.TestFleetAlertsFireOnlyForTheirCause"),
		},
		{
			Reference: "aws/karpenter-provider-aws#2011", Theme: Stampedes,
			Title: "One pending pod created new nodes without end",
			Report: "A deployment with one replica, a node selector and a toleration should have led to one node. " +
				"Instead, nodes were launched one after another without end. The maintainers gave the report their " +
				"label for urgent bugs.",
			Behavior: "Machinist creates as many machines as replicas require. A ceiling limits the number of machines, " +
				"and owners with a surplus are frozen. Machines that never join are replaced slowly, one at a time.",
			Proofs: slices.Concat(scenarios("rollout-never-joins", "overshoot"),
				tests("test/e2e.TestOvershootFreezesOwners")),
		},
		{
			Reference: "kubernetes-sigs/karpenter#2183", Theme: ClocksAndZones,
			Title: "Nodes were replaced outside of the maintenance window",
			Report: "A user wanted nodes to be replaced only on Monday nights, and wrote a budget with a schedule " +
				"for this purpose. A new image was published on a Thursday morning, and nodes were replaced at once, " +
				"because a budget of Karpenter has no effect outside of its schedule.",
			Behavior: "The windows of a disruption budget, in their own time zone, define when the budget is in force. A " +
				"budget with `apply: Outside` is in force outside of its windows, so it can forbid disruptions at " +
				"those times. `machinist why` names the budget that blocks a disruption, and the time when that " +
				"changes.",
			Proofs: slices.Concat(scenarios("budget-windows", "budgets-overlap"),
				tests("test/e2e.TestDisruptionStaysWithinBudgets")),
		},
		{
			Reference: "aws/karpenter-provider-aws#2876", Theme: Webhooks,
			Title: "After an upgrade the API server did not trust the webhook",
			Report: "After an upgrade, the webhook served a certificate that was not signed by the authority in " +
				"its configuration. The API server refused each write of the affected objects with \"certificate " +
				"signed by unknown authority\".",
			Behavior: "The processes manage the certificate and its authority, in one Secret for all replicas. API " +
				"servers trust a new authority before this authority signs certificates, and no request is lost " +
				"during the replacement.",
			Proofs: tests("test/e2e.TestNoAdmissionRequestIsLost"),
		},
		{
			Reference: "kubernetes-sigs/karpenter#2104", Theme: Quota,
			Title: "Reads used up the rate limit of the cloud, and nodes were scaled down",
			Report: "Ten to twenty minutes after a migration, read-only calls had used up the retry quota of the " +
				"cloud client. Launches failed because of this, and nodes were scaled down.",
			Behavior: "A settled machine makes no calls to the cloud. Each machine whose calls are refused waits longer " +
				"after each failure, with jitter.",
			Proofs: slices.Concat(scenarios("rate-limited"),
				tests("test/e2e.TestFleetWorksWithCloudSemantics")),
		},
		{
			Reference: "aws/karpenter-provider-aws#5578", Theme: Quota,
			Title: "Claims were created and deleted in a loop while there was no capacity",
			Report: "None of the requested instance types was available. Each claim failed at its launch and was " +
				"deleted. A new claim was created 15 seconds later. This continued for as long as the capacity was " +
				"missing.",
			Behavior: "The Machine stays, and the provider tries again after a wait that grows from one to ten minutes. " +
				"The provider does the same if a cloud accepts the request for an instance, and the instance fails " +
				"later because the capacity is missing.",
			Proofs: slices.Concat(scenarios("quota-full"),
				tests("providers/openstack/e2e.TestFleetSurvivesFlavorThatFitsNoHost")),
		},
		{
			Reference: "kubernetes-sigs/karpenter#2072", Theme: Nodes,
			Title: "A claim remained after its Node was deleted during a restart",
			Report: "The controller was scaled to zero, a Node was deleted by force, and the controller was " +
				"started again. It reported that the claim had no node, but took no action.",
			Behavior: "When a process starts, it compares the recorded state with the actual state. A machine whose Node " +
				"is gone becomes Unhealthy, and the health policy requests its replacement.",
			Proofs: scenarios("node-deleted-while-away"),
		},
		{
			Reference: "aws/karpenter-provider-aws#5373", Theme: Upgrades,
			Title: "An upgrade of the controller replaced every node",
			Report: "After an upgrade of the controller, all nodes of two production clusters counted as drifted " +
				"and were replaced, although their specification had not been changed. The hash of the specification " +
				"depended on the version of the software.",
			Behavior: "Only a change of the template by a user starts a rollout. An upgrade does not write to any " +
				"Machine. In a test, an installation with a thousand machines is upgraded, and the writes are counted.",
			Proofs: tests("test/install.TestUpgradeOverManyMachines",
				"test/install.TestInstallUpgradeUninstall"),
		},
		{
			Reference: "aws/karpenter-provider-aws#6870", Theme: Upgrades,
			Title: "An uninstallation removed the controller before its nodes",
			Report: "Helm removed the pods of the controller first. The claims and nodes remained with finalizers, " +
				"and no controller was left to remove them. Users asked that the nodes be drained first, while the " +
				"controller still exists.",
			Behavior: "An uninstallation leaves the instances, the Machines and their CustomResourceDefinitions in " +
				"place, and the next installation continues to manage them. Machines are deleted only when a user " +
				"deletes them, before or after the uninstallation.",
			Proofs: tests("test/install.TestInstallUpgradeUninstall"),
		},
		{
			Reference: "kubernetes-sigs/karpenter#1886", Theme: Upgrades,
			Title: "A leftover CRD stopped garbage collection in the whole cluster",
			Report: "A version of the controller was uninstalled, but its CustomResourceDefinitions remained. " +
				"These definitions contained a version that no webhook could convert any more. The garbage collector " +
				"of the cluster could not list these objects. Therefore, the garbage collector deleted no objects at " +
				"all any more, not even ReplicaSets and pods of other applications.",
			Behavior: "The CustomResourceDefinitions have one version and no conversion webhook, so their objects can " +
				"always be listed, whatever is uninstalled. An admission policy refuses their accidental deletion, " +
				"because the deletion would also delete the machines.",
			Proofs: tests("test/e2e.TestAttackCRDDeletionIsRefused",
				"test/install.TestInstallUpgradeUninstall"),
		},
	}
}
