package incidents

import "slices"

func clusterAPI() []Incident { return slices.Concat(clusterAPICore(), clusterAPIProviders()) }

func clusterAPICore() []Incident {
	return []Incident{
		{
			Reference: "kubernetes-sigs/cluster-api#3770", Theme: DeletedFleets,
			Title: "A restored machine set created new machines and deleted the old ones",
			Report: "A management cluster was rebuilt and restored from a backup. Five of nine machines were " +
				"adopted. For each of two sets with two machines, the controller created two new machines before it " +
				"adopted the existing ones. It then found a surplus, and deleted the two old machines of each set.",
			Behavior: "When a MachineSet bases its decision on a live list, it adopts machines from that list before it " +
				"creates any. An earlier version did not do this: its cache still showed the old owner, and it " +
				"created one machine. This is fixed.",
			Proofs: slices.Concat(scenarios("incident-restored-without-owners"),
				tests("test/e2e.TestFleetIsRestoredAfterLossOfControlCluster")),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#5957", Theme: DeletedFleets,
			Title: "Worker nodes were lost after a restore from a backup",
			Report: "A management cluster was deleted, created again and restored. Afterwards, a workload cluster " +
				"of three machine deployments had fewer workers than before. A set that one deployment had created " +
				"had another deployment as its owner, and the machines of the set were deleted.",
			Behavior: "A MachineDeployment adopts a MachineSet again only if its labels match and it has no owner, even " +
				"if only a live list shows the MachineSet. In an earlier version, a MachineDeployment treated the " +
				"name of such a MachineSet as a collision, and rolled the whole fleet to another MachineSet. This is " +
				"fixed.",
			Proofs: scenarios("incident-restored-without-owners"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#14217", Theme: Stampedes,
			Title: "A machine set created machines without limit when their labels changed",
			Report: "Another client changed the labels of machines that a set owned, so they no longer matched the " +
				"selector of the set. The set counted only matching machines, found too few at each reconcile, and " +
				"continued to create more. Nothing limited the total.",
			Behavior: "A MachineSet releases a machine that no longer matches, and marks it with an annotation. Until " +
				"its deletion, the machine counts towards the ceiling of the MachineSet. In an earlier version, " +
				"released machines did not count. A policy that rewrote labels then made a set with 4 replicas " +
				"create machines without end.",
			Proofs: scenarios("incident-policy-relabels"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#12156", Theme: Stampedes,
			Title: "A selector that never matches created machines without end",
			Report: "A machine set selected machines by a label for its own name, but with a value that was not " +
				"its name. The controller labelled each machine with the real name of the set, so no machine matched " +
				"the selector. The controller did not find its children, and created another machine in each pass, " +
				"without end.",
			Behavior: "A MachineSet whose template does not match its own selector creates nothing and reports " +
				"InvalidSelector. Machines whose labels are overwritten after their creation count towards the " +
				"ceiling of their MachineSet.",
			Proofs: slices.Concat(scenarios("incident-policy-relabels"), tests("test/e2e.TestBadInputIsRefusedOrHarmless")),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#13649", Theme: StaleCaches,
			Title: "A stale cache gave one deployment three machine sets",
			Report: "A controller waited until its cache showed the machine set that it had just created. When " +
				"that wait timed out, the next pass did not find the set and created another one. A deployment with " +
				"two replicas got three sets. Two of the three sets had machines at the same time.",
			Behavior: "After a write, a controller does not wait for its cache. The controller uses its cache if the " +
				"cache is known to be recent enough, and otherwise reads a live list. The name of a MachineSet is " +
				"derived from its template, so a second MachineSet for the same template cannot be created.",
			Proofs: scenarios("roll", "rollback"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#6299", Theme: DeletedFleets,
			Title: "Scaling down by one deleted all machines that were being created",
			Report: "With the delete policy Oldest or Newest, a deployment was scaled up by two or more. The " +
				"deployment was scaled down by one while the new machines were provisioned. Machines without a node " +
				"had the same priority as machines that were already being deleted. Therefore, each pass chose " +
				"another machine to delete, until all new machines were gone.",
			Behavior: "Machines that are being deleted do not count as live and are not chosen for deletion. With any " +
				"delete policy, if the replicas are lowered by one, one machine is deleted, and no machine is " +
				"created in its place.",
			Proofs: scenarios("incident-scaled-back-at-once"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#340", Theme: Quota,
			Title: "A rollout ran far more instances than its surge",
			Report: "A deployment did not count machines that were being deleted. In a rollout of three machines " +
				"with a surge of one, a new machine was created as soon as the deletion of an old one began. When " +
				"deletions took long, five or more machines existed at the same time.",
			Behavior: "The surge limits the number of live machines. No more than `maxSurge` + `maxUnavailable` machines " +
				"may be in deletion at the same time. The scenario counts all instances, including those that drain " +
				"slowly.",
			Proofs: scenarios("incident-slow-drains-in-a-roll"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#2446", Theme: Rollouts,
			Title: "A rollout stopped because no old machine was available",
			Report: "All machines of a deployment were unavailable when its template changed. The controller " +
				"created the one machine that the surge allows, and then waited for availability that could never be " +
				"reached. The deployment stayed at four machines, one of them new.",
			Behavior: "Unhealthy machines of an old revision are deleted first, because this costs no availability. A " +
				"rollout therefore finishes even if no node of the fleet reports.",
			Proofs: scenarios("incident-roll-of-silent-nodes"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#8987", Theme: Rollouts,
			Title: "A rollout in percent deleted one old machine and then failed",
			Report: "Three machines were rolled with a surge of 35 percent. Two new machines were created and " +
				"became ready. The controller deleted one old machine. Then it reported for hours that it had " +
				"received an invalid request to scale the old set down from two to three.",
			Behavior: "Percentages are resolved once, in one place, and the plan depends only on the current state. The " +
				"scenario rolls three machines with this surge while the manager is restarted with stale lists, and " +
				"counts the machines.",
			Proofs: scenarios("incident-roll-in-percent"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#12990", Theme: Rollouts,
			Title: "A change of replicas rolled all nodes of a deployment",
			Report: "A deployment was scaled. Only the number of replicas changed, which is not part of the " +
				"template of the machines. Nevertheless, a rolling update replaced all nodes of the deployment.",
			Behavior: "A rollout starts only if the provider, providerSpec, class, version or user data changes, or when " +
				"the time in `rolloutAfter` is reached. If the same value is written in another notation, this is " +
				"not a change. The test scales a fleet of a thousand machines during and after upgrades. The test " +
				"counts all instances that were ever created. There must be exactly one instance for each machine.",
			Proofs: tests("test/install.TestUpgradeOverManyMachines"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#9629", Theme: StaleCaches,
			Title: "A restarted controller created machines for a cluster being deleted",
			Report: "A cluster was deleted while the controller was down. When the controller was back, its " +
				"machine sets saw fewer machines than they wanted. The sets created new machines, which were " +
				"provisioned while the rest of the cluster was being deleted.",
			Behavior: "A MachineSet that is being deleted creates nothing, and the first decision after a start uses a " +
				"live list. The scenario deletes a MachineDeployment, in the foreground or background, while the " +
				"manager is down. The manager then starts with lists that lack up to fourteen changes.",
			Proofs: scenarios("incident-deleted-while-manager-is-down", "namespace-deleted-in-a-roll"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#7353", Theme: Stampedes,
			Title: "A health check deleted and replaced machines in an endless loop",
			Report: "The network of the first worker of a new cluster was disconnected. The health check replaced " +
				"the worker. It then began to delete and replace all machines of the cluster repeatedly, although " +
				"the others worked.",
			Behavior: "A health check replaces a machine only because of the machine's own node. After each failed " +
				"replacement the wait grows, and old machines stay. In the scenario, a rollout changes to an image " +
				"whose nodes are never ready, for most of an hour, while a health check selects the machines. The " +
				"old machines stay, a few new ones are created, and the MachineDeployment reports that the revision " +
				"fails.",
			Proofs: scenarios("incident-image-never-ready", "remediate"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#3419", Theme: Nodes,
			Title: "The deletion of a Node object replaced its machine at once",
			Report: "The Node of a healthy machine under a health check was deleted. The machine was deleted and " +
				"replaced at once, although the kubelet would have registered the Node again.",
			Behavior: "A running kubelet does not register again, so a machine whose Node was deleted is replaced at " +
				"once. A machine that is paused, preserved or exempt from remediation stays, and uses the Node that " +
				"its kubelet registers after a restart. If many Nodes are deleted, the replacements stop at " +
				"`maxUnhealthy`.",
			Proofs: scenarios("incident-node-deleted"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#11032", Theme: Nodes,
			Title: "A node that joined during the deletion remained forever",
			Report: "A machine did not become a node in time and was deleted. While the cloud removed the " +
				"instance, the node joined. The machine had no reference to the Node. The machine and the instance " +
				"were removed, but the Node remained in the cluster.",
			Behavior: "Until the instance is gone, each pass of a deletion looks for the Node again, with a live read. " +
				"The Node is deleted after that. In the scenario, kubelets continue to run and register while their " +
				"instances are being removed.",
			Proofs: scenarios("incident-joins-while-it-goes"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#7412", Theme: Nodes,
			Title: "The Node remained when a machine was deleted before its ID was known",
			Report: "A machine was deleted at the moment in which its infrastructure reported the provider ID and " +
				"the node came up. The machine had not copied the ID yet. Its Node was not found and not deleted.",
			Behavior: "The provider ID is written before anything else. A deletion first looks up the instance in the " +
				"cloud by the UID of the machine. The provider then looks up the Node by ID and by name.",
			Proofs: scenarios("create-then-delete", "incident-joins-while-it-goes"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#13508", Theme: StuckDrains,
			Title: "Budgets blocked the drain of an unreachable node forever",
			Report: "An instance was stopped. Its pods could not end, and their disruption budgets had no healthy " +
				"pod, so each eviction was refused. Without a drain timeout, the deletion of the machine never ended.",
			Behavior: "Every drain has a deadline. Pods that a stopped kubelet cannot end do not delay the drain. In the " +
				"scenario incident-silent-node-under-budgets, a silent node has a volume and pods whose eviction no " +
				"budget allows. The machine of this node is deleted within the machine's timeouts.",
			Proofs: scenarios("incident-silent-node-under-budgets", "drain-never-allowed"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#2998", Theme: StuckDrains,
			Title: "A machine whose kubelet was stopped was never deleted",
			Report: "A health check replaced a machine whose kubelet had stopped. The new machine was created, but " +
				"the old one was never removed. The drain waited for pods that only the stopped kubelet could end.",
			Behavior: "On a node that does not report, terminating pods count as gone, and the provider deletes the " +
				"instance. Only then does the Node get the out-of-service taint, so that its volumes can move.",
			Proofs: scenarios("drain-silent-node"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#5483", Theme: LeakedInstances,
			Title: "Infrastructure machines were orphaned when the cluster was deleted between two writes",
			Report: "The controller created the infrastructure object first, and then the machine. When the " +
				"cluster was deleted in between, the infrastructure object had no owner yet and was not notified. " +
				"The deletion of the cluster did not finish.",
			Behavior: "There is one object for each machine. This object exists, with its finalizer, before the provider " +
				"asks the cloud for anything. A deletion at any moment of a creation leaves nothing behind.",
			Proofs: scenarios("create-then-delete", "namespace-deleted-at-creation"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#913", Theme: BadInput,
			Title: "One invalid machine set prevented the scaling of all others",
			Report: "A machine set was created with a label whose value was a boolean. The controller could no " +
				"longer read the list of machine sets. No set was scaled until the invalid one was removed.",
			Behavior: "The schema refuses a label that is not a string. The test disables all other validation, and " +
				"stores all other invalid objects that the schema admits. Another fleet is still scaled and rolled " +
				"out.",
			Proofs: tests("test/e2e.TestBadInputIsRefusedOrHarmless"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#10522", Theme: Webhooks,
			Title: "Each rotation of a certificate made webhooks unavailable for a minute",
			Report: "When the certificate of webhooks was renewed, the API server trusted the new certificate " +
				"before the process served it. For up to ninety seconds, each write that calls the webhook failed, " +
				"and an upgrade failed with it.",
			Behavior: "Refused writes are retried with growing delays, and nothing is created twice. In the scenario, a " +
				"webhook of another system is down for up to 12 minutes during changes. The webhooks of Machinist " +
				"lose no request while their certificate is replaced.",
			Proofs: slices.Concat(scenarios("incident-webhook-down"),
				tests("test/e2e.TestNoAdmissionRequestIsLost")),
		},
	}
}
