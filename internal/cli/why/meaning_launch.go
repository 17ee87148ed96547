package why

import "machinist.dev/machinist/api/v1beta1"

const (
	triesAgain   = "Machinist tries again automatically, with increasing delays of at most 5 minutes."
	untilChanged = "Machinist waits until this is corrected, and then continues at once."
	tryNow       = "To try again at once: kubectl annotate machines.machinist.dev NAME " + v1beta1.AnnotationRetry +
		"=$(date +%s) --overwrite"
	fixConfiguration = "Fix what the message names: the class (create another one, because a class never changes), the user data, or the template of the deployment."
	raiseQuota       = "Raise the quota, release some of it, or use a class with another size or zone."
	joinQuestions    = "does the user data run, does the kubelet reach the API server, is its certificate approved? "
)

func refusedByProvider() Meaning {
	return Meaning{
		Explanation:  "The provider rejects the configuration of the machine.",
		NextStep:     "Machinist tries again automatically every 10 to 30 minutes, and at once when the machine, its class or a Secret changes.",
		Instructions: "Fix what the message names: a setting in the cloud (a policy, an image, terms to accept), the class (create another one, because a class never changes), the user data, or the template of the deployment. " + tryNow,
	}
}

func awaitingCapacity() Meaning {
	return Meaning{
		Explanation: "The cloud has no capacity for the class of the machine. No request for an instance is in progress.",
		NextStep:    "The set changes the class of the machine when another class of the placement has capacity. Otherwise one machine of the class tries again at the time in the message.",
		Instructions: "Raise the quota, release some of it, or add a class with another size or zone to spec.placement of the deployment. " +
			tryNow,
	}
}

const joinChecked = "Machinist checks this again every 30 seconds."

func launchMeanings() map[string]Meaning {
	return map[string]Meaning{
		v1beta1.ReasonInstanceLaunched: {Explanation: "The instance exists."},
		v1beta1.ReasonInstanceAdopted:  {Explanation: "The machine has adopted an existing instance."},
		v1beta1.ReasonPending: {Explanation: "The provider process has not processed the machine yet.",
			NextStep:     "The provider process processes the machine within seconds, or after the machines that are ahead of it in the queue.",
			Instructions: "If nothing happens, check that the provider process runs, and that it serves this provider and namespace."},
		v1beta1.ConditionLaunched + "/" + v1beta1.ReasonPending: {
			Explanation: "The creation of the instance has not started. It waits for a slot (--max-in-flight-creates), or for the finalizer that protects the class or Secret of the machine.",
			NextStep:    "The creation starts automatically. Machines get slots in the order of their requests. The creation timeout of the machine has not started yet.",
		},
		v1beta1.ReasonMachineReady: {Explanation: "The machine is ready."},
		v1beta1.ReasonPausedByAnnotation: {Explanation: "The machine is paused: Machinist changes neither the instance nor the Node, and does not delete the machine.",
			NextStep:     "Machinist continues when the annotation is removed.",
			Instructions: "kubectl annotate machines.machinist.dev NAME " + v1beta1.AnnotationPaused + "- " + v1beta1.AnnotationClusterAPIPaused + "-"},
		v1beta1.ReasonNotPaused: {Explanation: "The object is no longer paused."},

		v1beta1.ReasonInvalidConfiguration: {Explanation: "The configuration of the machine is rejected.", NextStep: untilChanged,
			Instructions: fixConfiguration},
		v1beta1.ReasonUnknownTypeVersion: {Explanation: "The label " + v1beta1.LabelTypeVersion +
			" names a version of the types that this version of Machinist does not know, so the machine is not launched, updated or checked.",
			NextStep: untilChanged,
			Instructions: "Set the label to " + v1beta1.TypeVersion +
				" if the machine is written for that version. Otherwise run a version of Machinist that knows the version in the label."},
		v1beta1.ReasonClassNotFound: {Explanation: "The MachineClass of the machine does not exist.",
			NextStep:     "The creation continues as soon as the class exists.",
			Instructions: "Create the class in the namespace of the machine, or name another class in the template of the deployment."},
		v1beta1.ReasonClassDeleting: {
			Explanation:  "The MachineClass of the machine is being deleted, and no new instance is created from it.",
			NextStep:     "The machine gets an instance as soon as a new class has this name. The deletion of the old class does not wait for this machine.",
			Instructions: "Apply the class again after it is deleted, or name another class in the template of the deployment."},
		ClassReady + "/" + v1beta1.ReasonClassDeleting: {Explanation: "The class is being deleted."},
		v1beta1.ReasonCredentialsNotFound: {Explanation: "The Secret with the cloud credentials does not exist, or lacks a key.",
			NextStep:     "Machinist continues as soon as the Secret is complete.",
			Instructions: "Create or complete the Secret that the message names."},
		v1beta1.ReasonCredentialsRefused: {Explanation: "The cloud refuses the credentials, or they lack a permission.",
			NextStep:     "Machinist tries again every 30 seconds to 10 minutes, and at once when the Secret changes.",
			Instructions: "Renew the credentials in the Secret of the class, or grant the missing permission."},
		v1beta1.ReasonSecretNotLabelled: {
			Explanation: "The Secret with the credentials or the user data does not have the label " + v1beta1.LabelSecretUse +
				" that allows this use.",
			NextStep:     "Machinist continues as soon as the Secret has the label.",
			Instructions: "If Machinist may use the Secret, run the command in the message. Otherwise name another Secret.",
		},
		v1beta1.ReasonUserDataNotFound: {Explanation: "The Secret with the user data does not exist, or lacks the key.",
			NextStep:     "Machinist continues as soon as the Secret is complete.",
			Instructions: "Create or complete the Secret that the message names."},
		v1beta1.ReasonInsufficientResources: {
			Explanation:  "The cloud has no capacity for the instance, or a quota is exhausted.",
			NextStep:     "Machinist tries again automatically, first after a minute and then at most 10 minutes apart.",
			Instructions: raiseQuota,
		},
		v1beta1.ConditionCapacityAvailable + "/" + v1beta1.ReasonInsufficientResources: {
			Explanation:  "The cloud has no capacity for instances of the class, or a quota is exhausted. This also concerns the other classes with the same account, zone and instance type.",
			NextStep:     "Machines of a placement use other classes until status.capacityRetryTime. Then one machine tries this class.",
			Instructions: "Raise the quota, release some of it, or add a class with another size or zone to spec.placement of the deployments.",
		},
		v1beta1.ReasonCapacityFound: {Explanation: "The cloud has capacity for instances of the class again."},
		v1beta1.ReasonCreateFailed: {Explanation: "The cloud failed to create the instance.", NextStep: triesAgain,
			Instructions: "If the creation keeps failing, look for the cause in the message, which comes from the cloud."},
		v1beta1.ReasonCreateTimeout: {Explanation: "The instance was not created within timeouts.creation."},
		v1beta1.ReasonProvisioning: {Explanation: "The cloud is creating the instance.",
			NextStep: "Machinist continues when the cloud reports that the instance runs."},
		v1beta1.ReasonProviderUnavailable: {Explanation: "The API of the cloud does not answer, or limits the rate of requests.",
			NextStep:     triesAgain,
			Instructions: "If this does not end, check that the provider process can reach the endpoint of the cloud."},
		v1beta1.ReasonDuplicateProviderID: {Explanation: "An older machine has the same provider ID, so Machinist does not manage this machine.",
			NextStep:     untilChanged,
			Instructions: "Of the two machines, delete the machine that should not exist. The instance stays with the older machine."},
		v1beta1.ReasonAdoptionForbidden: {Explanation: "The machine was created with a provider ID, but its class does not allow machines to adopt instances.",
			NextStep:     untilChanged,
			Instructions: "Set spec.adoption of the class to Allow, or create the machine without a provider ID."},
		v1beta1.ReasonAdoptionRefused: {Explanation: "The instance that the machine should adopt does not exist, is being deleted, or has another owner.",
			NextStep:     "Machinist tries again automatically, with increasing delays of at most 10 minutes.",
			Instructions: "Create a machine with the correct provider ID, or remove the tags of the other owner from the instance."},
		v1beta1.ReasonAdoptionUnsupported: {Explanation: "The machine was created with a provider ID, but its provider cannot adopt instances.",
			NextStep:     untilChanged,
			Instructions: "Create a machine without a provider ID instead. The existing instance stays as it is."},
		v1beta1.ReasonInstanceVanished: {Explanation: "The instance of the machine no longer exists in the cloud, and Machinist did not delete it.",
			NextStep:     "The set replaces the machine.",
			Instructions: "Find out in the audit log of the cloud who deleted the instance."},

		v1beta1.ReasonPreserved: {Explanation: "The machine is preserved for inspection: its Node is cordoned, no set owns it, and Machinist does nothing else with it.",
			NextStep:     "When the time for the inspection is over, Machinist deletes the machine.",
			Instructions: "To delete the machine now: kubectl delete machines.machinist.dev NAME"},
		v1beta1.ReasonTooLate: {Explanation: "The machine cannot be preserved any more, because it is being deleted."},
		v1beta1.ReasonTooManyPreserved: {Explanation: "The machine is not preserved, because its owner already has as many preserved machines as --preserve-limit of the provider allows.",
			NextStep: "The set replaces the machine.",
			Instructions: "Delete preserved machines that are no longer needed, or keep this machine with the annotation " +
				v1beta1.AnnotationPreserve + "=" + v1beta1.PreserveNow + "."},
		v1beta1.ConditionPreserved + "/" +
			v1beta1.ReasonInvalidConfiguration: {Explanation: "The annotations that preserve the machine have an invalid value.",
			NextStep:     untilChanged,
			Instructions: "Correct the annotation " + v1beta1.AnnotationPreserve + " or " + v1beta1.AnnotationPreservedUntil + " of the machine."},

		string(v1beta1.FailureCreateError): {Explanation: "The machine failed: its instance was not created within timeouts.creation.",
			NextStep: "The set replaces the machine."},
		"Failed/" +
			v1beta1.ReasonInsufficientResources: {Explanation: "The machine failed: the cloud had no capacity or quota within timeouts.creation.",
			NextStep:     "The set replaces the machine. The new machine fails too while there is no capacity.",
			Instructions: raiseQuota},
		v1beta1.ReasonJoinClusterTimeout: {Explanation: "The machine failed: its instance did not become a Ready Node within timeouts.creation.",
			NextStep: "The set replaces the machine. If the instance becomes a Ready Node before the replacement, the machine recovers.",
			Instructions: "Inspect the console of the instance: " + joinQuestions + "The annotation " + v1beta1.AnnotationPreserve +
				"=when-failed keeps the next failed machine for inspection. To see the certificate requests: kubectl get csr"},

		v1beta1.ReasonNodeTemplateContested: {Explanation: "Another client repeatedly changes a label, annotation or taint on the Node that spec.node specifies. Machinist currently keeps the value that the other client has set.",
			NextStep:     "Machinist sets the value of spec.node again one hour after the first change by the other client, or when spec.node changes.",
			Instructions: "Stop the other client, or remove the key that the message names from spec.node."},
		v1beta1.ReasonInvalidUserData: {Explanation: "Machinist cannot read the user data.",
			NextStep:     "Machinist reads the user data again when the Secret changes.",
			Instructions: "Fix the error that the message describes, in the Secret with the user data."},
		v1beta1.ReasonMachinesDiffer: {Explanation: "The user data in the Secret changed after machines were created from it. These machines stay as they are.",
			NextStep:     "The condition ends when these machines are replaced.",
			Instructions: "Run the command in the message to replace the machines."},
		v1beta1.ConditionAccountChanged + "/" +
			v1beta1.ReasonMachinesDiffer: {Explanation: "The credentials now belong to another cloud account. The instances of existing machines are in the previous account.",
			NextStep:     "The condition ends when the Secret has the previous credentials again, or when these machines are gone.",
			Instructions: "Restore the previous credentials in the Secret, and create a separate class for the other account."},
		v1beta1.ReasonTokensMayNotRequest: {Explanation: "No machine of the class can join, because bootstrap tokens lack the permission to request a certificate.",
			NextStep:     joinChecked,
			Instructions: "Follow the instructions in the message. To see everything that prevents machines from joining, run machinist preflight."},
		v1beta1.ReasonEndpointNotReachable: {Explanation: "Machines wait for their Nodes, and probably cannot reach the API server at the address in their user data.",
			NextStep:     joinChecked,
			Instructions: "Set --bootstrap-endpoint of the provider to an address that the instances can reach."},
		v1beta1.ReasonEndpointNotTrusted: {Explanation: "No machine of the class can join, because the certificate authority in the user data does not match the server at the address in the user data.",
			NextStep:     joinChecked,
			Instructions: "Correct the address or the certificate authority as the message describes."},
		v1beta1.ReasonAuthorityExpired: {Explanation: "No machine of the class can join, because the certificate authority in the user data has expired.",
			NextStep:     joinChecked,
			Instructions: "Renew the certificate authority, and then the kubeconfig files of the Machinist processes."},
		v1beta1.ReasonNodeNotTainted: {Explanation: "A Node registered without the taint " + v1beta1.NodeTaintUninitialized + ", so pods may run on it before it has the taints of its machine.",
			NextStep:     "The warning ends when the machine is replaced by a machine whose Node has the taint.",
			Instructions: "Add the taint to registerWithTaints of the kubelet's configuration in the user data."},
		v1beta1.ReasonNodeVersionDiffers: {Explanation: "The version of a kubelet differs from the version in the specification of its machine.",
			NextStep:     "The warning ends when the machine is replaced.",
			Instructions: "Correct the user data, so that it installs the kubelet version from the specification of the machine."},
		v1beta1.ReasonNodeNameDiffers: {Explanation: "The name of a Node differs from the name that the provider expects.",
			NextStep:     "The warning ends when the machine is replaced.",
			Instructions: "Do not set the host name in the user data. The cloud sets it."},
		v1beta1.ReasonUnknownPlaceholder: {Explanation: "The user data contains text that looks like a misspelt placeholder. Machines get this text unchanged.",
			NextStep:     "The warning ends when the Secret is corrected.",
			Instructions: "Correct the name of the placeholder in the Secret with the user data. If the text is not a placeholder, ignore the warning."},
		v1beta1.ReasonValid: {Explanation: "The provider accepts the class."},
		ClassReady + "/" +
			v1beta1.ReasonProviderUnavailable: {Explanation: "The provider could not check the class, because the API of its cloud does not answer.",
			NextStep: triesAgain},
		v1beta1.ReasonInvalidProviderSpec: {Explanation: "The provider rejects the providerSpec of the class.",
			NextStep:     "If the cloud rejected the providerSpec, Machinist checks the class again every 10 to 30 minutes. Otherwise machines need another class, because a class never changes.",
			Instructions: "Create a correct class, and name it in the template of the deployment."},
	}
}
