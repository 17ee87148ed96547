package why

import "machinist.dev/machinist/api/v1beta1"

// nodeMeanings are the reasons of Registered and NodeHealthy.
func nodeMeanings() map[string]Meaning {
	return map[string]Meaning{
		v1beta1.ReasonNodeRegistered: {Explanation: "Its node is in the cluster."},
		v1beta1.ReasonWaitingForNode: {
			Explanation: "Its instance runs, and no node of it has joined the cluster yet.",
			Ends:        "It goes on when the node registers.",
			Do:          "If it takes long: check the instance's console. Does the user data run, does the kubelet reach the API server, is its certificate approved? To see the requests for certificates: kubectl get csr",
		},
		v1beta1.ReasonClientCertificateNotApproved: {
			Explanation: "A request of its kubelet for a client certificate is not approved. Without one, the node does not join, or stops reporting.",
			Ends:        "It is checked again when the machine or its node changes, and when the kubelet sends another request.",
			Do:          "The message says what is wrong with the request. If the request is right, approve it yourself. To find it: kubectl get csr --field-selector spec.signerName=kubernetes.io/kube-apiserver-client-kubelet",
		},
		v1beta1.ReasonServingCertificateNotApproved: {
			Explanation: "A request of its kubelet for a serving certificate is not approved. Without one, `kubectl logs` and `kubectl exec` fail for pods on the node.",
			Ends:        "It is checked again when the provider reports other addresses of the instance, and when the kubelet sends another request.",
			Do:          "The message says what is wrong with the request. If the request is right, approve it yourself. To find it: kubectl get csr --field-selector spec.signerName=kubernetes.io/kubelet-serving",
		},
		v1beta1.ReasonWaitingForStartupTaints: {
			Explanation: "Its node has joined, and a startup taint is still on it.",
			Ends:        "It goes on when whoever the taint belongs to, such as a network plugin, takes it off.",
			Do:          "See why that one does not: its pods run on the node.",
		},
		v1beta1.ReasonNodeConflict: {
			Explanation: "Two machines claim one node, or two nodes claim its provider ID. Neither gets the node until that is settled.",
			Ends:        "It goes on when only one claim is left.",
			Do:          "Delete the node or the machine that should not be.",
		},
		v1beta1.ReasonNoTargetCluster: {Explanation: "There is no cluster for it to join."},
		v1beta1.ConditionRegistered + "/" + v1beta1.ReasonInvalidConfiguration: {
			Explanation: "Its node cannot carry what spec.node asks for.",
			Ends:        untilChanged,
			Do:          "Correct labels, annotations or taints in the deployment's template; that reaches existing machines in place.",
		},
		v1beta1.ConditionRegistered + "/" +
			v1beta1.ReasonReplacing: {Explanation: "Its node went with the old instance; the new one has yet to join."},

		v1beta1.ReasonNodeReady: {Explanation: "Its node is Ready."},
		v1beta1.ReasonNodeNotReady: {Explanation: "Its node says that it is not Ready.",
			Ends: "It may recover; if it does not, a health policy has it replaced.",
			Do:   "To see what the kubelet complains of: kubectl describe node NODE"},
		v1beta1.ReasonNodeUnresponsive: {
			Explanation: "Its node does not report: the kubelet is silent.",
			Ends:        "It may recover; if it does not, a health policy has it replaced.",
			Do:          "Inspect the instance at the cloud: does it run, does its network work?",
		},
		v1beta1.ReasonNodeConditionsFailed: {Explanation: "Its node is Ready and reports a problem in another condition.",
			Ends: "A health policy that names the condition has it replaced.", Do: "To see more: kubectl describe node NODE"},
		v1beta1.ReasonNodeGone: {Explanation: "Its node was deleted from the cluster, and not by Machinist.",
			Ends: "A health policy has the machine replaced at once, unless the machine is paused, preserved or exempt, or too many machines are not well.",
			Do:   "To keep the machine, exempt it and restart the kubelet on its instance, which registers the node again: kubectl annotate machines.machinist.dev NAME " + v1beta1.AnnotationSkipRemediation + "="},
		v1beta1.ReasonTargetUnreachable: {
			Explanation: "The cluster that its node is in cannot be reached. While that is so nothing is judged, replaced or drained.",
			Ends:        "It goes on by itself when the cluster answers again, and no clock runs meanwhile.",
			Do:          "Bring that cluster's API server back, or the way from the processes to it.",
		},
		v1beta1.ConditionDeleting + "/" + v1beta1.ReasonTargetUnreachable: {
			Explanation: "Its deletion is held: the cluster that its node is in cannot be reached, so nobody can tell whose pods would be killed.",
			Ends:        "It goes on by itself when the cluster answers again. The time does not count towards the drain's deadline.",
			Do:          "Bring that cluster's API server back. If it is gone for good, delete without it: kubectl annotate machines.machinist.dev NAME " + v1beta1.AnnotationForceDelete + "=",
		},
		v1beta1.ConditionDrainExtended + "/" +
			v1beta1.ReasonTargetUnreachable: {Explanation: "The cluster was unreachable during its drain; that time does not count."},
	}
}
