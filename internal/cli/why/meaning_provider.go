package why

import "machinist.dev/machinist/api/v1beta1"

// providerMeanings are the reasons of Available, Progressing and Degraded on a Provider.
func providerMeanings() map[string]Meaning {
	const retried = "It is tried again by itself."
	return map[string]Meaning{
		v1beta1.ReasonNotInstalled: {Explanation: "The provider process is not installed yet.",
			Ends: "See its condition Degraded for the cause."},
		v1beta1.ReasonNoLeader: {Explanation: "Replicas of the provider process run, and none of them leads yet.",
			Ends: "It ends within seconds, when one of them has the lease."},
		v1beta1.ReasonScaledToZero: {Explanation: "The provider process is scaled to zero: its machines are left as they are.",
			Ends: "It goes on when spec.replicas is raised."},

		v1beta1.ReasonWaitingForNodes: {Explanation: "The type of the provider is detected from Nodes, and no Node has a provider ID yet.",
			Ends: "It goes on when the first Node has one.", Do: "Set spec.type in a new Provider if there will be none."},
		v1beta1.ReasonCrashLoopBackOff: {Explanation: "The provider process ends again and again.", Ends: retried,
			Do: "Its last words are in the message; mostly a flag or a kubeconfig is wrong."},
		v1beta1.ReasonPodsRefused: {Explanation: "The API server refuses the pods of the provider process.", Ends: retried,
			Do: "The message says why: a quota or an admission policy may be in the way."},
		v1beta1.ReasonUnschedulable: {Explanation: "No Node takes the pods of the provider process.",
			Ends: "It goes on when a Node does.",
			Do:   "The message is the scheduler's: add Nodes, or lower the resources in spec.values."},
		v1beta1.ReasonNotReady: {Explanation: "A pod of the provider process runs and does not become ready.", Ends: retried,
			Do: "Its log says what it waits for."},

		v1beta1.ReasonAsDesired: {Explanation: "The provider is as desired."},
		v1beta1.ReasonUnknownType: {Explanation: "No provider of this type comes with Machinist.", Ends: untilChanged,
			Do: "Correct spec.type in a new Provider, or set spec.image.repository to the image of your provider."},
		v1beta1.ReasonPlatformMixed: {Explanation: "The Nodes are of several platforms, so the type of the provider is not clear.",
			Ends: "It goes on when they are of one.", Do: "Make a Provider with spec.type for each platform."},
		v1beta1.ReasonDuplicateType: {Explanation: "An older Provider is of the same type already.",
			Ends: "It goes on when that one is gone.", Do: "Delete one of them."},
		v1beta1.ReasonInvalidValues: {Explanation: "The chart of the provider process refuses a value.", Ends: untilChanged,
			Do: "Correct the value that the message names."},
		v1beta1.ReasonSecretNotFound: {Explanation: "A Secret that the Provider names, or its key, does not exist: nothing is changed.",
			Ends: "It goes on when the Secret is there.", Do: "Make the Secret that the message names, in the operator's namespace."},
		v1beta1.ReasonObjectConflict: {Explanation: "An object of this name exists that this Provider did not make: nothing is changed.",
			Ends: "It goes on when that object is gone.",
			Do:   "Remove what made it, such as a helm release, or delete the object that the message names."},
		v1beta1.ReasonApplyFailed: {Explanation: "The API server refuses an object of the provider process.", Ends: retried,
			Do: "The message says why: a right, a quota or an admission policy may be in the way."},
	}
}
