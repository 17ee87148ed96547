package fidelity

const (
	world      = "test/simulation/"
	hosts      = "simcloud/host/"
	openstack  = "providers/openstack/e2e:"
	libvirt    = "providers/libvirt/e2e:"
	machines   = "providers/libvirt/vm:"
	kubelets   = "test/realnode/fidelity:"
	ec2        = "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/"
	throttling = "https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling"
)

// worldKubelet says what of the deterministic world's kubelets a comparison leaves out.
const worldKubelet = "The real one is compared with the machines of the simulated cloud. The deterministic world's " +
	"kubelets do the same in fewer steps."

// nodes is what doubles do of kubelets and of what runs beside them.
func nodes() []Behaviour {
	return []Behaviour{
		{Name: "A kubelet registers once, as not ready, and is ready later; started anew it registers a Node that is gone",
			Doubles: []string{world + "hosts.go:register", world + "hosts.go:report", hosts + "node.go:register",
				hosts + "nodestatus.go:node"},
			Tests: []string{kubelets + "TestAKubeletRegistersItsNode", kubelets + "TestANodeThatIsDeleted"},
			Why:   worldKubelet},
		{Name: "A kubelet sets few labels anew, its status wholly, and leaves what is not its own",
			Doubles: []string{world + "hosts.go:setReady", hosts + "node.go:updated"},
			Tests:   []string{kubelets + "TestWhatOthersWriteOnANode"}, Why: worldKubelet},
		{Name: "A kubelet does not start with labels that are Kubernetes' own",
			Doubles: []string{hosts + "bootstrap.go:kubeletMaySet"},
			Tests:   []string{kubelets + "TestWhichLabelsAKubeletStartsWith"}},
		{Name: "A kubelet joins by a bootstrap token that has not expired, and asks for certificates",
			Doubles: []string{world + "hosts.go:tokenGood", world + "approval.go:signing", world + "approval.go:request",
				hosts + "bootstrap.go:parseBootstrap", hosts + "certificate.go:requestCertificate",
				hosts + "serving.go:requestServingCertificate"},
			Tests: []string{kubelets + "TestAKubeletAsksForItsCertificate",
				kubelets + "TestAKubeletAsksForACertificateToServeWith"},
			Why: worldKubelet},
		{Name: "A kubelet renews its Lease and compares its status",
			Doubles: []string{hosts + "heartbeat.go:heartbeat"},
			Tests:   []string{kubelets + "TestWhatComesWithANode", kubelets + "TestHowOftenALeaseIsRenewed"}},
		{Name: "A kubelet starts pods, and reports the end of one before it removes it",
			Doubles: []string{world + "pods.go:fateOf", hosts + "pods.go:simulatePods", hosts + "podstatus.go:status"},
			Tests: []string{kubelets + "TestAPodRunsAndIsDeleted", kubelets + "TestAPodThatIsKilled",
				kubelets + "TestAPodWithAFinalizer", kubelets + "TestPodsThatEnd"}, Why: worldKubelet},
		{Name: "A kubelet restarts containers, at once and then after a while",
			Doubles: []string{hosts + "pod.go:next"},
			Tests:   []string{kubelets + "TestPodsThatRestart", kubelets + "TestPodsThatAreDeletedBeforeARestart"}},
		{Name: "How long a kubelet waits between two tries, and what it has recorded as events",
			Doubles: []string{hosts + "machine.go:registrationBackoff", hosts + "events.go:recordPodEvents"},
			Why: "Both follow its source: a test of minutes would only repeat it. " +
				"https://github.com/kubernetes/kubernetes/tree/v1.36.3/pkg/kubelet"},
		{Name: "What cloud-init writes on a machine",
			Doubles: []string{hosts + "userdata.go:parseUserData"},
			Tests:   []string{machines + "TestAMachineBootsJoinsRunsAPodAndGoes"}},
		{Name: "A kubelet of a machine that boots anew starts its pods anew, or fails those that never restart",
			Doubles: []string{hosts + "pod.go:reboot"},
			Why: "A container cannot boot the machine that it is on. docs/simulated-cloud.md says what was measured in a " +
				"virtual machine."},
		{Name: "An agent on a node changes the version of its kubelet",
			Doubles: []string{world + "agent.go:agents", hosts + "agent.go:handleUpdateRequest"},
			Tests:   []string{machines + "TestAnAgentUpgradesAVersionInPlace"},
			Why:     "Machinist's own convention: its end-to-end test runs the example of an agent."},
		{Name: "A cloud controller manager sets provider IDs and deletes Nodes of what is gone",
			Doubles: []string{world + "hosts.go:setProviderID", hosts + "cloudcontroller.go:setCloudFields"},
			Why: "No cloud's is here. What all have in common: " +
				"https://kubernetes.io/docs/concepts/architecture/cloud-controller/"},
		{Name: "A kubelet reports the volumes that it may have mounted before it starts a pod, and until it has let go",
			Doubles: []string{world + "pods_volumes.go:mountedOn", world + "pods_volumes.go:mountable"},
			Why: "It takes a CSI driver on the node, and there is none here: " +
				"https://kubernetes.io/docs/concepts/storage/volumes/#csi"},
		{Name: "A storage driver attaches and detaches what VolumeAttachments ask for, behind a finalizer",
			Doubles: []string{world + "pods_volumes.go:drives"},
			Why:     "No storage is here. All drivers have this program: https://github.com/kubernetes-csi/external-attacher"},
	}
}

// outside is what doubles do of other programs.
func outside() []Behaviour {
	return []Behaviour{
		{Name: "An autoscaler reads sizes, marks machines and writes sizes, one request after the other",
			Doubles: []string{world + "autoscaler.go:act", world + "autoscaler_calls.go:decide"},
			Tests:   []string{"test/e2e:TestAnAutoscalerScalesFromZeroAndBack"},
			Why:     "The order of its requests follows its source, https://github.com/kubernetes/autoscaler."},
		{Name: "A system whose fleet is taken over: it stops with its workload or its Lease, and deletes what is its own",
			Doubles: []string{world + "legacy.go:mayAct", world + "legacy_cloud.go:Locate"},
			Why: "None of these systems is here: their definitions are, in test/manifests/sources, and their source is " +
				"public, https://github.com/gardener/machine-controller-manager among them. The stand-in of the end-to-end " +
				"tests is another double, written for itself."},
	}
}

// clouds is what doubles do of infrastructure clouds.
func clouds() []Behaviour {
	conformance := []string{openstack + "TestTheDriverConforms", libvirt + "TestTheDriverConforms",
		libvirt + "TestTheDriverConformsAtTheSimulatedHypervisor", "simcloud/driver:TestTheDriverConforms",
		"test/simulation:TestTheCloudConforms", "test/fakecloud:TestTheCloudConforms"}
	return []Behaviour{
		{Name: "Creation once per token, tags, names, absence, deletion twice, pages: the contract of drivers",
			Doubles: []string{"simcloud/cloud/operations.go:Create", world + "cloud_driver.go:Create",
				"test/fakecloud/driver.go:create"},
			Tests: conformance},
		{Name: "The cloud of the reconcilers' tests: reads behind by a time, and steps that a test writes",
			Doubles: []string{"test/fakecloud/read.go:read", "test/fakecloud/cloud.go:tick", "test/fakecloud/script.go:Step"},
			Why: "Each is what the contract of drivers allows, which the tests that use it name: " +
				"https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html"},
		{Name: "An instance that the cloud announces to remove, and removes",
			Doubles: []string{world + "interruption.go:reclaim"},
			Why:     "OpenStack and libvirt never do. Documented for EC2: " + ec2 + "spot-instance-termination-notices.html"},
		{Name: "Reads, lists and tags that lag, each by itself, and lists that lack or repeat entries",
			Doubles: []string{"simcloud/semantics.go:Semantics", world + "semantics.go:ReadsLate",
				world + "semantics.go:ReadsFlicker", world + "semantics.go:TagsLate", world + "semantics.go:ListsLate",
				world + "semantics.go:ListsShort", world + "semantics.go:ListsRepeat"},
			Why: "OpenStack and libvirt read their own database. Documented for EC2: " +
				"https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html"},
		{Name: "What is gone is still shown, and a state goes back",
			Doubles: []string{world + "semantics.go:ReadsStale", world + "semantics.go:ListsReturn",
				world + "semantics.go:StateGoesBack"},
			Why: "Documented for EC2, which shows terminated instances for an hour: " + ec2 + "terminating-instances.html"},
		{Name: "Answers that are lost, and calls that are carried out after they failed",
			Doubles: []string{world + "semantics.go:AnswersLost", world + "semantics.go:DoneLate"},
			Tests:   []string{openstack + "TestRabbitMQIsKilledInTheMiddleOfTwentyCreations"}},
		{Name: "Too many calls", Doubles: []string{world + "semantics.go:ThrottledOften"},
			Why: "OpenStack as it is installed here limits no calls. Documented for Azure: " + throttling},
		{Name: "Instances that are accepted and fail",
			Doubles: []string{world + "semantics.go:NoHost", world + "semantics.go:GivesUp",
				world + "semantics_failures.go:giveUp"},
			Tests: []string{openstack + "TestAFlavorThatFitsNoHost",
				openstack + "TestAnImageIsDeletedBetweenCreateAndBoot"}},
		{Name: "An instance that is reported failed and runs on",
			Doubles: []string{world + "semantics.go:ReportsFailed"},
			Tests:   []string{openstack + "TestAServerInErrorAndOneDeletedBehindOurBack"}},
		{Name: "Parts that remain, or are attached late",
			Doubles: []string{world + "semantics.go:PartsRemain", world + "semantics.go:PartsUnattached"},
			Tests:   []string{openstack + "TestPartsThatAKilledProviderLeft"}},
		{Name: "Quota that is used up, and frees late", Doubles: []string{world + "semantics.go:QuotaFreesLate"},
			Tests: []string{openstack + "TestAQuotaIsUsedUpAndFreed"},
			Why:   "At OpenStack it frees at once, at others late: https://learn.microsoft.com/azure/quotas/quotas-overview"},
		{Name: "Credentials that are refused for a while", Doubles: []string{world + "semantics.go:CredentialsExpire"},
			Tests: []string{openstack + "TestKeystoneTakesTokensAndCredentialsBack"}},
		{Name: "Clocks that differ", Doubles: []string{world + "semantics.go:ClockAhead", world + "semantics.go:ClockBehind"},
			Why: "All clouds here run on this machine's clock."},
		{Name: "A hypervisor that stops, and machines whose process was killed",
			Doubles: []string{"simcloud/cloud/operations.go:AddFault"},
			Tests:   []string{libvirt + "TestAKilledQEMUIsAStoppedMachine", libvirt + "TestLibvirtdIsStartedAnew"}},
	}
}

// Gaps returns what the real things do and no double.
func Gaps() []Gap {
	return []Gap{
		{"Lists in pages, and tokens of pages that expire", "The store never pages, so no client of it meets one."},
		{"Old resource versions are refused after compaction", "The store keeps all. A lost watch stands for it."},
		{"Periods and rates of kube-controller-manager", "Its double may act at once, in any order, and as late as others " +
			"leave it time: these are more runs than the real one has."},
		{"Pods that all end together are spared when a whole zone is silent", "The double ends them: this is crueller."},
		{"Requests for certificates are deleted an hour after their decision", "No run is so long."},
		{"Volumes whose driver never attaches them: they are given up after two minutes", "The world's driver always does."},
		{"What the attach-detach controller forgets when it starts anew", "Nobody restarts the world's controllers."},
		{"Finalizers of a Job's pods, and that a finished Job makes no other pod", "A drain waits for no pod that ended."},
		{"Pods that no node takes wait for one", "The double makes a pod when there is a node for it."},
		{"Node status and Leases by the minute", "The world knows which kubelet is silent: heartbeats would only cost steps."},
	}
}
