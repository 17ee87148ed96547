package fidelity

// The tests that compare.
const (
	traces   = "test/apiserver/fidelity:TestSameAsRealServer"
	store    = "test/apiserver/"
	manager  = "test/controllermanager/"
	stories  = "test/controllermanager/fidelity:"
	policies = "test/api:TestPoliciesAdmitWhatMeansSomething"
)

// apiServer is what the store of test/apiserver does of a kube-apiserver.
func apiServer() []Behaviour {
	return []Behaviour{
		{Name: "Creation: generated names, defaults, what a creation may not say",
			Doubles: []string{store + "write.go:insert", store + "store.go:generateName", store + "strategy.go:create",
				store + "builtin.go:create", store + "custom.go:newUntypedStrategy"},
			Tests: []string{traces}},
		{Name: "Schemas, pruning, defaults and rules of CustomResourceDefinitions",
			Doubles: []string{store + "crd/schema.go:Admit", store + "crd/admit.go:object", store + "crd/rules.go:compileRules",
				store + "crd/fields.go:fieldsOf"},
			Tests: []string{traces}},
		{Name: "Optimistic locking, and what wins before it: preconditions, a missing object, an invalid one",
			Doubles: []string{store + "write.go:update", store + "write.go:conflict", store + "client.go:target"},
			Tests:   []string{traces}},
		{Name: "Merge and JSON patches, and writes that change nothing and leave no trace",
			Doubles: []string{store + "patch.go:merge", store + "diff.go:mergePatchOf", store + "write.go:replace",
				store + "codec.go:decode", store + "text.go:AppendText"},
			Tests: []string{traces}},
		{Name: "Generations and the subresources status, scale and approval",
			Doubles: []string{store + "subresource.go:SubResource", store + "scale.go:scaleOf", store + "strategy.go:update",
				store + "signing.go:update"},
			Tests: []string{traces, stories + "TestCertificatesAreSigned"}},
		{Name: "Server-side apply: owners of single labels and annotations, and conflicts over them",
			Doubles: []string{store + "apply.go:Apply", store + "managed.go:managed"},
			Tests:   []string{traces},
			Why:     "Owners of other fields are not imitated: they are merged without conflicts."},
		{Name: "Finalizers, deletion twice, preconditions of a deletion, propagation policies",
			Doubles: []string{store + "delete.go:delete", store + "delete.go:collectorFinalizers"},
			Tests:   []string{traces}},
		{Name: "Pods end gracefully, at once where none runs them, and their grace only gets shorter",
			Doubles: []string{store + "delete.go:shorten", store + "pod.go:grace"},
			Tests:   []string{traces, stories + "TestAPodWithoutANode"}},
		{Name: "Eviction: budgets, unready pods, several budgets, a budget that is not counted yet",
			Doubles: []string{store + "evict.go:evict", store + "evict.go:spend"},
			Tests:   []string{traces, stories + "TestEvictions", stories + "TestDisruptionBudgetsCountPods"}},
		{Name: "Secrets and ConfigMaps: types, stringData, immutability",
			Doubles: []string{store + "secret.go:folded", store + "secret.go:frozen"},
			Tests:   []string{traces}},
		{Name: "Lists: selectors of labels and fields, resource versions",
			Doubles: []string{store + "read.go:List", store + "kinds.go:builtRegistry"},
			Tests:   []string{traces}},
		{Name: "Watches: each change once and in order, a deletion with its own resource version",
			Doubles: []string{store + "store.go:Changes", store + "store.go:commit", "test/simulation/cache.go:advance"},
			Tests:   []string{"test/apiserver/fidelity:TestWatchesSeeTheSame"}},
		{Name: "A watch that is lost: an informer lists anew, changes merge, deletions are known by absence",
			Doubles: []string{"test/simulation/relist.go:relist", "test/simulation/cache.go:fill"},
			Why: "It is client-go's reflector that does this, with any server, and its store documents it: " +
				"https://pkg.go.dev/k8s.io/client-go/tools/cache#DeletedFinalStateUnknown. The end-to-end tests of outages " +
				"cut real watches."},
		{Name: "A namespace that ends takes nothing new, and all else goes on",
			Doubles: []string{store + "namespace.go:terminate", store + "namespace.go:terminating"},
			Tests:   []string{"test/apiserver/fidelity:TestTheEndOfANamespace", stories + "TestNamespacesEnd"}},
		{Name: "A definition that is deleted takes its objects with it",
			Doubles: []string{store + "custom.go:findUndefined", store + "custom.go:served"},
			Tests:   []string{"test/apiserver/fidelity:TestTheEndOfADefinition"}},
		{Name: "Admission policies refuse by expressions over the request",
			Doubles: []string{store + "policy.go:admit"}, Tests: []string{policies},
			Why: "Only Machinist's own policies are tried at the real server, each at one time. Where two refuse, either " +
				"message is right."},
	}
}

// controllers is what doubles do of kube-controller-manager and kube-scheduler.
func controllers() []Behaviour {
	return []Behaviour{
		{Name: "Garbage: dependents go in the background or foreground, or are orphaned; another owner keeps them",
			Doubles: []string{store + "background.go:collect", store + "background.go:run"},
			Tests: []string{stories + "TestDependentsGoWithTheirOwner",
				stories + "TestAnOwnerThatIsHeldKeepsItsDependents"}},
		{Name: "Namespaces: pods end before anything else, and the namespace waits for all",
			Doubles: []string{store + "namespace.go:findEnds"}, Tests: []string{stories + "TestNamespacesEnd"}},
		{Name: "Disruption budgets count pods: ended, ending, evicted, without a controller",
			Doubles: []string{store + "disruption.go:budgetStatus", store + "disruption.go:expected"},
			Tests:   []string{stories + "TestDisruptionBudgetsCountPods"}},
		{Name: "A silent node: its conditions become unknown, its pods unready, and all of it comes back",
			Doubles: []string{manager + "nodes.go:unheardOf", manager + "nodes.go:nodeChoices"},
			Tests:   []string{stories + "TestASilentNode", stories + "TestANodeThatNeverReported"},
			Why:     "When all nodes of a zone are silent the real one ends no pods; the double does."},
		{Name: "Taints follow conditions and cordons, one loop for each effect",
			Doubles: []string{manager + "nodes.go:noSchedule", manager + "nodes.go:noExecute"},
			Tests: []string{stories + "TestTaintsFollowWhatANodeIs", stories + "TestANodeThatIsNotReady",
				stories + "TestASilentNode"}},
		{Name: "Pods end by taints that they do not tolerate, or no longer, and their status reports it before",
			Doubles: []string{manager + "pods.go:evict", manager + "pods.go:mustGo", manager + "manager.go:Due"},
			Tests:   []string{stories + "TestASilentNode", stories + "TestANodeThatIsNotReady"}},
		{Name: "Pods that end on a node out of service fail and are removed, unless the node is ready",
			Doubles: []string{manager + "pods.go:collect", manager + "pods.go:collectable"},
			Tests:   []string{stories + "TestANodeOutOfService", stories + "TestAReadyNodeOutOfService"}},
		{Name: "Pods of a node that is gone fail and are removed",
			Doubles: []string{manager + "pods.go:collect"}, Tests: []string{stories + "TestPodsOfANodeThatIsGone"},
			Why: "The real collector takes 40 seconds and more to believe it, so the test is one of make e2e."},
		{Name: "A ReplicaSet replaces a pod when it is asked to end, a StatefulSet in order and when it is gone",
			Doubles: []string{manager + "workloads.go:Missing", manager + "workloads.go:nextInOrder", world + "pods.go:toMake"},
			Tests:   []string{stories + "TestAReplicaSetReplacesItsPods", stories + "TestAStatefulSetWaitsForItsPods"}},
		{Name: "A DaemonSet has a pod on each node whose taints it tolerates, cordoned or silent",
			Doubles: []string{manager + "workloads.go:missingDaemons", manager + "workloads.go:DaemonTolerations"},
			Tests:   []string{stories + "TestADaemonSetIsOnEveryNode"}},
		{Name: "The scheduler heeds cordons and taints, not whether a node is ready, and some taints only if it can",
			Doubles: []string{manager + "workloads.go:schedule", manager + "workloads.go:Schedulable"},
			Tests:   []string{stories + "TestAReplicaSetReplacesItsPods"}},
		{Name: "Certificates that were approved are signed, or fail",
			Doubles: []string{manager + "secrets.go:signatures"}, Tests: []string{stories + "TestCertificatesAreSigned"}},
		{Name: "Bootstrap tokens go when they expire",
			Doubles: []string{manager + "secrets.go:expiredTokens"}, Tests: []string{stories + "TestTokensGoWhenTheyExpire"}},
		{Name: "Volumes: attached when a pod is bound, to one node at a time, and detached when nothing uses them",
			Doubles: []string{manager + "volumes.go:volumeChoices", manager + "volumes.go:attachedChoices"},
			Tests: []string{stories + "TestAVolumeComesAndGoesWithItsPod", stories + "TestAVolumeOfAPodThatNeverRan",
				stories + "TestAVolumeIsAttachedToOneNode", stories + "TestVolumesOfAKubeletThatAttachesItself"}},
		{Name: "Volumes of a node that is out of service or gone: what a kubelet had in use stays, or is torn from it",
			Doubles: []string{manager + "volumes.go:detachable", manager + "volumes.go:observeVolumes"},
			Tests: []string{stories + "TestVolumesOfANodeOutOfService", stories + "TestVolumesOfAReadyNodeOutOfService",
				stories + "TestVolumesOfANodeThatIsDeleted"}},
		{Name: "Volumes are detached by force after six minutes where a node is gone or not ready",
			Doubles: []string{manager + "volumes.go:volumesDue"}, Tests: []string{stories + "TestVolumesAreDetachedByForce"},
			Why: "No flag shortens the six minutes, so the test is one of make e2e FULL=1."},
	}
}
