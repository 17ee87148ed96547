package incidents

import "slices"

// clusterAPI are incidents of Cluster API and its infrastructure providers.
func clusterAPI() []Incident { return slices.Concat(clusterAPICore(), clusterAPIProviders()) }

func clusterAPICore() []Incident {
	return []Incident{
		{
			Reference: "kubernetes-sigs/cluster-api#3770", Theme: DeletedFleets,
			Title: "A restored set made new machines and deleted the old ones",
			Happened: "A management cluster was rebuilt and restored from a backup. Five of nine machines were " +
				"adopted. For two sets of two machines the controller made two new ones each before it adopted " +
				"those that existed, found that there were too many, and removed the two old ones of each set.",
			Here: "A set that decides on a live list adopts from that list before it makes anything. When this " +
				"scenario was written it did not: the cache still showed the old owner, and one machine was " +
				"made. That is mended.",
			Proofs: slices.Concat(scenarios("incident-restored-without-owners"),
				tests("test/e2e.TestAFleetIsRestoredAfterItsControlClusterWasLost")),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#5957", Theme: DeletedFleets,
			Title: "Worker nodes were lost after a restore from a backup",
			Happened: "After a management cluster was deleted, made anew and restored, a workload cluster of " +
				"three machine deployments had fewer workers than before. A set that one deployment had made had " +
				"another deployment as its owner, and its machines were deleted.",
			Here: "A deployment takes a set back only if its labels match and nobody owns it. When this scenario " +
				"was written a deployment whose set had lost its owner took the name for a collision and rolled " +
				"the whole fleet to another set. It adopts the set now, also where only a live list shows it.",
			Proofs: scenarios("incident-restored-without-owners"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#14217", Theme: Stampedes,
			Title: "A set made machines without bound when their labels changed",
			Happened: "Machines that a set owns no longer matched its selector because something had changed " +
				"their labels. The set counted only what matches, found too few at each reconcile and went on to " +
				"make more. Nothing bounded the total.",
			Here: "What no longer matches is released and remembered by an annotation, and counts towards the " +
				"ceiling of the set until it is deleted. When this scenario was written it did not count, and a " +
				"policy that rewrites labels had a set of 4 make machines without end.",
			Proofs: scenarios("incident-policy-relabels"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#12156", Theme: Stampedes,
			Title: "A selector that never matches spawned machines for ever",
			Happened: "A machine set selected by a label that holds its own name, with a value that was not its " +
				"name. The controller wrote the right name into each machine, so that none matched. It did not " +
				"find its children and made another one in each pass, without end.",
			Here: "A set whose template does not match its own selector makes nothing and says InvalidSelector. " +
				"What is overwritten after that counts towards its ceiling.",
			Proofs: slices.Concat(scenarios("incident-policy-relabels"), tests("test/e2e.TestBadInputHarmsNobody")),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#13649", Theme: StaleCaches,
			Title: "A late cache gave one deployment three machine sets",
			Happened: "A controller waited for its cache to show the set that it had just made. When that wait " +
				"timed out the next pass did not find the set and made another one. Three sets came of one " +
				"deployment of two replicas, two of them with machines at the same time.",
			Here: "A pass after a write waits for nothing: it decides on a cache that is known to be new enough " +
				"or on a live list. The name of a set follows from its template, so that a second one cannot be " +
				"made.",
			Proofs: scenarios("roll", "rollback"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#6299", Theme: DeletedFleets,
			Title: "Scaling down by one deleted all machines that were being made",
			Happened: "With the delete policy Oldest or Newest a deployment was scaled up by two or more, and " +
				"down by one while the new machines were provisioned. Machines without a node had the same " +
				"priority as those being deleted already, so that each pass deleted others, until all new ones " +
				"were gone.",
			Here: "Machines that are being deleted are no candidates and do not count as live: one machine less " +
				"is one deletion, whatever the policy, and nothing is made again for it.",
			Proofs: scenarios("incident-scaled-back-at-once"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#340", Theme: Quota,
			Title: "A rollout ran far more instances than its surge",
			Happened: "A deployment did not count machines that are being deleted. In a rollout of three with a " +
				"surge of one a new machine was made as soon as an old one began to go. With deletions that take " +
				"long there were five machines and more at the same time.",
			Here: "The surge bounds live machines, and no more than maxSurge + maxUnavailable may be on their " +
				"way out at a time. The scenario counts instances, those that drain slowly included.",
			Proofs: scenarios("incident-slow-drains-in-a-roll"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#2446", Theme: Rollouts,
			Title: "A rollout stood still because no old machine was available",
			Happened: "All machines of a deployment were unavailable when its template changed. The controller " +
				"made the one machine that the surge allows and then waited for availability that could never " +
				"come. The deployment stayed at four machines, one of them new.",
			Here: "Unhealthy machines of an old revision go first and cost no availability, so that a fleet of " +
				"which no node reports is rolled to its end.",
			Proofs: scenarios("incident-roll-of-silent-nodes"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#8987", Theme: Rollouts,
			Title: "A rollout in percent deleted one old machine and then failed",
			Happened: "Three machines were rolled with a surge of 35 percent. Two new ones came and were ready. " +
				"The controller deleted one old machine and then reported for hours that it had got an invalid " +
				"request to scale the old set down from two to three.",
			Here: "Shares are resolved once, in one place, and the plan is a function of what there is. The " +
				"scenario rolls three machines with that surge while the manager is restarted from late lists, " +
				"and counts machines.",
			Proofs: scenarios("incident-roll-in-percent"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#12990", Theme: Rollouts,
			Title: "A change of replicas rolled all nodes of a deployment",
			Happened: "Somebody scaled a deployment. Nothing but the number of replicas was changed, which is in no " +
				"machine's template, and yet a rolling update replaced all nodes of the deployment.",
			Here: "Only provider, spec, class, version and user data roll, compared by what they mean. The test scales " +
				"a fleet of a thousand after and in the middle of upgrades, and counts the instances ever made: one " +
				"for each machine.",
			Proofs: tests("test/install.TestUpgradeOverManyMachines"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#9629", Theme: StaleCaches,
			Title: "A restarted controller made machines for a cluster being deleted",
			Happened: "A cluster was deleted while the controller was down. When it came back, its sets saw " +
				"fewer machines than they wanted and made new ones, which were provisioned while everything was " +
				"on its way out.",
			Here: "A set that is being deleted makes nothing, and the first decision after a start is made on a " +
				"live list. The scenario deletes a deployment, in foreground or background, while the manager is " +
				"dead, and starts it from lists that lack up to fourteen changes.",
			Proofs: scenarios("incident-deleted-while-manager-is-down", "namespace-deleted-in-a-roll"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#7353", Theme: Stampedes,
			Title: "A health check deleted and replaced machines in an endless loop",
			Happened: "The network of the first worker of a new cluster was taken away. The health check " +
				"replaced it, and then began to delete and replace all machines of the cluster, over and over, " +
				"although the others worked.",
			Here: "Only a machine whose own node is not well is replaced, a wait grows with each replacement " +
				"that fails, and old machines stay. The scenario rolls to an image whose nodes are never ready, " +
				"under a health check, for most of an hour: the old machines stay, a few new ones are " +
				"made, and the deployment says that the revision fails.",
			Proofs: scenarios("incident-image-never-ready", "remediate"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#3419", Theme: Nodes,
			Title: "Deleting a Node object replaced its machine at once",
			Happened: "Somebody deleted the Node of a healthy machine under a health check. The machine was " +
				"deleted and replaced right away, where the kubelet would have registered again.",
			Here: "A kubelet that runs does not register again, so a machine whose Node was deleted is replaced at " +
				"once. One that is paused, preserved or exempt from remediation stays, and takes the Node that its " +
				"kubelet registers after a restart. Nodes that are deleted in bulk stop at maxUnhealthy.",
			Proofs: scenarios("incident-node-deleted"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#11032", Theme: Nodes,
			Title: "A node that joined during the deletion stayed for ever",
			Happened: "A machine did not become a node in time and was deleted. While the cloud removed the " +
				"instance, the node joined after all. The machine had no reference to it, so that the machine " +
				"and the instance went and the Node stayed in the cluster.",
			Here: "Each pass of a deletion looks for the Node again, live, until the instance is gone, and " +
				"deletes it after that. In the scenario kubelets run on and register while their instances are " +
				"being removed.",
			Proofs: scenarios("incident-joins-while-it-goes"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#7412", Theme: Nodes,
			Title: "The Node stayed when a machine went before its ID was known",
			Happened: "A machine was deleted in the moment in which its infrastructure reported the provider ID " +
				"and the node came up. The machine had not taken over the ID yet, so that its Node was not found " +
				"and not deleted.",
			Here: "The provider ID is written before anything else, and a deletion finds out what was made, by " +
				"the machine's UID at the cloud, before it goes on. The Node is looked up by ID and by name.",
			Proofs: scenarios("create-then-delete", "incident-joins-while-it-goes"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#13508", Theme: StuckDrains,
			Title: "The drain of an unreachable node was blocked by budgets for ever",
			Happened: "An instance was stopped. Its pods could not end, and their disruption budgets had nobody " +
				"healthy, so that each eviction was refused. Without a drain timeout the machine was being " +
				"deleted for ever.",
			Here: "Every drain has a deadline, and pods that a dead kubelet cannot end do not hold it. In the " +
				"scenario a silent node has pods that no budget lets go and a volume, and its machine is gone " +
				"within the times that it has.",
			Proofs: scenarios("incident-silent-node-under-budgets", "drain-never-allowed"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#2998", Theme: StuckDrains,
			Title: "A machine whose kubelet was stopped was never deleted",
			Happened: "A health check replaced a machine whose kubelet had stopped. The new machine came, and " +
				"the old one was never removed: the drain waited for pods to end that no kubelet ended.",
			Here: "On a node that does not report, pods that are asked to end count as gone, and the instance is " +
				"removed. Only then the node is put out of service, so that volumes move.",
			Proofs: scenarios("drain-silent-node"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#5483", Theme: LeakedInstances,
			Title: "Infrastructure machines were orphaned by a deletion in a gap",
			Happened: "The controller made the infrastructure object first and the machine after it. When a " +
				"cluster was deleted in between, the infrastructure object had no owner yet, got no signal, and " +
				"the cluster's deletion hung.",
			Here: "There is one object per machine, and it is there, with its finalizer, before the cloud is " +
				"asked for anything. Deletion at each moment of a creation leaves nothing.",
			Proofs: scenarios("create-then-delete", "namespace-deleted-at-creation"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#913", Theme: BadInput,
			Title: "One bad machine set kept all others from scaling",
			Happened: "A machine set was made with a label whose value was a boolean. The controller could not " +
				"read the list any more, and no set was scaled until somebody removed the bad one.",
			Here: "The schema refuses a label that is no text. The test stores whatever else the schema admits, " +
				"with all other validation switched off, and has a fleet beside it scaled and rolled.",
			Proofs: tests("test/e2e.TestBadInputHarmsNobody"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api#10522", Theme: Webhooks,
			Title: "Each rotation of a certificate left webhooks down for a minute",
			Happened: "When a certificate of webhooks was renewed, the API server trusted the new one before the " +
				"process served it. For up to ninety seconds each write that the webhook must see failed, and an " +
				"upgrade with it.",
			Here: "Writes that are refused are tried again ever more slowly, and nothing is made twice. The " +
				"scenario has a webhook of another system down for up to 12 minutes in the middle of changes. " +
				"Machinist's own ones lose no request while their certificate is exchanged.",
			Proofs: slices.Concat(scenarios("incident-webhook-down"),
				tests("test/e2e.TestNoRequestForAdmissionIsLost")),
		},
	}
}
