package incidents

import "slices"

// openshift are incidents of OpenShift's machine API.
func openshift() []Incident {
	return []Incident{
		{
			Reference: "openshift/machine-api-operator#703", Theme: LeakedInstances,
			Title: "A machine was cloned twice because its task did not show",
			Happened: "The API of the cloud returned no task right after one was begun, which is probably its " +
				"eventual consistency. The next pass began a second clone of the same machine.",
			Here: "A creation whose answer is lost is repeated with the same token, and what it made is found by " +
				"the machine's UID. The world loses the answer of each creation, and lets it happen late.",
			Proofs: slices.Concat(scenarios("create"),
				tests("providers/azure/e2e.TestACrashAndLostAnswersMakeNoTwins")),
		},
		{
			Reference: "openshift/machine-api-operator#1519", Theme: Webhooks,
			Title: "A refused patch after the clone held the machine up for ever",
			Happened: "After a clone had begun an admission policy refused the patch that records its task, for " +
				"a moment. The process remembered the task, the object did not, and the guard against double " +
				"clones put the machine off in each pass, without end.",
			Here: "Nothing that a process remembers forbids what the API and the cloud allow. In the scenario " +
				"each write of a machine is refused for up to 12 minutes, before or after its instance was asked " +
				"for.",
			Proofs: scenarios("incident-webhook-down"),
		},
		{
			Reference: "openshift/machine-api-operator#1223", Theme: LeakedInstances,
			Title: "An instance that was made was not found after a restart",
			Happened: "The ID of a task was kept in memory when the status could not be written. If the process " +
				"was restarted as well, the instance was there, nobody knew of the task, and another clone was " +
				"begun.",
			Here: "What a restart forgets is at the cloud: the instance carries the machine's UID. The world " +
				"crashes after each effect, and restarts from lists that are up to nine changes old.",
			Proofs: scenarios("create", "scale-up"),
		},
		{
			Reference: "openshift/machine-api-operator#490", Theme: Nodes,
			Title: "The Node was deleted while its instance was still running",
			Happened: "The machine controller deleted the Node before the instance had ended. Kubernetes takes " +
				"that for proof that no pod runs there: a StatefulSet could have two pods of one name at the " +
				"same time.",
			Here: "The Node goes after the instance is gone for sure, never before. Each deletion of a Node in " +
				"the world is judged by that.",
			Proofs: scenarios("scale-down", "drain-same-names"),
		},
		{
			Reference: "openshift/machine-api-operator#894", Theme: StuckDrains,
			Title: "Disks of volumes were destroyed with the machine",
			Happened: "Pods were drained, and their volumes were still attached when the machine was deleted. " +
				"The cloud destroyed the attached disks together with it, with their data.",
			Here: "After the drain the instance stays until the node has no volume attached that a drained pod " +
				"used, or until the time for that is over.",
			Proofs: scenarios("drain-same-names", "drain-stuck-volume"),
		},
		{
			Reference: "openshift/machine-api-operator#882", Theme: StuckDeletions,
			Title: "A machine whose Node was deleted could not be deleted",
			Happened: "Somebody deleted the Node of a machine. When the machine was deleted after that, the " +
				"controller did not find the Node, failed, and the machine stayed in its phase Deleting.",
			Here: "A Node that is not there is no reason to wait. If the kubelet registers again meanwhile, the " +
				"new Node is drained and goes as well.",
			Proofs: scenarios("incident-node-deleted-then-machine"),
		},
		{
			Reference: "openshift/machine-api-operator#464", Theme: StuckDrains,
			Title: "A drain waited for pods that an unreachable node cannot end",
			Happened: "Machines of unreachable nodes were not deleted: the drain waited for their pods to end, " +
				"and no kubelet was there to end them. They were tried again each time the drain's own limit of " +
				"20 seconds was over.",
			Here: "Pods that are asked to end on a node that does not report count as gone. In the scenario both " +
				"StatefulSet and DaemonSet pods are on it.",
			Proofs: scenarios("drain-silent-node", "incident-silent-node-under-budgets"),
		},
		{
			Reference: "openshift/machine-api-operator#1066", Theme: StuckDrains,
			Title: "Two machines that were drained at once waited for each other",
			Happened: "Several control plane machines were drained at the same time. Each waited for a pod whose " +
				"disruption budget was used up on the other one, so that no drain could ever end: a deadlock. " +
				"Workloads whose budgets conflict in that way can have the same.",
			Here: "Each drain has a deadline. From its last part on, pods that no budget lets go are deleted with " +
				"their grace, so that drains that wait for each other end. The scenarios drain two machines of one " +
				"budget at once, and one that no budget ever lets go.",
			Proofs: scenarios("drain-same-names", "drain-never-allowed"),
		},
		{
			Reference: "openshift/machine-api-operator#644", Theme: Stampedes,
			Title: "A changed label orphaned machines, and all were made again",
			Happened: "A label by which sets know their machines was no longer set by the controller. Where sets " +
				"and machines had different values, machines would have become orphans and new instances been " +
				"made for all of them.",
			Here: "Labels of the template reach machines in place, and what no longer matches counts towards the " +
				"ceiling of its set.",
			Proofs: scenarios("incident-policy-relabels"),
		},
		{
			Reference: "openshift/machine-api-operator#347", Theme: StuckDeletions,
			Title: "A destroyed instance was not replaced and left a machine",
			Happened: "A virtual machine was destroyed at the cloud. No new node came, and the machine that was " +
				"left could not be deleted because its node could not be drained.",
			Here: "An instance that vanished makes the machine Failed within seconds of its node falling silent, " +
				"and it is replaced. Its node needs no drain.",
			Proofs: slices.Concat(scenarios("incident-two-of-three-vanish", "churn"),
				tests("test/e2e.TestWhatIsBrokenIsReplacedAndWhatIsUnreachableIsNot")),
		},
		{
			Reference: "openshift/machine-api-operator#431", Theme: BadInput,
			Title: "No new machine set was scheduled beside one with a typing error",
			Happened: "A machine set had a label that was a boolean instead of a text. Whatever sets were made " +
				"after it, valid ones too, got no machines until it was corrected.",
			Here: "The schema refuses it. Whatever else it admits is left alone, with a condition, and the fleet " +
				"beside it is scaled and rolled.",
			Proofs: tests("test/e2e.TestBadInputHarmsNobody"),
		},
		{
			Reference: "openshift/cluster-api-provider-libvirt#109", Theme: BadInput,
			Title: "An invalid machine set launched instances without a bound",
			Happened: "Whether a set's template matches its selector was not checked when it was made. Such a " +
				"set made one machine after the other, and the controller launched an instance for each.",
			Here:   "The API refuses it, and a set that is stored anyway makes nothing: InvalidSelector.",
			Proofs: tests("test/e2e.TestBadInputHarmsNobody"),
		},
		{
			Reference: "openshift/cluster-machine-approver#321", Theme: Certificates,
			Title: "Certificates waited a quarter of an hour for an address",
			Happened: "A kubelet asked for its serving certificate when the machine had a node and no addresses " +
				"yet. The empty list was taken for a mismatch for good. The request stayed pending until the " +
				"kubelet sent another one 15 minutes later.",
			Here: "A provider that does not know the addresses yet is asked again after 30 seconds. When this " +
				"scenario was written the empty answer was good for 5 minutes, and an event said that the " +
				"address is unknown.",
			Proofs: scenarios("incident-addresses-come-late"),
		},
		{
			Reference: "openshift/cluster-machine-approver#31", Theme: Certificates,
			Title: "A hundred pending requests stopped all approvals",
			Happened: "When more than 100 requests for certificates were pending, the approver took that for an " +
				"attack and approved none any more. A fleet that grows fast has as many, and its nodes did not " +
				"join.",
			Here:   "Each request is judged by itself. The scenario has 120 requests of nobody and a fleet that grows.",
			Proofs: scenarios("incident-requests-of-nobody"),
		},
		{
			Reference: "openshift/cluster-machine-approver#42", Theme: Certificates,
			Title: "Requests from before the approver started were not seen",
			Happened: "One process approved requests during the installation and ended; the next one approved " +
				"only what came after its start. Requests that kubelets had sent in between stayed pending.",
			Here: "What is pending at a start is judged like what comes later. The world ends the provider at " +
				"each moment of a join.",
			Proofs: scenarios("certificates", "incident-addresses-come-late"),
		},
		{
			Reference: "openshift/machine-config-operator#768", Theme: Certificates,
			Title: "Any client could get the certificate of a node",
			Happened: "A role binding had the cluster approve the client certificates of all nodes. Whoever got " +
				"the token of a service account could ask for one and act as a node.",
			Here: "A request is approved for the bearer of one machine's own token, under the name of its node, " +
				"once. The scenario forges six kinds of requests; the attack tests try to become another node.",
			Proofs: slices.Concat(scenarios("certificates"),
				tests("test/e2e.TestAttackAKubeletClaimsAnothersProviderID")),
		},
	}
}
