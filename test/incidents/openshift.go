package incidents

import "slices"

func openshift() []Incident {
	return []Incident{
		{
			Reference: "openshift/machine-api-operator#703", Theme: LeakedInstances,
			Title: "A machine was cloned twice because its task was not visible",
			Report: "Right after a task had begun, the API of the cloud did not return it, probably because of " +
				"eventual consistency. The next pass began a second clone of the same machine.",
			Behavior: "If the answer to a creation is lost, the provider repeats the request with the same token. It " +
				"finds the created instance by the UID of the machine. The simulation loses the answer of each " +
				"creation, and also lets creations take effect late.",
			Proofs: slices.Concat(scenarios("create"),
				tests("providers/azure/e2e.TestCrashAndLostAnswersCreateNoTwins")),
		},
		{
			Reference: "openshift/machine-api-operator#1519", Theme: Webhooks,
			Title: "A refused patch after the clone blocked the machine forever",
			Report: "After a clone had begun, an admission policy temporarily refused the patch that records its " +
				"task. The process remembered the task, but the object did not contain it. To prevent a second " +
				"clone, the controller postponed the machine in each pass, without end.",
			Behavior: "Machinist decides by the state in the API and in the cloud, not by what a process remembers. In " +
				"the scenario, each write of a machine is refused for up to 12 minutes, before or after the " +
				"request for its instance.",
			Proofs: scenarios("incident-webhook-down"),
		},
		{
			Reference: "openshift/machine-api-operator#1223", Theme: LeakedInstances,
			Title: "A created instance was not found after a restart",
			Report: "When the status could not be written, the ID of a task was kept in memory. If the process was " +
				"also restarted, the instance existed but its task was unknown. Another clone was begun.",
			Behavior: "A restart loses no creation, because each instance has the UID of its machine as a tag. The " +
				"simulation crashes the process after each effect, and restarts it with lists that are up to nine " +
				"changes old.",
			Proofs: scenarios("create", "scale-up"),
		},
		{
			Reference: "openshift/machine-api-operator#490", Theme: Nodes,
			Title: "The Node was deleted while its instance was still running",
			Report: "The machine controller deleted the Node before the instance had ended. For Kubernetes, the " +
				"deletion of a Node proves that no pod runs there. As a result, a StatefulSet could have two pods " +
				"with the same name at the same time.",
			Behavior: "The provider deletes the Node only after the instance is certainly gone. The simulation checks " +
				"this for each deletion of a Node.",
			Proofs: scenarios("scale-down", "drain-same-names"),
		},
		{
			Reference: "openshift/machine-api-operator#894", Theme: StuckDrains,
			Title: "Disks of volumes were destroyed with the machine",
			Report: "Pods were drained, but their volumes were still attached when the machine was deleted. The " +
				"cloud destroyed the attached disks together with the machine, including their data.",
			Behavior: "After the drain, the instance stays until no volume of a drained pod is attached to the node, or " +
				"until the timeout for this has passed.",
			Proofs: scenarios("drain-same-names", "drain-stuck-volume"),
		},
		{
			Reference: "openshift/machine-api-operator#882", Theme: StuckDeletions,
			Title: "A machine whose Node was deleted could not be deleted",
			Report: "The Node of a machine was deleted. When the machine itself was deleted later, the controller " +
				"did not find the Node and failed. The machine remained in the phase Deleting.",
			Behavior: "A deletion does not wait for a Node that does not exist. If the kubelet registers again before " +
				"the deletion ends, the new Node is also drained and deleted.",
			Proofs: scenarios("incident-node-deleted-then-machine"),
		},
		{
			Reference: "openshift/machine-api-operator#464", Theme: StuckDrains,
			Title: "A drain waited for pods that an unreachable node cannot end",
			Report: "Machines of unreachable nodes were not deleted. The drain waited for their pods, but no " +
				"kubelet was there to end them. The drain was tried again each time its own limit of 20 seconds had " +
				"passed.",
			Behavior: "Terminating pods on a node that does not report count as gone. In the scenario drain-silent-node, " +
				"pods of a StatefulSet and of a DaemonSet run on the node.",
			Proofs: scenarios("drain-silent-node", "incident-silent-node-under-budgets"),
		},
		{
			Reference: "openshift/machine-api-operator#1066", Theme: StuckDrains,
			Title: "Two machines that were drained at once waited for each other",
			Report: "Several control plane machines were drained at the same time. Each drain waited for a pod, " +
				"but another drain had used up the disruption budget of this pod. No drain could end: a deadlock. " +
				"Workloads whose budgets conflict in this way can have the same problem.",
			Behavior: "Each drain has a deadline. In the last part of a drain, pods whose eviction no budget allows are " +
				"deleted with their grace period, so drains that wait for each other end. One scenario drains two " +
				"machines of one budget at the same time. In the other scenario, the budget never allows the " +
				"eviction.",
			Proofs: scenarios("drain-same-names", "drain-never-allowed"),
		},
		{
			Reference: "openshift/machine-api-operator#644", Theme: Stampedes,
			Title: "A changed label orphaned machines, and all were created again",
			Report: "The controller no longer set a label by which machine sets select their machines. Where sets " +
				"and machines had different values of this label, machines would have become orphans, and new " +
				"instances would have been created for all of them.",
			Behavior: "Labels of the template are updated on existing machines. Machines that no longer match count " +
				"towards the ceiling of their MachineSet.",
			Proofs: scenarios("incident-policy-relabels"),
		},
		{
			Reference: "openshift/machine-api-operator#347", Theme: StuckDeletions,
			Title: "A destroyed instance was not replaced and left a machine",
			Report: "A virtual machine was destroyed in the cloud. No new node was created. The machine that was " +
				"left could not be deleted, because its node could not be drained.",
			Behavior: "If an instance has vanished, the machine becomes Failed within seconds after its node becomes " +
				"silent, and it is replaced. Its node needs no drain.",
			Proofs: slices.Concat(scenarios("incident-two-of-three-vanish", "churn"),
				tests("test/e2e.TestOnlyBrokenMachinesAreReplaced")),
		},
		{
			Reference: "openshift/machine-api-operator#431", Theme: BadInput,
			Title: "A typing error in one machine set blocked all new machine sets",
			Report: "A machine set had a label that was a boolean instead of a string. All machine sets that were " +
				"created later, including valid ones, got no machines until the label was corrected.",
			Behavior: "The schema refuses such a label. Any other invalid object that the schema admits gets a condition " +
				"and is left alone. Other fleets are scaled and rolled out as usual.",
			Proofs: tests("test/e2e.TestBadInputIsRefusedOrHarmless"),
		},
		{
			Reference: "openshift/cluster-api-provider-libvirt#109", Theme: BadInput,
			Title: "An invalid machine set launched instances without limit",
			Report: "The API server accepted machine sets whose template did not match their selector. " +
				"Such a set created one machine after the other, and the controller launched an instance for each.",
			Behavior: "The API refuses such a MachineSet. If such a MachineSet is stored anyway, it creates nothing and " +
				"reports InvalidSelector.",
			Proofs: tests("test/e2e.TestBadInputIsRefusedOrHarmless"),
		},
		{
			Reference: "openshift/cluster-machine-approver#321", Theme: Certificates,
			Title: "A kubelet waited 15 minutes for its certificate, because its machine had no address yet",
			Report: "A kubelet requested its serving certificate when the machine had a node but no addresses yet. " +
				"The approver treated the empty list as a permanent mismatch. The request remained pending until the " +
				"kubelet sent another one 15 minutes later.",
			Behavior: "If the provider does not know the addresses yet, it is asked again after 30 seconds. In an " +
				"earlier version, the empty answer was used for 5 minutes, and an event reported that the address is " +
				"unknown.",
			Proofs: scenarios("incident-addresses-come-late"),
		},
		{
			Reference: "openshift/cluster-machine-approver#31", Theme: Certificates,
			Title: "A hundred pending requests stopped all approvals",
			Report: "When more than 100 certificate requests were pending, the approver assumed an attack and " +
				"stopped approving requests. A fast-growing fleet can have more than 100 pending requests, so its " +
				"nodes did not join.",
			Behavior: "Each request is judged separately. In the scenario, a fleet grows while 120 requests that belong " +
				"to no machine are pending.",
			Proofs: scenarios("incident-requests-of-nobody"),
		},
		{
			Reference: "openshift/cluster-machine-approver#42", Theme: Certificates,
			Title: "Requests from before the start of the approver were ignored",
			Report: "One process approved requests during the installation and ended. The next process approved " +
				"only requests that arrived after its start. Requests that kubelets had sent in between remained " +
				"pending.",
			Behavior: "A process treats requests that are pending at its start in the same way as later ones. The " +
				"simulation stops the provider at each moment of a join.",
			Proofs: scenarios("certificates", "incident-addresses-come-late"),
		},
		{
			Reference: "openshift/machine-config-operator#768", Theme: Certificates,
			Title: "Any client could get the certificate of a node",
			Report: "A role binding made the cluster approve the client certificates of all nodes. Anyone who got " +
				"the token of a service account could request such a certificate and act as a node.",
			Behavior: "A request is approved once, only for the bearer of a machine's own token, and only for the name " +
				"of its node. The scenario forges six kinds of requests. The attack tests try to become another node.",
			Proofs: slices.Concat(scenarios("certificates"),
				tests("test/e2e.TestAttackKubeletClaimsForeignProviderID")),
		},
	}
}
