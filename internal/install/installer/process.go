package installer

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

type process struct {
	deployment *appsv1.Deployment // nil if it does not exist
	pods       []corev1.Pod
	// leader is the pod that holds the Lease, or "" if no pod of the process holds it.
	leader string
}

func (r *Reconciler) observe(ctx context.Context, provider *v1beta1.Provider, status *v1beta1.ProviderStatus) (process,
	error) {
	at := slices.IndexFunc(status.Installed, func(o v1beta1.InstalledObject) bool { return o.Kind == "Deployment" })
	if at < 0 {
		return process{}, nil
	}
	ref, found := status.Installed[at], process{}
	deployment := &appsv1.Deployment{}
	switch err := r.LiveClient.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, deployment); {
	case apierrors.IsNotFound(err):
		return process{}, nil
	case err != nil:
		return process{}, fmt.Errorf("read %s: %w", nameOf(ref), err)
	case !metav1.IsControlledBy(deployment, provider):
		return process{}, nil
	}
	found.deployment = deployment
	pods := &corev1.PodList{}
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return process{}, fmt.Errorf("read the selector of %s: %w", nameOf(ref), err)
	}
	if err := r.LiveClient.List(ctx, pods, client.InNamespace(ref.Namespace),
		client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return process{}, fmt.Errorf("list the pods of %s: %w", nameOf(ref), err)
	}
	found.pods = pods.Items
	if found.leader, err = r.leader(ctx, leaseName(provider, status), ref.Namespace, found.pods); err != nil {
		return process{}, err
	}
	return found, nil
}

func leaseName(provider *v1beta1.Provider, status *v1beta1.ProviderStatus) string {
	if provider.Spec.WatchNamespace == "" {
		return status.Process
	}
	return status.Process + "-" + provider.Spec.WatchNamespace
}

// leader returns the name of the pod that holds the Lease. Expiry does not matter, because the pod of a former leader
// no longer exists. A Lease in another control cluster is not found.
func (r *Reconciler) leader(ctx context.Context, name, namespace string, pods []corev1.Pod) (string, error) {
	lease := &coordinationv1.Lease{}
	switch err := r.LiveClient.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, lease); {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read Lease %s/%s: %w", namespace, name, err)
	}
	if lease.Spec.HolderIdentity == nil {
		return "", nil
	}
	host, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	for i := range pods {
		// The Lease has the host name of the pod: its name, truncated to 63 characters.
		if name := pods[i].Name; host != "" && (name == host || len(host) == 63 && strings.HasPrefix(name, host)) {
			return name, nil
		}
	}
	return "", nil
}

func (p process) version() string {
	var versions []string
	for i := range p.pods {
		pod := &p.pods[i]
		if !isReady(pod) || len(pod.Spec.Containers) == 0 {
			continue
		}
		if v := versionOf(pod.Spec.Containers[0].Image); !slices.Contains(versions, v) {
			versions = append(versions, v)
		}
	}
	slices.Sort(versions)
	return strings.Join(versions, ", ")
}

func desiredVersion(objects []*unstructured.Unstructured) string {
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
		if len(containers) > 0 {
			if container, ok := containers[0].(map[string]any); ok {
				image, _ := container["image"].(string)
				return versionOf(image)
			}
		}
	}
	return ""
}

func versionOf(image string) string {
	name, digest, hasDigest := strings.Cut(image, "@")
	if colon := strings.LastIndex(name, ":"); colon > strings.LastIndex(name, "/") {
		return name[colon+1:]
	}
	if hasDigest {
		return digest[:min(len(digest), len("sha256:")+12)]
	}
	return "latest"
}

func isReady(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil {
		return false
	}
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
