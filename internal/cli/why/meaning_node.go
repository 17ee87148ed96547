package why

import "machinist.dev/machinist/api/v1beta1"

const (
	restoreAPIServer = "Restore the API server that the message names, or the connection from the Machinist processes to it."
	mayRecover       = "The Node may recover. If the Node does not recover, a health policy requests the replacement of the machine."
)

func nodeMeanings() map[string]Meaning {
	return map[string]Meaning{
		v1beta1.ReasonNodeRegistered: {Explanation: "The Node of the machine is registered in the cluster."},
		v1beta1.ReasonWaitingForNode: {
			Explanation:  "The instance runs, but has not joined the cluster as a Node yet.",
			NextStep:     "Machinist continues when the Node registers.",
			Instructions: "If this takes long, inspect the console of the instance: " + joinQuestions + "To see the certificate requests: kubectl get csr",
		},
		v1beta1.ReasonClientCertificateNotApproved: {
			Explanation:  "A request of the machine's kubelet for a client certificate is not approved. Without the certificate, the Node does not join, or stops reporting.",
			NextStep:     "Machinist checks the request again when the machine or its Node changes, and when the kubelet sends another request.",
			Instructions: "The message says what is wrong with the request. If the request is correct, approve it yourself. To find the request: kubectl get csr --field-selector spec.signerName=kubernetes.io/kube-apiserver-client-kubelet",
		},
		v1beta1.ReasonServingCertificateNotApproved: {
			Explanation:  "A request of the machine's kubelet for a serving certificate is not approved. Without the certificate, `kubectl logs` and `kubectl exec` fail for pods on the Node.",
			NextStep:     "Machinist checks the request again when the provider reports other addresses of the instance, and when the kubelet sends another request.",
			Instructions: "The message says what is wrong with the request. If the request is correct, approve it yourself. To find the request: kubectl get csr --field-selector spec.signerName=kubernetes.io/kubelet-serving",
		},
		v1beta1.ReasonNoMachineSet: {
			Explanation:  "A replacement or the deletion of the machine was requested, but no MachineSet owns the machine.",
			NextStep:     "Machinist does nothing until a MachineSet adopts the machine.",
			Instructions: "To withdraw the request, remove the annotation that the message names. Otherwise, create another machine, then delete this one: kubectl delete machines.machinist.dev NAME",
		},
		v1beta1.ReasonWaitingForStartupTaints: {
			Explanation:  "The Node of the machine has joined, but still has a startup taint.",
			NextStep:     "Machinist continues when the owner of the taint, such as a network plugin, removes it.",
			Instructions: "Find out why the owner of the taint does not remove it. Its pods run on the Node.",
		},
		v1beta1.ReasonWaitingForReadinessGates: {
			Explanation:  "The Node of the machine is Ready, but a condition in spec.node.readinessGates is not True. The machine does not count as available.",
			NextStep:     "Machinist continues when the component that sets the condition reports True.",
			Instructions: "Find out why the component does not set the condition to True. To see the conditions: kubectl describe node NODE",
		},
		v1beta1.ReasonNodeConflict: {
			Explanation:  "Two machines claim one Node, or two Nodes have the provider ID of the machine. The machine gets no Node until the conflict is resolved.",
			NextStep:     "Machinist continues when only one claim is left.",
			Instructions: "Delete the wrong Node or the wrong machine.",
		},
		v1beta1.ReasonNoTargetCluster: {Explanation: "There is no target cluster that the machine could join."},
		v1beta1.ConditionRegistered + "/" + v1beta1.ReasonInvalidConfiguration: {
			Explanation:  "The labels, annotations or taints in spec.node are invalid, so the Node cannot have them.",
			NextStep:     untilChanged,
			Instructions: "Correct them in the template of the deployment. Existing machines are updated in place.",
		},
		v1beta1.ConditionRegistered + "/" +
			v1beta1.ReasonReplacing: {Explanation: "The Node was removed with the old instance. The new instance has not joined yet."},

		v1beta1.ReasonNodeReady: {Explanation: "The Node of the machine is Ready."},
		v1beta1.ReasonNodeNotReady: {Explanation: "The kubelet reports that the Node of the machine is not Ready.",
			NextStep:     mayRecover,
			Instructions: "To see the problem that the kubelet reports: kubectl describe node NODE"},
		v1beta1.ReasonNodeUnresponsive: {
			Explanation:  "The kubelet of the machine's Node has stopped reporting its status.",
			NextStep:     mayRecover,
			Instructions: "Inspect the instance in the cloud: does it run, and does its network work?",
		},
		v1beta1.ReasonInstanceStopped: {
			Explanation:  "The instance of the machine was stopped in the cloud, and not by Machinist.",
			NextStep:     "Machinist continues when the instance runs again. Otherwise, a health policy requests the replacement of the machine.",
			Instructions: "Start the instance in the cloud. To replace the machine instead: kubectl delete machines.machinist.dev NAME",
		},
		v1beta1.ReasonStopped: {
			Explanation:  "Machinist has stopped the instance of the machine, because spec.powerState is Stopped.",
			NextStep:     "The instance stays stopped until spec.powerState is Running.",
			Instructions: "To start the instance, set spec.powerState to Running: kubectl edit machines.machinist.dev NAME",
		},
		v1beta1.ReasonRunning: {Explanation: "The instance of the machine runs, as spec.powerState requests."},
		v1beta1.ReasonShuttingDown: {
			Explanation: "The Node of the machine was drained, and its instance is shutting down.",
			NextStep:    "If the instance still runs after 5 minutes, Machinist stops it without waiting for its operating system.",
		},
		v1beta1.ReasonStarting: {
			Explanation: "Machinist is starting the instance of the machine.",
			NextStep:    "When the Node is Ready again, Machinist uncordons it.",
		},
		v1beta1.ReasonPowerNotSupported: {
			Explanation:  "The provider cannot stop and start the instance of the machine. The instance stays as it is.",
			NextStep:     "Machinist tries again when the spec of the machine changes.",
			Instructions: "Remove spec.powerState: kubectl edit machines.machinist.dev NAME",
		},
		v1beta1.ReasonPowerError: {
			Explanation:  "The provider failed to stop or to start the instance of the machine.",
			NextStep:     "Machinist tries again automatically.",
			Instructions: "Fix the cause that the message names. To leave the instance as it is, remove spec.powerState: kubectl edit machines.machinist.dev NAME",
		},
		v1beta1.ConditionRebooted + "/" + v1beta1.ReasonStopped: {
			Explanation:  "A reboot of the machine's instance was requested, but spec.powerState is Stopped.",
			NextStep:     "The instance is rebooted when it runs again.",
			Instructions: "Set spec.powerState of the machine to Running.",
		},
		v1beta1.ConditionRebooted + "/" + v1beta1.ReasonPowerNotSupported: {
			Explanation:  "A reboot of the machine's instance was requested, but the provider cannot stop and start the instance.",
			NextStep:     "The instance stays as it is.",
			Instructions: "To replace the machine instead: kubectl annotate machines.machinist.dev NAME " + v1beta1.AnnotationReplace + "=",
		},
		v1beta1.ConditionRebooted + "/" + v1beta1.ReasonPowerError: {
			Explanation:  "The provider failed to stop or to start the instance for a reboot.",
			NextStep:     "Machinist tries again automatically.",
			Instructions: "Fix the cause that the message names. To replace the machine instead: kubectl annotate machines.machinist.dev NAME " + v1beta1.AnnotationReplace + "=",
		},
		v1beta1.ReasonRebooted: {Explanation: "The instance of the machine was rebooted, and its Node is Ready again."},
		v1beta1.ReasonBooting: {
			Explanation: "The instance of the machine was started again after a reboot, and its Node is not Ready yet.",
			NextStep:    "When the Node is Ready, Machinist uncordons it. If this takes longer than spec.timeouts.creation, the reboot has failed.",
		},
		v1beta1.ReasonRebootFailed: {
			Explanation:  "The Node did not become Ready after a reboot of its instance.",
			NextStep:     mayRecover,
			Instructions: "Inspect the console of the instance. To reboot the instance again: kubectl annotate --overwrite machines.machinist.dev NAME " + v1beta1.AnnotationReboot + "=\"$(date +%s)\"",
		},
		v1beta1.ReasonRebootCancelled: {
			Explanation:  "A reboot of the machine's instance ended early. The message says why.",
			NextStep:     "The instance is not rebooted for this request any more.",
			Instructions: "To request another reboot: kubectl annotate --overwrite machines.machinist.dev NAME " + v1beta1.AnnotationReboot + "=\"$(date +%s)\"",
		},
		v1beta1.ReasonNodeConditionsFailed: {Explanation: "The Node of the machine is Ready, but reports a problem in another condition.",
			NextStep:     "A health policy that names this condition requests the replacement of the machine.",
			Instructions: "To see the conditions: kubectl describe node NODE"},
		v1beta1.ReasonNodeGone: {Explanation: "The Node of the machine was deleted from the cluster by another client, not by Machinist.",
			NextStep:     "A health policy requests the replacement of the machine at once, unless the machine is paused, preserved or exempt, or too many machines are unhealthy.",
			Instructions: "To keep the machine, restart the kubelet on its instance, which registers the Node again, and exempt the machine from replacement: kubectl annotate machines.machinist.dev NAME " + v1beta1.AnnotationSkipRemediation + "="},
		v1beta1.ReasonTargetUnreachable: {
			Explanation:  "The target cluster with the Node cannot be reached. Until the cluster can be reached, no machine is marked unhealthy, replaced or drained.",
			NextStep:     "Machinist continues automatically when the cluster answers again. Timeouts do not run in the meantime.",
			Instructions: "Restore the API server of the target cluster, or the connection from the Machinist processes to it.",
		},
		v1beta1.ConditionDeleting + "/" + v1beta1.ReasonTargetUnreachable: {
			Explanation:  "The deletion waits, because the target cluster with the Node cannot be reached, so Machinist cannot see which pods it would kill.",
			NextStep:     "Machinist continues automatically when the cluster answers again. The waiting time does not count towards the deadline of the drain.",
			Instructions: "Restore the API server of the cluster. If the cluster is gone for good, delete the machine without it: kubectl annotate machines.machinist.dev NAME " + v1beta1.AnnotationForceDelete + "=",
		},
		v1beta1.ConditionDrainExtended + "/" +
			v1beta1.ReasonTargetUnreachable: {Explanation: "The target cluster was unreachable during the drain. This time does not count towards the deadline of the drain."},
	}
}
