package incidents

import "slices"

func kubermatic() []Incident {
	return []Incident{
		{
			Reference: "kubermatic/machine-controller#390", Theme: DeletedFleets,
			Title: "Scaling from six machines to two removed all six",
			Report: "The replicas of a deployment were lowered from 6 to 2. All six nodes were cordoned and " +
				"deleted within seconds. Then two new machines of the same machine set were created.",
			Behavior: "A MachineSet deletes exactly as many machines as exceed its replicas. The set counts its machines " +
				"in a view that contains the set's own deletions. The simulation checks each deletion of an " +
				"available machine.",
			Proofs: scenarios("scale-down", "churn", "autoscaler"),
		},
		{
			Reference: "kubermatic/machine-controller#381", Theme: LeakedInstances,
			Title: "One deleted instance was followed by three new ones",
			Report: "The instance of a machine was deleted in the cloud. The controller looked for the instance by " +
				"its tags and checked only the first result, which was the terminated instance. It created another " +
				"instance in each pass. When the machine was deleted, the other instances remained.",
			Behavior: "A machine whose instance has vanished fails, and another Machine replaces it. A Machine requests " +
				"one instance at a time. Before each creation, the provider looks for instances with the UID of the " +
				"Machine. The provider begins a new attempt only when no earlier call can still create an instance.",
			Proofs: slices.Concat(scenarios("churn", "addresses-reused"),
				tests("providers/azure/e2e.TestCrashAndLostAnswersCreateNoTwins")),
		},
		{
			Reference: "kubermatic/machine-controller#792", Theme: LeakedInstances,
			Title: "Each new worker existed twice in the cloud",
			Report: "A cluster was installed with one worker in each of three zones. Afterwards, two of the " +
				"machines had two instances with the same name in the cloud. Both instances of each machine were " +
				"running.",
			Behavior: "Each creation carries an idempotency token, and the provider looks up the instance by its tags " +
				"first. If a cloud shows instances late, the provider waits for the settle time before it begins " +
				"another attempt.",
			Proofs: slices.Concat(scenarios("create"),
				tests("test/e2e.TestFleetWorksWithCloudSemantics", "test/e2e.TestCloudReadsLag")),
		},
		{
			Reference: "kubermatic/machine-controller#581", Theme: LeakedInstances,
			Title: "A machine that was deleted during its creation left its instance",
			Report: "The finalizer was added to a machine after the call that creates the instance, which can take " +
				"minutes. When a machine was deleted during the call, the Machine object disappeared at once. The " +
				"call succeeded, but the finalizer could no longer be added, and the instance remained.",
			Behavior: "The Machine has its finalizer before the provider asks the cloud for anything. A deletion during " +
				"a creation waits until the requested instance would be visible.",
			Proofs: scenarios("create-then-delete", "burst-cancelled"),
		},
		{
			Reference: "kubermatic/machine-controller#811", Theme: LeakedInstances,
			Title: "A machine lost its finalizer because its creation failed halfway",
			Report: "A cloud created the virtual machine and then answered with an error. The controller assumed " +
				"that the creation had failed, and removed the finalizer. When the machine was deleted later, its " +
				"virtual machine, disk and interface were not deleted.",
			Behavior: "Machinist removes no finalizer because of a failed creation. The finalizer is removed when the " +
				"cloud reports that the instance is gone. If no instance is recorded, the finalizer is removed " +
				"when two lookups, one settle time apart, have found nothing.",
			Proofs: slices.Concat(scenarios("burst-cancelled"),
				tests("providers/azure/e2e.TestCrashAndLostAnswersCreateNoTwins")),
		},
		{
			Reference: "kubermatic/machine-controller#345", Theme: LeakedInstances,
			Title: "Finalizers were removed before the instance was gone",
			Report: "A cloud deletes asynchronously. The controller removed its finalizer when the cloud had " +
				"accepted the deletion. Tools that waited until the machines were gone then deleted networks and " +
				"security groups, and failed because the instances still existed.",
			Behavior: "The provider removes the finalizer only after the cloud has reported that the instance is gone. A " +
				"tool that waits for the Machine therefore also waits for its instance.",
			Proofs: scenarios("scale-down", "delete"),
		},
		{
			Reference: "kubermatic/machine-controller#541", Theme: StuckDrains,
			Title: "The deletion of a cluster waited for evictions that had no place to go",
			Report: "When a whole cluster is deleted, all its nodes are deleted. The controller evicted the pods " +
				"of each node. Disruption budgets refused the evictions because no pod could run on another node, " +
				"and the deletion lasted until the eviction timeout.",
			Behavior: "The deadline of a drain applies regardless of how many nodes are deleted. The whole fleet is gone " +
				"after one drain timeout, not after one drain timeout for each node.",
			Proofs: scenarios("nowhere-to-go"),
		},
		{
			Reference: "kubermatic/machine-controller#816", Theme: StuckDeletions,
			Title: "A machine whose Node was gone could not be deleted",
			Report: "To delete a machine, the controller looked up its Node by the recorded name. If the Node had " +
				"already been deleted, the lookup failed each time, and the deletion failed with it.",
			Behavior: "If the Node is gone, the deletion skips the steps for the Node. The machine reports that its Node " +
				"was deleted. The health policy requests a replacement, and the deletion of the machine succeeds.",
			Proofs: scenarios("node-deleted-while-away", "create-then-delete"),
		},
		{
			Reference: "kubermatic/machine-controller#1015", Theme: StuckDeletions,
			Title: "Machines kept their finalizers although everything was gone",
			Report: "A deployment was deleted, and all its resources in the cloud were gone. Some machines " +
				"remained with the finalizers for disks and interfaces. This happened only sometimes. A race between " +
				"a cached read and a write was suspected.",
			Behavior: "There is one finalizer. The provider removes it with a patch that succeeds only if the object has " +
				"not changed since the provider read it. After a conflict, a lost answer or a stale cache, another " +
				"pass follows.",
			Proofs: scenarios("delete", "scale-down"),
		},
		{
			Reference: "kubermatic/kubermatic#1437", Theme: StaleCaches,
			Title: "The controller did not see that machines were being deleted",
			Report: "Machines had a deletion timestamp, but the machine-controller did nothing. An API server had " +
				"sent the controller a very old version of the machines. When their instances were deleted manually, " +
				"it created new ones. A restart of the API server helped.",
			Behavior: "Before the provider creates an instance, it reads the Machine from the API server, unless no " +
				"other client can have changed the Machine. A stalled watch delays a deletion, but it creates no new " +
				"instance.",
			Proofs: scenarios("create-then-delete", "delete"),
		},
		{
			Reference: "kubermatic/machine-controller#1970", Theme: Quota,
			Title: "A rate limit of the cloud made the admission webhook refuse machines",
			Report: "A project had used up its limit of 3600 requests an hour. The validating webhook asked the " +
				"cloud for its locations, and refused each new machine with the error of the cloud. Machine sets " +
				"failed to create machines, and nodes were reported as unschedulable.",
			Behavior: "Admission never calls a cloud. When a call is refused, the provider waits, and each wait is " +
				"longer than the one before. The machines do not change. If the cloud states when to try again, the " +
				"provider waits at least that long.",
			Proofs: slices.Concat(scenarios("rate-limited"),
				tests("test/e2e.TestFleetWorksWithCloudSemantics", "providers/openstack/e2e.TestTheDriverConforms")),
		},
		{
			Reference: "kubermatic/machine-controller#155", Theme: Quota,
			Title: "Five machines created at once exceeded the rate limit and failed",
			Report: "Five machines were created at the same time. To validate the machines, the controller called " +
				"the cloud. The cloud received too many calls, and refused some of these calls. The controller " +
				"treated the refusal as a terminal error, and none of the machines came up.",
			Behavior: "The provider retries calls that fail with Throttled, after one second to five minutes, with " +
				"jitter. No machine fails because of such an error.",
			Proofs: scenarios("rate-limited"),
		},
		{
			Reference: "kubermatic/machine-controller#813", Theme: Nodes,
			Title: "A reused address paired the node of an old machine with a new one",
			Report: "A cloud assigned the address of a deleted instance to the next one at once. The controller " +
				"matched nodes and machines by their addresses. It labeled the old Node as the Node of the new " +
				"machine and did not delete it. Clusters became unstable.",
			Behavior: "The provider ID decides to which machine a Node belongs. An address never does. The provider " +
				"deletes a Node by its UID, and only if it is the Node of the deleted instance.",
			Proofs: slices.Concat(scenarios("addresses-reused"),
				tests("test/e2e.TestAttackKubeletClaimsForeignProviderID")),
		},
		{
			Reference: "kubermatic/machine-controller#131", Theme: BadInput,
			Title: "An invalid machine could never be deleted",
			Report: "A machine was created without credentials. The machine got its finalizer, but the creation of " +
				"its instance failed. The deletion of the machine failed too, because the controller had no " +
				"credentials for calls to the cloud. An administrator had to remove the finalizer manually.",
			Behavior: "If nothing was ever requested from a cloud for a machine, the machine is deleted at once, with or " +
				"without a class and credentials. Invalid objects can be deleted, and they do not affect other " +
				"fleets.",
			Proofs: slices.Concat(scenarios("secret-vanishes-at-creation", "class-vanishes-at-creation"),
				tests("test/e2e.TestBadInputIsRefusedOrHarmless")),
		},
		{
			Reference: "kubermatic/machine-controller#945", Theme: BadInput,
			Title: "One machine made the controller crash in a loop",
			Report: "The specification of one machine lacked a field that the client library of the cloud " +
				"dereferences. The controller panicked, restarted, processed the same machine and panicked again. It " +
				"served no other machine of the cluster.",
			Behavior: "Admission refuses an invalid object and names the field. If an invalid object exists anyway, it " +
				"gets a condition and affects no other object. If a pass panics, the panic is caught and counts as " +
				"an error of the object.",
			Proofs: tests("test/e2e.TestBadInputIsRefusedOrHarmless"),
		},
	}
}
