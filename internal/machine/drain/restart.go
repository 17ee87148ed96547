package drain

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

const (
	// restartedAt is the annotation of a pod template that `kubectl rollout restart` sets.
	restartedAt = "kubectl.kubernetes.io/restartedAt"
	// deploymentRevision is the annotation by which the Deployment controller numbers the ReplicaSets of a Deployment. The
	// Deployment has the number of its current ReplicaSet.
	deploymentRevision = "deployment.kubernetes.io/revision"
)

func restartsSingleReplicas(policy *v1beta1.MachineDrain) bool {
	return policy != nil && policy.SingleReplicas == v1beta1.SingleReplicasRestart
}

// restartDeployment restarts the rollout of the Deployment of a pod that a PodDisruptionBudget protects, if the pod is
// the only replica. The Deployment then creates a new pod, and deletes the old one when the new one is available. The
// result tells users what the drain waits for. It is empty if the pod does not belong to such a Deployment.
//
// One drain restarts a Deployment only once: after the restart, the ReplicaSet of the pod is no longer the current one.
func (c *Controller) restartDeployment(ctx context.Context, pod *corev1.Pod) string {
	ctx, cancel := context.WithTimeout(ctx, quickTimeout)
	defer cancel()
	set := &metav1.PartialObjectMetadata{}
	set.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))
	deployment := &appsv1.Deployment{}
	// A pod that tolerates the cordon could get a successor on the same Node, which would be restarted again.
	if toleratesCordon(pod) {
		return ""
	}
	for _, step := range []struct {
		of, owner client.Object
		kind      string
	}{{pod, set, "ReplicaSet"}, {set, deployment, "Deployment"}} {
		ref := metav1.GetControllerOfNoCopy(step.of)
		if ref == nil || ref.Kind != step.kind {
			return ""
		}
		key := types.NamespacedName{Namespace: pod.Namespace, Name: ref.Name}
		if err := c.options.Target.Get(ctx, key, step.owner); err != nil {
			return fmt.Sprintf("cannot restart the Deployment of the pod: %s", shorten(err.Error()))
		}
		if step.owner.GetUID() != ref.UID {
			return ""
		}
	}
	switch {
	case !deployment.DeletionTimestamp.IsZero() || deployment.Spec.Paused || !hasSingleReplica(deployment):
		return ""
	case deployment.Status.ObservedGeneration < deployment.Generation ||
		deployment.Annotations[deploymentRevision] != set.Annotations[deploymentRevision]:
		return fmt.Sprintf("waits for the rollout of Deployment %s", deployment.Name)
	}
	restarted := deployment.DeepCopy()
	metav1.SetMetaDataAnnotation(&restarted.Spec.Template.ObjectMeta, restartedAt,
		c.options.Clock.Now().UTC().Format(time.RFC3339))
	patch := client.MergeFromWithOptions(deployment, client.MergeFromWithOptimisticLock{})
	if err := c.options.Target.Patch(ctx, restarted, patch); err != nil {
		return fmt.Sprintf("cannot restart Deployment %s: %s", deployment.Name, shorten(err.Error()))
	}
	return fmt.Sprintf("restarted Deployment %s, whose new pod must be available first", deployment.Name)
}

// hasSingleReplica reports whether a Deployment has one replica and creates the next pod before it deletes the old one.
func hasSingleReplica(d *appsv1.Deployment) bool {
	if ptr.Deref(d.Spec.Replicas, 1) != 1 || d.Spec.Strategy.RollingUpdate == nil {
		return false
	}
	surge, err := intstr.GetScaledValueFromIntOrPercent(d.Spec.Strategy.RollingUpdate.MaxSurge, 1, true)
	return err == nil && surge > 0
}
