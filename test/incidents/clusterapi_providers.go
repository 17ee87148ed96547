package incidents

import "slices"

func clusterAPIProviders() []Incident {
	return []Incident{
		{
			Reference: "kubernetes-sigs/cluster-api-provider-aws#1351", Theme: LeakedInstances,
			Title: "Two instances were created for one machine within a second",
			Report: "The controller looked for an instance by its tags, found none and created one. A second later " +
				"it looked again. The cloud did not show the first instance yet, and the controller created a second " +
				"instance for the same machine.",
			Behavior: "The token of a creation consists of the UID of the machine and the attempt, so a repeated request " +
				"creates only one instance. In the simulation, lookups by tag show instances up to a minute late.",
			Proofs: scenarios("create"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api-provider-aws#5794", Theme: LeakedInstances,
			Title: "A crash after each creation created one more instance each time",
			Report: "The process panicked right after it had requested an instance and before it had recorded the " +
				"ID. After each restart, the process requested another instance. The machine knew only the last " +
				"instance. The others continued to run.",
			Behavior: "The provider adopts an instance that carries the UID of the machine, and a retry uses the same " +
				"token. The simulation stops the provider after each call. The test kills a real provider in the " +
				"middle of creations.",
			Proofs: slices.Concat(scenarios("scale-up"),
				tests("test/e2e.TestKilledProviderLeavesOneInstancePerMachine")),
		},
		{
			Reference: "kubernetes-sigs/cluster-api-provider-aws#6131", Theme: LeakedInstances,
			Title: "A conflict of the last patch lost the ID of an instance",
			Report: "The ID of a new instance was written by a patch at the end of the pass. When this patch had a " +
				"conflict, the ID was lost. The next pass searched by tags, which the cloud showed late, and created " +
				"a second instance.",
			Behavior: "The first write after the call records the ID. If this write fails, the next pass repeats the " +
				"request with the same token. The simulation answers each of these writes with a conflict.",
			Proofs: scenarios("create", "incident-webhook-down"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api-provider-aws#2915", Theme: LeakedInstances,
			Title: "A second instance for a machine whose instance was healthy",
			Report: "In a working cluster, a machine with a healthy instance got a second instance. A read had " +
				"answered that the instance did not exist, so the controller created the instance that seemed to be " +
				"missing.",
			Behavior: "The provider never creates another instance for a machine that has one recorded. If the instance " +
				"is certainly gone, the machine is Failed. A single NotFound is not sufficient.",
			Proofs: scenarios("cloud-forgets"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api-provider-aws#1368", Theme: Stampedes,
			Title: "A deleted instance was created again until the limit was reached",
			Report: "An instance was deleted in the console of the cloud. The provider repeatedly created new " +
				"instances for the same machine, until the account had reached its limit of instances.",
			Behavior: "A machine whose instance has vanished is Failed and replaced once. If the instance of the " +
				"replacement also vanishes, the next replacement waits between 10 seconds and 30 minutes.",
			Proofs: scenarios("churn", "incident-two-of-three-vanish"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api-provider-openstack#1404", Theme: LeakedInstances,
			Title: "Ports leaked with each server that found no host",
			Report: "The cloud had no host for another server. Each try first created a port. The server failed " +
				"and was removed, but its port was not. Ports accumulated until their quota was used up.",
			Behavior: "The parts of an instance carry the tags of the machine and are deleted with it. Parts that a " +
				"killed process left are collected. The test uses a real OpenStack.",
			Proofs: tests("providers/openstack/e2e.TestFleetSurvivesFlavorThatFitsNoHost",
				"providers/openstack/e2e.TestPartsOfKilledProviderAreDeleted"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api-provider-openstack#190", Theme: Rollouts,
			Title: "An update took the old server for the new one",
			Report: "An update deleted the old server and created a new one at once. The old server still existed, " +
				"so the creation was skipped. A moment later there was no server.",
			Behavior: "A replacement under the same Machine deletes the old instance, waits until it is gone, and " +
				"records that. Only then does the next attempt begin. If the cloud still shows the old instance, the " +
				"provider does not mistake it for the new one.",
			Proofs: scenarios("replace"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api-provider-vsphere#2781", Theme: Certificates,
			Title: "Nothing was reconciled after the session had expired",
			Report: "24 hours after an upgrade, the session with the cloud expired and was not renewed. No machine " +
				"was reconciled any more, and a return to earlier versions did not help.",
			Behavior: "After the cloud refuses credentials, the provider tries again within minutes, with the current " +
				"content of the Secret. In the test, a real identity service revokes tokens and credentials.",
			Proofs: tests("providers/openstack/e2e.TestFleetRecoversFromRevokedTokensAndCredentials"),
		},
		{
			Reference: "kubernetes-sigs/cluster-api-provider-azure#519", Theme: Quota,
			Title: "Machines without quota were retried forever without a visible reason",
			Report: "A region did not have enough quota. The controller repeatedly requested an instance for each " +
				"wanted machine. The objects did not show that the quota was the reason.",
			Behavior: "The Machine reports InsufficientResources with the message of the cloud. The provider tries again " +
				"after 1 to 10 minutes, and continues automatically when the quota is raised.",
			Proofs: slices.Concat(scenarios("quota-full"), tests("providers/openstack/e2e.TestFleetGrowsWhenQuotaIsRaised")),
		},
		{
			Reference: "kubernetes-sigs/cluster-api-provider-ibmcloud#1862", Theme: DeletedFleets,
			Title: "A health check deleted machines as soon as they were running",
			Report: "During a test of a cluster template for the CI of the provider, machines with a health check " +
				"were marked unhealthy and deleted as soon as they were running. The health checks had to be revised " +
				"before they could be added to the template.",
			Behavior: "A machine is marked only if its Node has been unhealthy for the whole timeout. The timeout starts " +
				"when the manager first observes the unhealthy Node. The clocks of the manager and the provider may " +
				"differ by minutes.",
			Proofs: scenarios("remediate", "clocks-differ"),
		},
	}
}
