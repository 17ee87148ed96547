package why

import "machinist.dev/machinist/api/v1beta1"

const (
	triesAgain   = "It is tried again by itself, less and less often, at most 5 minutes apart."
	untilChanged = "Nothing is tried until that changes; then it goes on at once."
	tryNow       = "To have it tried at once: kubectl annotate machines.machinist.dev NAME " + v1beta1.AnnotationRetry +
		"=$(date +%s) --overwrite"
)

// refusedByProvider is what InvalidConfiguration means where it was the provider that refused.
func refusedByProvider() Meaning {
	return Meaning{
		Explanation: "The provider rejects its configuration.",
		Ends:        "It is tried again by itself, 10 to 30 minutes apart, and at once when the machine, its class or a Secret changes.",
		Do:          "Mend what the message names: at the cloud (a policy, an image, terms to accept), in the class (make another one, classes do not change), the user data or the deployment's template. " + tryNow,
	}
}

// joinChecked is what ends the condition JoinBlocked.
const joinChecked = "It is checked again every half minute."

// launchMeanings are the reasons of Launched and Paused, of the Ready of machines and classes, and of failures.
func launchMeanings() map[string]Meaning {
	return map[string]Meaning{
		v1beta1.ReasonInstanceLaunched: {Explanation: "The instance exists."},
		v1beta1.ReasonInstanceAdopted:  {Explanation: "The instance existed before and was taken over."},
		v1beta1.ReasonPending: {Explanation: "Nothing was done about it yet.",
			Ends: "Its provider's process takes it up within seconds, or when it is its turn.",
			Do:   "If it stays so: is the provider's process running, and does it serve this provider and namespace?"},
		v1beta1.ConditionLaunched + "/" + v1beta1.ReasonPending: {
			Explanation: "It waits until one of the places for creations under way (--max-in-flight-creates) is free.",
			Ends:        "First come, first served. Its time to become a node has not begun.",
		},
		v1beta1.ReasonMachineReady:       {Explanation: "It is ready: nothing is in the way."},
		v1beta1.ReasonPausedByAnnotation: {Explanation: "It is paused: nothing is done at the cloud, on its node or of its deletion.", Ends: "It goes on when the annotation is gone.", Do: "kubectl annotate machines.machinist.dev NAME " + v1beta1.AnnotationPaused + "- " + v1beta1.AnnotationClusterAPIPaused + "-"},
		v1beta1.ReasonNotPaused:          {Explanation: "It is no longer paused."},

		v1beta1.ReasonInvalidConfiguration: {Explanation: "Its configuration is rejected.", Ends: untilChanged,
			Do: "Mend what the message names: in the class (make another one, classes do not change), the user data or the deployment's template."},
		v1beta1.ReasonUnknownTypeVersion: {Explanation: "Its label " + v1beta1.LabelTypeVersion +
			" names a schema that this version does not know: it is neither launched nor changed nor judged.",
			Ends: untilChanged, Do: "Give the label the value " + v1beta1.TypeVersion +
				" if the machine is written for that, or run the version that knows the other."},
		v1beta1.ReasonClassNotFound: {Explanation: "Its MachineClass does not exist.",
			Ends: "It goes on as soon as the class is there.",
			Do:   "Create it in the machine's namespace, or name another one in the deployment's template."},
		v1beta1.ReasonClassDeleting: {
			Explanation: "Its MachineClass is being deleted, and no machine that stays has an instance of it.",
			Ends:        "The machine gets an instance as soon as there is a new class of that name. The deleted one does not wait for this machine.",
			Do:          "Apply the class again when it is gone, or name another one in the deployment's template."},
		ClassReady + "/" + v1beta1.ReasonClassDeleting: {Explanation: "The class is being deleted."},
		v1beta1.ReasonCredentialsNotFound:              {Explanation: "The Secret with the cloud's credentials does not exist, or lacks a key.", Ends: "It goes on as soon as the Secret is right.", Do: "Create or complete the Secret that the message names."},
		v1beta1.ReasonCredentialsRefused:               {Explanation: "The cloud refuses the credentials, or they may not do what is needed.", Ends: "It is tried again every 30 seconds to 10 minutes, and at once when the Secret changes.", Do: "Renew the credentials in the Secret of the class, or give them the permission."},
		v1beta1.ReasonSecretNotLabelled: {
			Explanation: "The Secret for its credentials or user data does not carry the label " + v1beta1.LabelSecretUse +
				" that allows this use.",
			Ends: "It goes on as soon as the Secret has the label.",
			Do:   "If Machinist may use the Secret, run the command in the message. Otherwise name another Secret.",
		},
		v1beta1.ReasonUserDataNotFound: {Explanation: "The Secret with the user data does not exist, or lacks the key.",
			Ends: "It goes on as soon as the Secret is right.", Do: "Create or complete the Secret that the message names."},
		v1beta1.ReasonInsufficientResources: {
			Explanation: "The cloud has no capacity for it, or a quota is used up.",
			Ends:        "It is tried again by itself, a minute after the first rejection and at most 10 minutes apart.",
			Do:          "Raise the quota, free some of it, or use a class of another size or zone.",
		},
		v1beta1.ReasonCreateFailed: {Explanation: "The cloud failed to make the instance.", Ends: triesAgain,
			Do: "If it stays so: the message is the cloud's own."},
		v1beta1.ReasonCreateTimeout: {Explanation: "There is no instance within timeouts.creation."},
		v1beta1.ReasonProvisioning: {Explanation: "The cloud is making the instance.",
			Ends: "It goes on when the cloud says that the instance runs."},
		v1beta1.ReasonProviderUnavailable: {Explanation: "The cloud's API does not answer, or asks for patience.",
			Ends: triesAgain, Do: "If it stays so: can the provider's process reach the cloud's endpoint?"},
		v1beta1.ReasonDuplicateProviderID: {Explanation: "Another, older machine has the same provider ID. Nothing is done about this one.", Ends: untilChanged, Do: "Delete the one of the two that should not be; the instance stays with the older."},
		v1beta1.ReasonAdoptionForbidden:   {Explanation: "It was created with a provider ID, and its class does not allow machines to take instances over.", Ends: untilChanged, Do: "Set adoption: Allow in the class, or create the machine without a provider ID."},
		v1beta1.ReasonAdoptionRefused:     {Explanation: "The instance that it is to take over does not exist, is going or belongs to somebody else.", Ends: "It is reconciled again, less and less often, 10 minutes apart in the end.", Do: "Make a machine with the right provider ID, or take the other owner's tags off the instance."},
		v1beta1.ReasonAdoptionUnsupported: {Explanation: "It was created with a provider ID, and its provider cannot take instances over.", Ends: untilChanged, Do: "Let Machinist make a machine instead; the instance stays as it is."},
		v1beta1.ReasonInstanceVanished: {Explanation: "Its instance is gone at the cloud, and not by Machinist.",
			Ends: "Its set replaces it.",
			Do:   "Somebody or something deletes instances behind Machinist's back: the cloud's audit log tells who."},

		v1beta1.ReasonPreserved:        {Explanation: "It is preserved for inspection: its node is cordoned, it belongs to no set, and nothing else is done about it.", Ends: "Then it is deleted.", Do: "To delete it now: kubectl delete machines.machinist.dev NAME"},
		v1beta1.ReasonTooLate:          {Explanation: "It cannot be preserved any more: it is being deleted."},
		v1beta1.ReasonTooManyPreserved: {Explanation: "It is not preserved: as many machines of its owner are already as --preserve-limit of the provider allows.", Ends: "Its set replaces it.", Do: "Delete preserved machines that nobody needs, or keep this one with " + v1beta1.AnnotationPreserve + "=" + v1beta1.PreserveNow + "."},
		v1beta1.ConditionPreserved + "/" +
			v1beta1.ReasonInvalidConfiguration: {Explanation: "Its annotations about being preserved cannot be used.",
			Ends: untilChanged, Do: "Correct " + v1beta1.AnnotationPreserve + " or " + v1beta1.AnnotationPreservedUntil +
				" on it."},

		string(v1beta1.FailureCreateError): {Explanation: "It failed: there was no instance within timeouts.creation.",
			Ends: "Its set replaces it."},
		"Failed/" +
			v1beta1.ReasonInsufficientResources: {Explanation: "It failed: the cloud had no capacity or quota within timeouts.creation.", Ends: "Its set replaces it, which does not help before there is capacity.", Do: "Raise the quota, free some of it, or use a class of another size or zone."},
		v1beta1.ReasonJoinClusterTimeout: {Explanation: "It failed: its instance did not become a Ready node within timeouts.creation.", Ends: "Its set replaces it. If it does become a Ready node after all, it counts again.", Do: "Inspect the instance's console: does the user data run, does the kubelet reach the API server, is its certificate approved? " + v1beta1.AnnotationPreserve + "=when-failed keeps the next one for inspection. To see the requests for certificates: kubectl get csr"},

		v1beta1.ReasonNodeTemplateContested: {Explanation: "Another writer changes what the machine wants on its Node again and again. It is left as the other writer has it.",
			Ends: "It is set again an hour after it was first changed, or when spec.node changes.",
			Do:   "Stop the other writer, or remove the key that the message names from spec.node."},
		v1beta1.ReasonInvalidUserData: {Explanation: "The user data cannot be read.", Ends: "It is read again when the Secret changes.",
			Do: "Mend what the message says in the Secret with the user data."},
		v1beta1.ReasonMachinesDiffer: {Explanation: "Machines were created from other user data than the Secret has now. They stay as they are.",
			Ends: "The condition goes when these machines are replaced.", Do: "Run the command in the message to replace them."},
		v1beta1.ConditionAccountChanged + "/" +
			v1beta1.ReasonMachinesDiffer: {Explanation: "Machines have their instance in another account than the credentials open now.",
			Ends: "The condition goes when the former credentials are back, or these machines are gone.",
			Do:   "Put the former credentials back into the Secret, and use a class of its own for the other account."},
		v1beta1.ReasonTokensMayNotRequest: {Explanation: "No machine can join: its bootstrap token may not request a certificate.",
			Ends: joinChecked, Do: "Do what the message says. To see all that is in the way: machinist preflight"},
		v1beta1.ReasonEndpointNotReachable: {Explanation: "Machines wait for their nodes, and the address of the API server in user data is one that they probably do not reach.",
			Ends: joinChecked, Do: "Give the provider the address that instances reach, by --bootstrap-endpoint."},
		v1beta1.ReasonEndpointNotTrusted: {Explanation: "No machine can join: it would not trust what answers at the address of the API server in user data.",
			Ends: joinChecked, Do: "Correct the address or the certificate authority as the message says."},
		v1beta1.ReasonAuthorityExpired: {Explanation: "No machine can join: the certificate authority in user data has ended.",
			Ends: joinChecked, Do: "Renew the authority, and the kubeconfig of the processes with it."},
		v1beta1.ReasonNodeNotTainted: {Explanation: "A node registered without the taint " + v1beta1.NodeTaintUninitialized + ", so pods may run on it before it has its machine's taints.",
			Ends: "The warning goes when the machine is replaced by one whose node has the taint.",
			Do:   "Add the taint to registerWithTaints of the kubelet's configuration in the user data."},
		v1beta1.ReasonNodeVersionDiffers: {Explanation: "A kubelet registered with another version than its machine asks for.",
			Ends: "The warning goes when the machine is replaced.", Do: "Correct how the user data uses the version."},
		v1beta1.ReasonNodeNameDiffers: {Explanation: "A node registered under another name than its provider expects.",
			Ends: "The warning goes when the machine is replaced.", Do: "Leave the host name to the cloud in the user data."},
		v1beta1.ReasonUnknownPlaceholder: {Explanation: "The user data contains what looks like a misspelt placeholder. It reaches the machines as it is.",
			Ends: "The warning goes when the Secret is changed.",
			Do:   "Correct the name in the Secret with the user data. If it is no placeholder, ignore the warning."},
		v1beta1.ReasonValid: {Explanation: "The provider accepts the class."},
		ClassReady + "/" +
			v1beta1.ReasonProviderUnavailable: {Explanation: "The provider could not have the class checked: its cloud does not answer.", Ends: triesAgain},
		v1beta1.ReasonInvalidProviderSpec: {Explanation: "The provider refuses the class's providerSpec.",
			Ends: "What the cloud refuses is asked again by itself, 10 to 30 minutes apart. Classes do not change: otherwise machines go on with another class.", Do: "Make a class that is right and name it in the deployment's template."},
	}
}
