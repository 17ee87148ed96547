package why

import "machinist.dev/machinist/api/v1beta1"

func providerMeanings() map[string]Meaning {
	const retried = "The operator tries again automatically."
	return map[string]Meaning{
		v1beta1.ReasonNotInstalled: {Explanation: "The provider process is not installed yet.",
			NextStep: "The condition Degraded describes the cause."},
		v1beta1.ReasonNoLeader: {Explanation: "Replicas of the provider process run, but none of them is the leader yet.",
			NextStep: "One of the replicas becomes the leader within seconds."},
		v1beta1.ReasonScaledToZero: {Explanation: "The provider process is scaled to zero. Its machines stay as they are.",
			NextStep: "The process starts when spec.replicas is raised."},

		v1beta1.ReasonWaitingForNodes: {Explanation: "The type of the provider is detected from Nodes, and no Node has a provider ID yet.",
			NextStep:     "The operator continues when the first Node has a provider ID.",
			Instructions: "If no Node will ever have a provider ID, create a Provider with spec.type."},
		v1beta1.ReasonCrashLoopBackOff: {Explanation: "The provider process exits again and again.", NextStep: retried,
			Instructions: "The message contains the end of the log of the process. The cause is often a wrong flag or a wrong kubeconfig file."},
		v1beta1.ReasonPodsRefused: {Explanation: "The API server refuses the pods of the provider process.", NextStep: retried,
			Instructions: "See the message for the cause, such as a quota or an admission policy."},
		v1beta1.ReasonUnschedulable: {Explanation: "The pods of the provider process cannot be scheduled on any Node.",
			NextStep:     "The pods start when a Node has room for them.",
			Instructions: "See the message of the scheduler. Add Nodes, or lower the resource requests in spec.values."},
		v1beta1.ReasonNotReady: {Explanation: "A pod of the provider process runs, but does not become ready.", NextStep: retried,
			Instructions: "See the log of the pod for the reason."},

		v1beta1.ReasonAsDesired: {Explanation: "The provider process runs as specified."},
		v1beta1.ReasonUnknownType: {Explanation: "Machinist has no provider of this type.", NextStep: untilChanged,
			Instructions: "Create a Provider with the correct spec.type, or set spec.image.repository to the image of your provider."},
		v1beta1.ReasonPlatformMixed: {Explanation: "The Nodes belong to several platforms, so the operator cannot detect the type of the provider.",
			NextStep:     "The operator continues when all Nodes belong to one platform.",
			Instructions: "Create a Provider with spec.type for each platform."},
		v1beta1.ReasonDuplicateType: {Explanation: "An older Provider has the same type, and only one process can serve a type.",
			NextStep: "The operator continues when the older Provider is gone.", Instructions: "Delete one of the two Providers."},
		v1beta1.ReasonInvalidValues: {Explanation: "The chart of the provider process rejects a value.", NextStep: untilChanged,
			Instructions: "Correct the value that the message names."},
		v1beta1.ReasonSecretNotFound: {Explanation: "A Secret that the Provider names, or a key in it, does not exist, so the operator changes nothing.",
			NextStep:     "The operator continues when the Secret exists.",
			Instructions: "Create the Secret that the message names, in the namespace of the operator."},
		v1beta1.ReasonObjectConflict: {Explanation: "An object with a name that the Provider needs exists, and this Provider did not create it. The operator changes nothing.",
			NextStep:     "The operator continues when the object is gone.",
			Instructions: "Remove what created the object, such as a Helm release, or delete the object that the message names."},
		v1beta1.ReasonApplyFailed: {Explanation: "The API server refuses an object of the provider process.", NextStep: retried,
			Instructions: "See the message for the cause, such as a missing permission, a quota or an admission policy."},
	}
}
