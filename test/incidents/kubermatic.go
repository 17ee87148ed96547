package incidents

import "slices"

// kubermatic are incidents of Kubermatic's machine-controller.
func kubermatic() []Incident {
	return []Incident{
		{
			Reference: "kubermatic/machine-controller#390", Theme: DeletedFleets,
			Title: "Scaling from six machines to two removed all six",
			Happened: "The replicas of a deployment were lowered from 6 to 2. All six nodes were cordoned and deleted " +
				"within seconds. Then two new machines were created, of the same set as before.",
			Here: "A set deletes as many machines as there are beyond its replicas, counted from a view that has its " +
				"own deletions. Each deletion of an available machine is judged in the deterministic world.",
			Proofs: scenarios("scale-down", "churn", "autoscaler"),
		},
		{
			Reference: "kubermatic/machine-controller#381", Theme: LeakedInstances,
			Title: "One deleted instance was followed by three new ones",
			Happened: "Somebody deleted the instance of a machine at the cloud. The controller looked for the instance by " +
				"its tags, looked only at the first one that the cloud answered, which was the terminated one, and " +
				"created another instance in each round. When the machine was deleted, the others stayed.",
			Here: "A machine whose instance has vanished fails and is replaced by another Machine. One Machine asks " +
				"for one instance at a time: before each creation it looks for what carries its UID, and a new " +
				"attempt begins only when nothing can come any more.",
			Proofs: slices.Concat(scenarios("churn", "addresses-reused"),
				tests("providers/azure/e2e.TestACrashAndLostAnswersMakeNoTwins")),
		},
		{
			Reference: "kubermatic/machine-controller#792", Theme: LeakedInstances,
			Title: "Each new worker existed twice at the cloud",
			Happened: "A cluster was installed with one worker in each of three zones. Afterwards two of the machines " +
				"had two instances with the same name at the cloud, both of them running.",
			Here: "A creation carries an idempotency token, and a lookup by tag comes before it. A cloud that shows " +
				"instances late is given its settling time before another attempt begins.",
			Proofs: slices.Concat(scenarios("create"),
				tests("test/e2e.TestWaysOfClouds", "test/e2e.TestReadsThatLag")),
		},
		{
			Reference: "kubermatic/machine-controller#581", Theme: LeakedInstances,
			Title: "A machine that was deleted during its creation left its instance",
			Happened: "The finalizer was added to a machine after the call that creates the instance, which may take " +
				"minutes. When the machine was deleted meanwhile, it was gone at once. The call succeeded, the " +
				"finalizer had nowhere to go, and the instance stayed.",
			Here: "The finalizer is there before anything is asked of the cloud. A deletion in the middle of a " +
				"creation waits until what was asked for would have shown.",
			Proofs: scenarios("create-then-delete", "burst-cancelled"),
		},
		{
			Reference: "kubermatic/machine-controller#811", Theme: LeakedInstances,
			Title: "A creation that failed halfway lost its finalizer",
			Happened: "A cloud had made the virtual machine and then answered with an error. The controller took the " +
				"creation for failed and removed the finalizer again. When the machine was deleted later, nobody " +
				"deleted the virtual machine, its disk and its interface.",
			Here: "No error of a creation removes a finalizer. It goes when the cloud says that the instance is gone, " +
				"or when two lookups one settling time apart have found nothing.",
			Proofs: slices.Concat(scenarios("burst-cancelled"),
				tests("providers/azure/e2e.TestACrashAndLostAnswersMakeNoTwins")),
		},
		{
			Reference: "kubermatic/machine-controller#345", Theme: LeakedInstances,
			Title: "Finalizers were removed before the instance was gone",
			Happened: "A cloud deletes asynchronously. The controller removed its finalizer when the deletion was " +
				"accepted. Tools that waited for the machines to be gone went on to delete networks and security " +
				"groups, and failed because the instances were still there.",
			Here: "The finalizer goes after the cloud has said that the instance is gone. Whoever waits for the " +
				"Machine waits for its instance.",
			Proofs: scenarios("scale-down", "delete"),
		},
		{
			Reference: "kubermatic/machine-controller#541", Theme: StuckDrains,
			Title: "The deletion of a cluster waited for evictions that had no place to go",
			Happened: "When a whole cluster is deleted, all its nodes go. The controller evicted the pods of each node, " +
				"budgets refused the evictions because no pod could run elsewhere, and the deletion lasted until " +
				"the eviction timeout.",
			Here: "The deadline of a drain bounds that, however many nodes go. The fleet is gone after one drain " +
				"time, not after one for each node.",
			Proofs: scenarios("nowhere-to-go"),
		},
		{
			Reference: "kubermatic/machine-controller#816", Theme: StuckDeletions,
			Title: "A machine whose Node was gone could not be deleted",
			Happened: "The deletion of a machine looked up its Node by the recorded name. When somebody had deleted the " +
				"Node before, the lookup failed, and with it the deletion, each time.",
			Here: "A Node that is gone is one step less. The machine says that its Node was deleted, is replaced by " +
				"the health policy, and goes.",
			Proofs: scenarios("node-deleted-while-away", "create-then-delete"),
		},
		{
			Reference: "kubermatic/machine-controller#1015", Theme: StuckDeletions,
			Title: "Machines kept their finalizers although everything was gone",
			Happened: "A deployment was deleted, and all resources at the cloud were gone. Some machines stayed with the " +
				"finalizers for disks and interfaces. It happened only sometimes, and a race of a cached read with " +
				"a write was suspected.",
			Here: "There is one finalizer. It is removed by a patch with the version that was read. A conflict, a " +
				"lost answer or a late cache is followed by another pass.",
			Proofs: scenarios("delete", "scale-down"),
		},
		{
			Reference: "kubermatic/kubermatic#1437", Theme: StaleCaches,
			Title: "The controller did not see that machines were being deleted",
			Happened: "Machines had a deletion time stamp, and the machine-controller did nothing. It had received a very " +
				"old version of them from an API server. When somebody deleted their instances, it made new ones. A " +
				"restart of the API server helped.",
			Here: "Before an instance is created, the Machine is read at the API server itself unless no one else can " +
				"have changed it. A watch that stands still delays a deletion and makes no new instance.",
			Proofs: scenarios("create-then-delete", "delete"),
		},
		{
			Reference: "kubermatic/machine-controller#1970", Theme: Quota,
			Title: "A rate limit of the cloud made the admission webhook refuse machines",
			Happened: "A project had used up its 3600 requests an hour. The validating webhook asked the cloud for its " +
				"locations and refused each new machine with the error of the cloud. Sets failed to create " +
				"machines, and nodes were reported as unschedulable.",
			Here: "Admission asks no cloud. A refused call is a reason to wait: machines stay as they are, their " +
				"waits grow, and what the cloud says about the next try is obeyed.",
			Proofs: slices.Concat(scenarios("rate-limited"),
				tests("test/e2e.TestWaysOfClouds", "providers/openstack/e2e.TestTheDriverConforms")),
		},
		{
			Reference: "kubermatic/machine-controller#155", Theme: Quota,
			Title: "Five machines at once ran into the rate limit and failed",
			Happened: "Five machines were created at the same time. The cloud refused some of the calls that validated " +
				"them because there were too many. The controller handled that as a terminal error, and none of the " +
				"machines came up.",
			Here: "Throttled is an error to be tried again, from a second to five minutes later, with jitter. No " +
				"machine fails because of it.",
			Proofs: scenarios("rate-limited"),
		},
		{
			Reference: "kubermatic/machine-controller#813", Theme: Nodes,
			Title: "A reused address paired the node of an old machine with a new one",
			Happened: "A cloud gave the address of a deleted instance to the next one at once. The controller matched " +
				"nodes and machines by their addresses. It labelled the old Node as that of the new machine, did " +
				"not delete the old Node, and clusters became unstable.",
			Here: "A Node belongs to a machine by its provider ID, never by an address. It is deleted by its UID, and " +
				"only if it is the Node of the instance that is gone.",
			Proofs: slices.Concat(scenarios("addresses-reused"),
				tests("test/e2e.TestAttackAKubeletClaimsAnothersProviderID")),
		},
		{
			Reference: "kubermatic/machine-controller#131", Theme: BadInput,
			Title: "An invalid machine could never be deleted",
			Happened: "A machine without credentials was created. Its finalizer was added, its creation failed, and its " +
				"deletion failed as well, because it had no credentials to ask the cloud with. Only a person who " +
				"removed the finalizer could end that.",
			Here: "A machine of which nothing was ever asked at a cloud goes at once, with or without a class and " +
				"credentials. Bad objects can be deleted beside a fleet that goes on.",
			Proofs: slices.Concat(scenarios("secret-vanishes-at-creation", "class-vanishes-at-creation"),
				tests("test/e2e.TestBadInputHarmsNobody")),
		},
		{
			Reference: "kubermatic/machine-controller#945", Theme: BadInput,
			Title: "One machine made the controller crash in a loop",
			Happened: "The specification of one machine lacked a field that the client library of the cloud dereferences. " +
				"The controller panicked, was restarted, worked on the same machine again, and panicked again. No " +
				"other machine of the cluster was served.",
			Here: "A bad object is refused at admission with the name of the field. One that is there anyway gets a " +
				"condition and harms no other object. A panic in a pass is caught and counted as an error of that " +
				"object.",
			Proofs: tests("test/e2e.TestBadInputHarmsNobody"),
		},
	}
}
