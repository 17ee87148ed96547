package incidents

import "slices"

// clusterAPIProviders are incidents of the infrastructure providers of Cluster API.
func clusterAPIProviders() []Incident {
	return []Incident{
		{
			Reference: "kubernetes-sigs/cluster-api-provider-aws#1351", Theme: LeakedInstances,
			Title: "Two instances were made for one machine within a second",
			Happened: "The controller looked for an instance by its tags, found none and made one. A second " +
				"later it looked again, the cloud did not show the first one yet, and a second instance was made " +
				"for the same machine.",
			Here: "The token of a creation is the machine's UID and the attempt, so that asking twice makes one. " +
				"The world's cloud shows instances by tag up to a minute late.",
			Proofs: scenarios("create"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api-provider-aws#5794", Theme: LeakedInstances,
			Title: "A crash after each creation made one more instance each time",
			Happened: "The process panicked right after it had asked for an instance and before it had written " +
				"the ID down. After each restart it asked again. The machine knew of the last instance only; the " +
				"others ran on.",
			Here: "What carries the machine's UID is adopted, and a retry has the same token. The world ends the " +
				"provider after each call; the test kills a real one in the middle of creations.",
			Proofs: slices.Concat(scenarios("scale-up"),
				tests("test/e2e.TestKillingTheProviderNeitherLeaksNorDoubles")),
		},
		{
			Reference: "kubernetes-sigs/cluster-api-provider-aws#6131", Theme: LeakedInstances,
			Title: "A conflict of the last patch lost the ID of an instance",
			Happened: "The ID of a new instance was written by a patch at the end of the pass. When that had a " +
				"conflict the ID was lost. The next pass searched by tags, which the cloud showed late, and made " +
				"a second instance.",
			Here: "The ID is the first write after the call. Where that fails, the next pass asks with the same " +
				"token. The world answers each of these writes with a conflict.",
			Proofs: scenarios("create", "incident-webhook-down"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api-provider-aws#2915", Theme: LeakedInstances,
			Title: "A second instance for a machine whose instance was healthy",
			Happened: "In a cluster that worked, a machine with a healthy instance got a second one. A read had " +
				"answered that the instance does not exist, and the controller made what seemed to be missing.",
			Here: "An instance is never made again for a machine that has one recorded: one that is gone for " +
				"sure makes the machine Failed. And one NotFound is not sure.",
			Proofs: scenarios("cloud-forgets"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api-provider-aws#1368", Theme: Stampedes,
			Title: "A deleted instance was made again until the limit was hit",
			Happened: "Somebody deleted an instance in the console. The provider made new ones for the same " +
				"machine, again and again, until the account's limit of instances was reached.",
			Here: "A machine whose instance vanished is Failed and replaced, once. A replacement that vanishes " +
				"as well waits, from 10 seconds to 30 minutes.",
			Proofs: scenarios("churn", "incident-two-of-three-vanish"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api-provider-openstack#1404", Theme: LeakedInstances,
			Title: "Ports leaked with each server that found no host",
			Happened: "The cloud had no host for another server. Each try made a port first, the server failed, " +
				"the server was removed and its port was not. Ports piled up until their quota was used up.",
			Here: "Parts carry the machine's tags and go with it, and what a killed process left is collected. " +
				"The test uses a real OpenStack.",
			Proofs: tests("providers/openstack/e2e.TestAFlavorThatFitsNoHost",
				"providers/openstack/e2e.TestPartsThatAKilledProviderLeft"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api-provider-openstack#190", Theme: Rollouts,
			Title: "An update took the old server for the new one",
			Happened: "An update deleted the old server and made a new one at once. The old one was still there, " +
				"so that the creation was skipped because the server exists already. A moment later there was " +
				"none.",
			Here: "A replacement in place deletes until the instance is gone, writes that down and only then " +
				"begins the next attempt. What the cloud still shows of the old one is not taken for the new " +
				"one.",
			Proofs: scenarios("replace"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api-provider-vsphere#2781", Theme: Certificates,
			Title: "Nothing was reconciled after the session had expired",
			Happened: "24 hours after an upgrade the session with the cloud expired and was not made anew. No " +
				"machine was reconciled any more, and going back to earlier versions did not help.",
			Here: "Refused credentials are tried again within minutes, with what the Secret has then. In the " +
				"test a real identity service takes tokens and credentials back.",
			Proofs: tests("providers/openstack/e2e.TestKeystoneTakesTokensAndCredentialsBack"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api-provider-azure#519", Theme: Quota,
			Title: "Machines without quota were tried for ever, and it did not show",
			Happened: "A region had not enough quota. The controller asked again and again, for each machine " +
				"that was wanted, and the objects did not say that the quota was the reason.",
			Here: "The machine says InsufficientResources with the cloud's words, is tried from 1 to 10 minutes " +
				"apart, and goes on by itself when the quota is raised.",
			Proofs: slices.Concat(scenarios("quota-full"), tests("providers/openstack/e2e.TestAQuotaIsUsedUpAndFreed")),
		},
		{
			Reference: "kubernetes-sigs/cluster-api-provider-ibmcloud#1862", Theme: DeletedFleets,
			Title: "A health check deleted machines as soon as they were up",
			Happened: "Under a health check machines were marked unhealthy and deleted when they had just come " +
				"up, in the clusters of the provider's own tests, which had yet to get health checks.",
			Here: "Only a node that is not well for the whole timeout is marked, counted from when this process " +
				"could see it. Clocks of the two processes may differ by minutes.",
			Proofs: scenarios("remediate", "clocks-differ"),
		},
	}
}
