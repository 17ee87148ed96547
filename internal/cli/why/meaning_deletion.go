package why

import "machinist.dev/machinist/api/v1beta1"

func deletionMeanings() map[string]Meaning {
	const (
		force = "To skip the drain and the volumes, which kills pods: kubectl annotate machines.machinist.dev NAME " +
			v1beta1.AnnotationForceDelete + "="
		askOwner = "Ask the owner of the hook. If you remove the hook yourself, the work for which the hook waits is skipped."
		detached = "Machinist continues when the volumes are detached, or after timeouts.volumeDetach."
	)
	return map[string]Meaning{
		v1beta1.ReasonDeletionStarted: {Explanation: "The deletion has started and does not wait for anything.",
			NextStep: "The deletion continues automatically."},
		v1beta1.ReasonWaitingForPreDrainHook: {
			Explanation:  "The deletion waits for a hook before the drain.",
			NextStep:     "Machinist continues when the owner of the hook removes it from spec.lifecycleHooks.preDrain.",
			Instructions: askOwner,
		},
		v1beta1.ReasonWaitingForPreTerminateHook: {
			Explanation:  "The Node is drained. The deletion of the instance waits for a hook.",
			NextStep:     "Machinist continues when the owner of the hook removes it from spec.lifecycleHooks.preTerminate.",
			Instructions: askOwner,
		},
		v1beta1.ReasonDraining: {Explanation: "The pods on the Node are being evicted.",
			NextStep:     "Machinist continues when the pods are gone.",
			Instructions: "Wait, unless a pod takes too long to end. " + force},
		v1beta1.ReasonBlockedByDisruptionBudget: {
			Explanation:  "A PodDisruptionBudget does not allow the eviction of pods on the Node.",
			NextStep:     "Machinist tries each of these pods again within a minute, and when the budget changes.",
			Instructions: "Give the workload more replicas or capacity for them elsewhere, or correct the budget. " + force,
		},
		v1beta1.ReasonWaitingForCompletion: {
			Explanation:  "The drain waits until pods have ended. A rule in spec.drain of the machine, or the label cluster.x-k8s.io/drain of the pods, prevents their eviction.",
			NextStep:     "Machinist continues when the pods have ended, and deletes them shortly before the end of timeouts.drain.",
			Instructions: "Wait, end the pods yourself, or change the rule, which also applies to drains in progress. " + force,
		},
		v1beta1.ReasonDrainForced: {Explanation: "The deadline of the drain is near, so Machinist deletes the remaining pods regardless of their PodDisruptionBudgets.",
			NextStep: "Machinist continues when the pods have ended."},
		v1beta1.ReasonDrainError: {Explanation: "Machinist cannot list, evict or delete the pods on the Node.",
			NextStep:     "Machinist tries again automatically.",
			Instructions: "The message says which request is refused. The provider process may lack a permission. " + force},
		v1beta1.ReasonDrained: {Explanation: "No pod is left to evict."},
		v1beta1.ReasonSkipped: {Explanation: "The step was not needed."},

		v1beta1.ReasonVolumesDetached: {Explanation: "All volumes that the deletion waits for are detached."},
		v1beta1.ReasonWaitingForVolumeDetach: {Explanation: "Volumes are still attached to the Node.",
			NextStep:     detached,
			Instructions: "If the volumes stay attached, check the controller of the storage driver, which detaches them. " + force},
		v1beta1.ReasonNodeOutOfService: {Explanation: "The instance is gone, but Kubernetes still considers its volumes attached to the Node. Kubernetes detaches them by force.",
			NextStep: detached},
		v1beta1.ReasonVolumeDetachTimeout: {Explanation: "Volumes were still attached after timeouts.volumeDetach. The deletion continued without waiting for the volumes."},

		v1beta1.ConditionDeleting + "/" + v1beta1.ReasonNodeConflict: {
			Explanation:  "Two Nodes have the provider ID of the machine, and the kubelets of both Nodes are running. Machinist does not know which Node to drain.",
			NextStep:     "Machinist continues when one of the Nodes is deleted or its kubelet stops.",
			Instructions: "Delete the Node that does not belong to this machine. " + force,
		},
		v1beta1.ConditionDeleting + "/" + v1beta1.ReasonTargetCredentialsRefused: {
			Explanation:  "The target cluster refuses the credentials of the provider process, so Machinist cannot see which pods the deletion would kill.",
			NextStep:     "Machinist continues automatically when the credentials in the kubeconfig file are renewed. No restart is needed.",
			Instructions: "Renew the file of the provider's --target-kubeconfig, or its roles in the target cluster. " + force,
		},
		v1beta1.ConditionDeleting + "/" + v1beta1.ReasonSecretNotLabelled: {
			Explanation: "The Secret with the credentials for the deletion of the instance does not have the label " +
				v1beta1.LabelSecretUse + " that allows this use.",
			NextStep:     "Machinist continues within minutes after the Secret gets the label.",
			Instructions: "If Machinist may use the Secret, run the command in the message.",
		},
		v1beta1.ConditionDeleting + "/" + v1beta1.ReasonCredentialsNotFound: {
			Explanation:  "The Secret with the credentials for the deletion of the instance does not exist, or lacks a key.",
			NextStep:     "Machinist continues within minutes after the Secret is complete.",
			Instructions: "Create or complete the Secret that the message names.",
		},
		v1beta1.ReasonInstanceTerminating: {Explanation: "The cloud is deleting the instance.",
			NextStep: "Machinist continues when the cloud reports that the instance is gone."},
		v1beta1.ReasonCreateSettling: {Explanation: "The cloud lists no instance, but an instance may still appear. Machinist waits for the settle time, so that it leaves no instance behind.",
			NextStep: "Machinist continues automatically within minutes."},
		v1beta1.ReasonDeleteError: {Explanation: "The cloud failed to delete the instance.",
			NextStep:     "Machinist tries again automatically, at most 10 minutes apart, and never gives up.",
			Instructions: "See the message, which comes from the cloud. A lock or a missing permission may be the cause."},
		v1beta1.ReasonInstanceDeleted: {Explanation: "The instance is gone. Machinist is removing its Node and its bootstrap token."},
		v1beta1.ConditionDeleting + "/" +
			v1beta1.ReasonPausedByAnnotation: {Explanation: "An annotation pauses the deletion.",
			NextStep:     "Machinist continues when the annotation is removed.",
			Instructions: "kubectl annotate machines.machinist.dev NAME " + v1beta1.AnnotationPaused + "- " + v1beta1.AnnotationClusterAPIPaused + "-"},
		v1beta1.ReasonInUse: {Explanation: "The object is being deleted, and still serves the machines that need it.",
			NextStep:     "The object is deleted when no machine needs it.",
			Instructions: "Give the fleet another class, or delete the fleet."},
		v1beta1.ReasonWithdrawn: {Explanation: "The class is being deleted and serves no new machine.",
			NextStep: "The class is deleted when no machine has an instance of this class any more."},
	}
}
