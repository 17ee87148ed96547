package fidelity

// These are folders of doubles, and folders of tests that compare the doubles with real programs.
const (
	traces    = "test/apiserver/fidelity:TestTracesMatchRealServer"
	store     = "test/apiserver/"
	manager   = "test/controllermanager/"
	scenarios = "test/controllermanager/fidelity:"
	policies  = "test/api:TestPoliciesAdmitValidValues"
)

// apiServer returns the behaviors of kube-apiserver that test/apiserver implements.
func apiServer() []Behaviour {
	return []Behaviour{
		{Name: "Creation: generated names, defaults, and fields that a creation cannot set",
			Doubles: []string{store + "write.go:insert", store + "store.go:generateName", store + "strategy.go:create",
				store + "builtin.go:create", store + "custom.go:newUntypedStrategy"},
			Tests: []string{traces}},
		{Name: "CustomResourceDefinitions: schemas, pruning, defaults and rules",
			Doubles: []string{store + "crd/schema.go:Admit", store + "crd/admit.go:object", store + "crd/rules.go:compileRules",
				store + "crd/fields.go:fieldsOf"},
			Tests: []string{traces}},
		{Name: "Optimistic locking, and errors with precedence over it: preconditions, missing and invalid objects",
			Doubles: []string{store + "write.go:update", store + "write.go:conflict", store + "client.go:target"},
			Tests:   []string{traces}},
		{Name: "Merge and JSON patches, and writes without a change",
			Doubles: []string{store + "patch.go:merge", store + "diff.go:mergePatchOf", store + "write.go:replace",
				store + "codec.go:decode", store + "text.go:AppendText"},
			Tests: []string{traces}},
		{Name: "Generations and the subresources status, scale and approval",
			Doubles: []string{store + "subresource.go:SubResource", store + "scale.go:scaleOf", store + "strategy.go:update",
				store + "signing.go:update"},
			Tests: []string{traces, scenarios + "TestCertificatesAreSigned"}},
		{Name: "Server-side apply: owners of single labels and annotations, and conflicts between them",
			Doubles: []string{store + "apply.go:Apply", store + "managed.go:managedFields"},
			Tests:   []string{traces},
			Why:     "The double has no owners of other fields, and merges them without conflicts."},
		{Name: "Deletion: finalizers, repeated deletion, preconditions, propagation policies",
			Doubles: []string{store + "delete.go:delete", store + "delete.go:collectorFinalizers"},
			Tests:   []string{traces}},
		{Name: "Graceful deletion of pods: at once without a node, and the grace period can only be shortened",
			Doubles: []string{store + "delete.go:shorten", store + "pod.go:grace"},
			Tests:   []string{traces, scenarios + "TestUnscheduledPod"}},
		{Name: "Eviction: budgets, unready pods, several budgets, a budget without a current status",
			Doubles: []string{store + "evict.go:evict", store + "evict.go:checkAndDecrement"},
			Tests:   []string{traces, scenarios + "TestEvictions", scenarios + "TestDisruptionBudgetsCountPods"}},
		{Name: "Secrets and ConfigMaps: types, stringData, immutability",
			Doubles: []string{store + "secret.go:mergeStringData", store + "secret.go:checkImmutable"},
			Tests:   []string{traces}},
		{Name: "Lists: label and field selectors, resource versions",
			Doubles: []string{store + "read.go:List", store + "kinds.go:builtRegistry"},
			Tests:   []string{traces}},
		{Name: "Watches: each change once and in order, and a deletion with its own resource version",
			Doubles: []string{store + "store.go:Changes", store + "store.go:commit", "test/simulation/cache.go:advance"},
			Tests:   []string{"test/apiserver/fidelity:TestWatchesMatchRealServer"}},
		{Name: "A lost watch: an informer lists again, merges changes, and detects deletions by missing objects",
			Doubles: []string{"test/simulation/relist.go:relist", "test/simulation/cache.go:fill"},
			Why: "This is the behaviour of the reflector of client-go with any server, and client-go documents it: " +
				"https://pkg.go.dev/k8s.io/client-go/tools/cache#DeletedFinalStateUnknown. The end-to-end tests of outages " +
				"interrupt real watches."},
		{Name: "A namespace that is being deleted refuses new objects, and allows all other requests",
			Doubles: []string{store + "namespace.go:terminateNamespace", store + "namespace.go:checkNamespace"},
			Tests:   []string{"test/apiserver/fidelity:TestNamespaceDeletion", scenarios + "TestNamespaceDeletion"}},
		{Name: "The deletion of a definition deletes its objects",
			Doubles: []string{store + "custom.go:findDefinitionSteps", store + "custom.go:served"},
			Tests:   []string{"test/apiserver/fidelity:TestDefinitionDeletion"}},
		{Name: "Admission policies with expressions over the request",
			Doubles: []string{store + "policy.go:admit"}, Tests: []string{policies},
			Why: "The test with the real server covers only the policies of Machinist, one at a time. If two policies refuse a " +
				"request, the message may come from either."},
	}
}

// controllers returns the behaviors of kube-controller-manager and kube-scheduler that doubles implement.
func controllers() []Behaviour {
	return []Behaviour{
		{Name: "Garbage collection: background, foreground, orphans, and dependents with another owner",
			Doubles: []string{store + "background.go:collect", store + "background.go:run"},
			Tests: []string{scenarios + "TestDependentsAreDeletedWithOwner",
				scenarios + "TestOwnerWithFinalizerKeepsDependents"}},
		{Name: "Deletion of namespaces: first pods, then other objects, then the namespace",
			Doubles: []string{store + "namespace.go:findNamespaceSteps"}, Tests: []string{scenarios + "TestNamespaceDeletion"}},
		{Name: "Disruption budgets count pods: finished, being deleted, evicted, without a controller",
			Doubles: []string{store + "disruption.go:budgetStatus", store + "disruption.go:expectedPods"},
			Tests:   []string{scenarios + "TestDisruptionBudgetsCountPods"}},
		{Name: "A silent node: its conditions become Unknown and its pods not ready, until it returns",
			Doubles: []string{manager + "nodes.go:withUnknownConditions", manager + "nodes.go:nodeChoices"},
			Tests:   []string{scenarios + "TestSilentNode", scenarios + "TestNodeWithoutStatus"},
			Why:     "If all nodes of a zone are silent, the double evicts pods, but the real controller does not."},
		{Name: "Taints for conditions and cordons, with one loop for each effect",
			Doubles: []string{manager + "nodes.go:noSchedule", manager + "nodes.go:noExecute"},
			Tests: []string{scenarios + "TestTaintsFollowConditions", scenarios + "TestNotReadyNode",
				scenarios + "TestSilentNode"}},
		{Name: "Eviction by taints after tolerationSeconds, and the condition of the pod before it",
			Doubles: []string{manager + "pods.go:evict", manager + "pods.go:mustEvict", manager + "manager.go:Due"},
			Tests:   []string{scenarios + "TestSilentNode", scenarios + "TestNotReadyNode"}},
		{Name: "Pods that are being deleted on an out-of-service node fail and are removed, unless the node is ready",
			Doubles: []string{manager + "pods.go:collect", manager + "pods.go:collectable"},
			Tests:   []string{scenarios + "TestOutOfServiceNode", scenarios + "TestReadyOutOfServiceNode"}},
		{Name: "Pods of a deleted node fail and are removed",
			Doubles: []string{manager + "pods.go:collect"}, Tests: []string{scenarios + "TestPodsOfDeletedNode"},
			Why: "The real collector waits at least 40 seconds, so the test is a part of make e2e."},
		{Name: "A ReplicaSet replaces a pod when its deletion begins, and a StatefulSet in order and after its removal",
			Doubles: []string{manager + "workloads.go:Missing", manager + "workloads.go:nextInOrder",
				world + "pods.go:podsToCreate"},
			Tests: []string{scenarios + "TestReplicaSetReplacesPods", scenarios + "TestStatefulSetReplacesPodsInOrder"}},
		{Name: "A DaemonSet has a pod on each node whose taints it tolerates, including cordoned and silent nodes",
			Doubles: []string{manager + "workloads.go:missingDaemons", manager + "workloads.go:DaemonTolerations"},
			Tests:   []string{scenarios + "TestDaemonSetRunsOnToleratedNodes"}},
		{Name: "Scheduling depends on cordons and taints, not on the condition Ready, and prefers untainted nodes",
			Doubles: []string{manager + "workloads.go:schedule", manager + "workloads.go:Schedulable"},
			Tests:   []string{scenarios + "TestReplicaSetReplacesPods"}},
		{Name: "Approved certificate requests are signed, or fail",
			Doubles: []string{manager + "secrets.go:signatures"}, Tests: []string{scenarios + "TestCertificatesAreSigned"}},
		{Name: "Expired bootstrap tokens are deleted",
			Doubles: []string{manager + "secrets.go:expiredTokens"}, Tests: []string{scenarios + "TestExpiredTokensAreDeleted"}},
		{Name: "Volumes: attached when a pod is bound, to one node at a time, and detached when unused",
			Doubles: []string{manager + "volumes.go:volumeChoices", manager + "volumes.go:attachedChoices"},
			Tests: []string{scenarios + "TestVolumeFollowsPod", scenarios + "TestVolumeOfPodThatNeverRan",
				scenarios + "TestVolumeIsAttachedToOneNode", scenarios + "TestVolumesOfUnmanagedNode"}},
		{Name: "Volumes of a deleted or out-of-service node: used volumes remain attached, or are detached by force",
			Doubles: []string{manager + "volumes.go:detachable", manager + "volumes.go:observeVolumes"},
			Tests: []string{scenarios + "TestVolumesOfOutOfServiceNode", scenarios + "TestVolumesOfReadyOutOfServiceNode",
				scenarios + "TestVolumesOfDeletedNode"}},
		{Name: "Volumes are detached by force after six minutes if a node is deleted or not ready",
			Doubles: []string{manager + "volumes.go:volumesDue"}, Tests: []string{scenarios + "TestVolumesAreDetachedByForce"},
			Why: "No flag shortens the six minutes, so the test is a part of make e2e FULL=1."},
	}
}
