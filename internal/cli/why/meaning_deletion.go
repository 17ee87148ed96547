package why

import "machinist.dev/machinist/api/v1beta1"

// deletionMeanings are the reasons of Deleting, Drained and VolumesDetached.
func deletionMeanings() map[string]Meaning {
	const force = "To go on without drain and volumes, which kills pods: kubectl annotate machines.machinist.dev NAME " +
		v1beta1.AnnotationForceDelete + "="
	return map[string]Meaning{
		v1beta1.ReasonDeletionStarted: {Explanation: "It is being deleted, and no step is waited for.",
			Ends: "It goes on by itself."},
		v1beta1.ReasonWaitingForPreDrainHook: {
			Explanation: "Its deletion waits for a hook, before anything is drained.",
			Ends:        "It goes on when the owner takes the hook off spec.lifecycleHooks.preDrain.",
			Do:          "Ask the owner of the hook. Taking it off by hand skips what the hook is for.",
		},
		v1beta1.ReasonWaitingForPreTerminateHook: {
			Explanation: "Its node is drained; the instance waits for a hook.",
			Ends:        "It goes on when the owner takes the hook off spec.lifecycleHooks.preTerminate.",
			Do:          "Ask the owner of the hook. Taking it off by hand skips what the hook is for.",
		},
		v1beta1.ReasonDraining: {Explanation: "The pods of its node are being evicted.",
			Ends: "It goes on when they are gone.", Do: "Nothing, unless a pod takes too long to end. " + force},
		v1beta1.ReasonBlockedByDisruptionBudget: {
			Explanation: "A PodDisruptionBudget does not let pods of its node go.",
			Ends:        "Each refused pod is tried again within a minute, and when the budget changes.",
			Do:          "Give the pods' owner more replicas or room for them elsewhere, or correct the budget. " + force,
		},
		v1beta1.ReasonDrainForced: {Explanation: "The drain's deadline is near: the pods that are left are deleted, whatever their budgets say.", Ends: "It goes on when they have ended."},
		v1beta1.ReasonDrainError: {Explanation: "The pods of its node cannot be listed, evicted or deleted.",
			Ends: "It is tried again by itself.",
			Do:   "The message says what is refused; it may be a permission that the provider's process lacks. " + force},
		v1beta1.ReasonDrained: {Explanation: "No pod is left to evict."},
		v1beta1.ReasonSkipped: {Explanation: "The step was not needed."},

		v1beta1.ReasonVolumesDetached: {Explanation: "No volume that matters is attached any more."},
		v1beta1.ReasonWaitingForVolumeDetach: {Explanation: "Volumes are still attached to its node.",
			Ends: "It goes on when they are detached, or after timeouts.volumeDetach.",
			Do:   "If they stay: the storage driver's controller detaches them. " + force},
		v1beta1.ReasonNodeOutOfService:    {Explanation: "Its instance is gone, and volumes still count as attached to the node: Kubernetes detaches them by force.", Ends: "It goes on when they are detached, or after timeouts.volumeDetach."},
		v1beta1.ReasonVolumeDetachTimeout: {Explanation: "Volumes were still attached after timeouts.volumeDetach; it went on without them."},

		v1beta1.ConditionDeleting + "/" + v1beta1.ReasonNodeConflict: {
			Explanation: "Two nodes have the provider ID of its instance, and the kubelets of both report: which one to drain is not known.",
			Ends:        "It goes on when one of the nodes is deleted, or does not report any more.",
			Do:          "Delete the node that is not this machine's. " + force,
		},
		v1beta1.ConditionDeleting + "/" + v1beta1.ReasonTargetCredentialsRefused: {
			Explanation: "The target cluster refuses the provider's credentials: nobody can tell which pods its deletion would kill.",
			Ends:        "It goes on by itself when they are renewed in the kubeconfig file; no restart is needed.",
			Do:          "Renew the file of the provider's --target-kubeconfig, or its roles in the target cluster. " + force,
		},
		v1beta1.ConditionDeleting + "/" + v1beta1.ReasonSecretNotLabelled: {
			Explanation: "The Secret with the credentials that can delete its instance does not carry the label " +
				v1beta1.LabelSecretUse + " that allows this use.",
			Ends: "It goes on within minutes once the Secret has the label.",
			Do:   "If Machinist may use the Secret, run the command in the message.",
		},
		v1beta1.ConditionDeleting + "/" + v1beta1.ReasonCredentialsNotFound: {
			Explanation: "The Secret with the credentials that can delete its instance does not exist, or lacks a key.",
			Ends:        "It goes on within minutes once the Secret is right.",
			Do:          "Create or complete the Secret that the message names.",
		},
		v1beta1.ReasonInstanceTerminating: {Explanation: "The cloud is removing its instance.",
			Ends: "It goes on when the cloud says that the instance is gone."},
		v1beta1.ReasonCreateSettling: {Explanation: "The provider shows no instance; one that may be there anyway is waited for, so that it is not left behind.", Ends: "It goes on by itself within minutes."},
		v1beta1.ReasonDeleteError: {Explanation: "The cloud failed to delete its instance.",
			Ends: "It is tried again by itself for ever, at most 10 minutes apart.",
			Do:   "The message is the cloud's own: a lock or a permission may be in the way."},
		v1beta1.ReasonInstanceDeleted: {Explanation: "Its instance is gone; what it left in the cluster is being removed."},
		v1beta1.ConditionDeleting + "/" +
			v1beta1.ReasonPausedByAnnotation: {Explanation: "Its deletion is paused by an annotation.",
			Ends: "It goes on when the annotation is gone.", Do: "kubectl annotate machines.machinist.dev NAME " + v1beta1.AnnotationPaused + "- " +
				v1beta1.AnnotationClusterAPIPaused + "-"},
		v1beta1.ReasonInUse: {Explanation: "It is being deleted, and still serves the machines that need it.",
			Ends: "It goes when no machine needs it.", Do: "Give the fleet another class, or delete the fleet."},
		v1beta1.ReasonWithdrawn: {Explanation: "It is being deleted and serves no new machine.",
			Ends: "It goes when the machines with an instance are gone."},
	}
}
