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

const worldKubelet = "The test compares the real kubelet with the machines of the simulated cloud. The kubelets of the " +
	"deterministic simulation do the same in fewer steps."

func nodes() []Behaviour {
	return []Behaviour{
		{Name: "A kubelet registers a Node that is not ready at first, and registers a deleted Node again after a restart",
			Doubles: []string{world + "hosts.go:register", world + "hosts.go:report", hosts + "node.go:register",
				hosts + "nodestatus.go:node"},
			Tests:  []string{kubelets + "TestKubeletRegistersNode", kubelets + "TestKubeletOfDeletedNode"},
			Reason: worldKubelet},
		{Name: "A kubelet updates few labels and its whole status, and keeps fields of others",
			Doubles: []string{world + "hosts.go:setReady", hosts + "node.go:updatedNode"},
			Tests:   []string{kubelets + "TestKubeletKeepsOrRevertsChangesOfNode"}, Reason: worldKubelet},
		{Name: "A kubelet does not start with reserved labels of Kubernetes",
			Doubles: []string{hosts + "bootstrap.go:kubeletMaySet"},
			Tests:   []string{kubelets + "TestKubeletRejectsReservedLabels"}},
		{Name: "A kubelet joins with a valid bootstrap token, and requests certificates",
			Doubles: []string{world + "hosts.go:tokenGood", world + "approval.go:signing", world + "approval.go:request",
				hosts + "bootstrap.go:parseBootstrap", hosts + "certificate.go:requestCertificate",
				hosts + "serving.go:requestServingCertificate"},
			Tests: []string{kubelets + "TestKubeletRequestsClientCertificate",
				kubelets + "TestKubeletRequestsServingCertificate"},
			Reason: worldKubelet},
		{Name: "A kubelet renews its Lease, and updates its status after changes",
			Doubles: []string{hosts + "heartbeat.go:heartbeat"},
			Tests:   []string{kubelets + "TestKubeletCreatesCSINodeAndLease", kubelets + "TestKubeletRenewsLease"}},
		{Name: "A kubelet starts pods, and reports the end of a pod before it removes the pod",
			Doubles: []string{world + "pods.go:nextPodStep", hosts + "pods.go:simulatePods", hosts + "podstatus.go:status"},
			Tests: []string{kubelets + "TestPodRunsAndIsDeleted", kubelets + "TestPodIsKilledAfterGracePeriod",
				kubelets + "TestPodWithFinalizer", kubelets + "TestPodsEnd"}, Reason: worldKubelet},
		{Name: "A kubelet restarts containers, first immediately and later with backoff",
			Doubles: []string{hosts + "pod.go:next"},
			Tests:   []string{kubelets + "TestPodsRestart", kubelets + "TestPodsAreDeletedBeforeRestart"}},
		{Name: "Backoff of registration, and events of pods",
			Doubles: []string{hosts + "machine.go:registrationBackoff", hosts + "events.go:recordPodEvents"},
			Reason: "The double follows the source of the kubelet. A test would take minutes. " +
				"https://github.com/kubernetes/kubernetes/tree/v1.36.3/pkg/kubelet"},
		{Name: "Files that cloud-init writes on a machine",
			Doubles: []string{hosts + "userdata.go:parseUserData"},
			Nightly: []string{machines + "TestMachineBootsJoinsRunsPodAndIsDeleted"}},
		{Name: "After a reboot, a kubelet restarts its pods, or fails pods with restartPolicy Never",
			Doubles: []string{hosts + "pod.go:reboot"},
			Reason: "The test runs in a container, which cannot reboot its machine. docs/dev/simulated-cloud.md " +
				"contains measurements in a virtual machine."},
		{Name: "An agent updates the version of the kubelet on its node",
			Doubles: []string{world + "agent.go:agents", hosts + "agent.go:handleUpdateRequest"},
			Nightly: []string{machines + "TestAgentUpgradesVersionInPlace"},
			Reason:  "This is a convention of Machinist. The end-to-end test runs the example of an agent."},
		{Name: "A cloud controller manager sets provider IDs, and deletes Nodes without an instance",
			Doubles: []string{world + "hosts.go:setProviderID", hosts + "cloudcontroller.go:setCloudFields"},
			Reason: "No cloud controller manager of a cloud is available. Their common behaviour: " +
				"https://kubernetes.io/docs/concepts/architecture/cloud-controller/"},
		{Name: "A kubelet reports volumes as in use from before it mounts them until after it unmounts them",
			Doubles: []string{world + "pods_volumes.go:mountedOn", world + "pods_volumes.go:mountable"},
			Reason: "This needs a CSI driver on the node, and none is available: " +
				"https://kubernetes.io/docs/concepts/storage/volumes/#csi"},
		{Name: "A storage driver attaches and detaches volumes for VolumeAttachments, and protects them with a finalizer",
			Doubles: []string{world + "pods_volumes.go:drives"},
			Reason:  "No storage is available. All drivers use this program: https://github.com/kubernetes-csi/external-attacher"},
	}
}

func outside() []Behaviour {
	return []Behaviour{
		{Name: "An autoscaler reads sizes, marks machines and writes sizes, in single requests",
			Doubles: []string{world + "autoscaler.go:act", world + "autoscaler_calls.go:decide"},
			Nightly: []string{"test/e2e:TestAutoscalerScalesFromZeroAndBack"},
			Reason: "The double sends its requests in the order of the autoscaler's source, " +
				"https://github.com/kubernetes/autoscaler."},
		{Name: "The old system of a migrated fleet stops with its workload or its Lease, and deletes its own instances",
			Doubles: []string{world + "legacy.go:mayAct", world + "legacy_cloud.go:Locate"},
			Reason: "None of these systems is available, only their definitions, in test/manifests/sources. Their " +
				"source is public, for example https://github.com/gardener/machine-controller-manager. The " +
				"end-to-end tests use a second, independent double of an old system."},
	}
}

func clouds() []Behaviour {
	return []Behaviour{
		{Name: "The contract of drivers: one creation per token, tags, names, absence, repeated deletion, pages",
			Doubles: []string{"simcloud/cloud/operations.go:Create", world + "cloud_driver.go:Create",
				"test/fakecloud/driver.go:create"},
			Tests: []string{"simcloud/driver:TestTheDriverConforms", "test/simulation:TestCloudConforms",
				"test/fakecloud:TestCloudConforms"},
			Nightly: []string{openstack + "TestTheDriverConforms", libvirt + "TestTheDriverConforms",
				libvirt + "TestTheDriverConformsOnSimulatedHypervisor"}},
		{Name: "The cloud in tests of reconcilers: stale reads, and steps that a test defines",
			Doubles: []string{"test/fakecloud/read.go:read", "test/fakecloud/cloud.go:tick", "test/fakecloud/script.go:Step"},
			Reason: "The contract of drivers allows each of them: " +
				"https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html"},
		{Name: "The cloud announces the removal of an instance, and removes it",
			Doubles: []string{world + "interruption.go:reclaim"},
			Reason:  "OpenStack and libvirt do not do this. Documented for EC2: " + ec2 + "spot-instance-termination-notices.html"},
		{Name: "Stale reads, lists and tags, independent of each other, and lists with missing or repeated entries",
			Doubles: []string{"simcloud/semantics.go:Semantics", world + "semantics.go:ReadsLate",
				world + "semantics.go:ReadsFlicker", world + "semantics.go:TagsLate", world + "semantics.go:ListsLate",
				world + "semantics.go:ListsShort", world + "semantics.go:ListsRepeat"},
			Reason: "OpenStack and libvirt read their database without a delay. Documented for EC2: " +
				"https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html"},
		{Name: "Deleted instances that are still visible, and states that revert",
			Doubles: []string{world + "semantics.go:ReadsStale", world + "semantics.go:ListsReturn",
				world + "semantics.go:StateGoesBack"},
			Reason: "Documented for EC2, which lists terminated instances for an hour: " + ec2 + "terminating-instances.html"},
		{Name: "Lost responses, and calls that take effect after they failed",
			Doubles: []string{world + "semantics.go:AnswersLost", world + "semantics.go:DoneLate"},
			Nightly: []string{openstack + "TestFleetSurvivesRestartOfRabbitMQ"}},
		{Name: "Rate limits", Doubles: []string{world + "semantics.go:ThrottledOften"},
			Reason: "OpenStack as installed for the tests has no rate limits. Documented for Azure: " + throttling},
		{Name: "Instances that fail after the request was accepted",
			Doubles: []string{world + "semantics.go:NoHost", world + "semantics.go:GivesUp",
				world + "semantics_failures.go:giveUp"},
			Nightly: []string{openstack + "TestFleetSurvivesFlavorThatFitsNoHost",
				openstack + "TestMachinesWaitForDeletedImage"}},
		{Name: "An instance that is reported as failed, but continues to run",
			Doubles: []string{world + "semantics.go:ReportsFailed"},
			Nightly: []string{openstack + "TestOnlyDeletedServerIsReplaced"}},
		{Name: "An instance that is stopped and started", Doubles: []string{"test/fakecloud/power.go:SetPower"},
			Nightly: []string{openstack + "TestTheDriverConforms", libvirt + "TestTheDriverConforms"}},
		{Name: "User data that is removed after the first boot", Doubles: []string{"test/fakecloud/joined.go:Joined"},
			Reason: "The clouds of this repository do not let a driver remove user data. Documented for vSphere, where user " +
				"data is an extra option of the virtual machine: " +
				"https://developer.broadcom.com/xapis/vsphere-web-services-api/latest/"},
		{Name: "A creation that shows nothing for minutes", Doubles: []string{world + "semantics.go:CreatesHidden"},
			Reason: "No cloud of this repository does this. Documented for vSphere, where a clone is a task: " +
				"https://developer.broadcom.com/xapis/vsphere-web-services-api/latest/"},
		{Name: "Parts that remain, or are attached with a delay",
			Doubles: []string{world + "semantics.go:PartsRemain", world + "semantics.go:PartsUnattached"},
			Nightly: []string{openstack + "TestPartsOfKilledProviderAreDeleted"}},
		{Name: "An exhausted quota, which is released with a delay", Doubles: []string{world + "semantics.go:QuotaFreesLate"},
			Nightly: []string{openstack + "TestFleetGrowsWhenQuotaIsRaised"},
			Reason: "OpenStack releases quota at once, other clouds with a delay: " +
				"https://learn.microsoft.com/azure/quotas/quotas-overview"},
		{Name: "Credentials that are refused temporarily", Doubles: []string{world + "semantics.go:CredentialsExpire"},
			Nightly: []string{openstack + "TestFleetRecoversFromRevokedTokensAndCredentials"}},
		{Name: "Different clocks", Doubles: []string{world + "semantics.go:ClockAhead", world + "semantics.go:ClockBehind"},
			Reason: "All clouds of the tests use the clock of the same machine."},
		{Name: "A stopped hypervisor, and machines whose process was killed",
			Doubles: []string{"simcloud/cloud/operations.go:AddFault"},
			Nightly: []string{libvirt + "TestKilledQEMUIsReportedAsStopped", libvirt + "TestMachinesSurviveRestartOfLibvirtd"}},
	}
}

// Gaps returns the behaviors of real programs that no test double has.
func Gaps() []Gap {
	return []Gap{
		{"Paged lists, and expired continue tokens", "The store returns lists in one page."},
		{"Refusal of old resource versions after compaction", "The store keeps all versions. For a client, a lost watch has the same effect."},
		{"Periods and rates of kube-controller-manager", "The double may act in any order and after any delay. " +
			"So the simulation also covers the order and the rates of the real program."},
		{"No eviction of pods while a whole zone is silent", "The double also evicts the pods of a silent zone."},
		{"Deletion of certificate requests an hour after their decision", "No run takes so long."},
		{"Timeout after two minutes for volumes that are not attached", "The driver of the simulation attaches all volumes."},
		{"Lost state of the attach-detach controller after a restart", "The simulation does not restart its controllers."},
		{"Finalizers of the pods of a Job, and finished Jobs", "A drain does not wait for finished pods."},
		{"Pending pods without a suitable node", "The double creates a pod only when there is a node for it."},
		{"Periodic node status and Leases", "The simulation knows which kubelets are silent. " +
			"Simulated heartbeats would only make runs longer."},
	}
}
