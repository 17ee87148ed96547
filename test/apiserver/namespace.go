package apiserver

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// namespaceStrategy handles writes of Namespaces. The finalizer of a Namespace is in its spec. The namespace controller
// removes this finalizer after it has deleted all objects in the Namespace.
type namespaceStrategy struct{ statusStrategy }

func (s namespaceStrategy) create(now metav1.Time, meta *metav1.ObjectMeta, body map[string]any) (map[string]any,
	field.ErrorList) {
	labels := map[string]string{corev1.LabelMetadataName: meta.Name}
	for k, v := range meta.Labels {
		if k != corev1.LabelMetadataName {
			labels[k] = v
		}
	}
	meta.Labels = labels
	body["spec"] = map[string]any{"finalizers": []any{string(corev1.FinalizerKubernetes)}}
	body["status"] = map[string]any{"phase": string(corev1.NamespaceActive)}
	return body, nil
}

// terminateNamespace marks a Namespace for deletion. done is false if the object is deleted like any other object.
func (s *Server) terminateNamespace(k *kind, req request, old *record) (done bool, err error) {
	namespace, ok := old.object.(*corev1.Namespace)
	if !ok || len(namespace.Spec.Finalizers) == 0 {
		return false, nil
	}
	if !namespace.DeletionTimestamp.IsZero() || req.dryRun {
		return true, nil
	}
	meta := *old.meta
	now := s.timestamp()
	meta.DeletionTimestamp = &now
	marked := k.withMeta(old, meta)
	status := map[string]any{"phase": string(corev1.NamespaceTerminating)}
	r := &record{key: old.key, managed: old.managed}
	if err := k.build(r, marked, meta, merge(old.body, map[string]any{"status": status})); err != nil {
		return true, err
	}
	s.put(k, req, old, r)
	return true, nil
}

// checkNamespace refuses new objects in a terminating Namespace. The Namespace need not exist.
func (s *Server) checkNamespace(k *kind, namespace, name string) error {
	if !k.namespaced {
		return nil
	}
	r := s.get(s.registry.namespaces, client.ObjectKey{Name: namespace})
	if r == nil || r.meta.DeletionTimestamp == nil {
		return nil
	}
	err := apierrors.NewForbidden(k.resource(), name,
		fmt.Errorf("unable to create new content in namespace %s because it is being terminated", namespace))
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{
		Type: corev1.NamespaceTerminatingCause, Message: fmt.Sprintf("namespace %s is being terminated", namespace),
		Field: "metadata.namespace",
	})
	return err
}

// findNamespaceSteps adds the due steps of the namespace controller. In each terminating Namespace, the controller
// deletes the pods, then all other objects in any order, and finally the Namespace.
func (s *Server) findNamespaceSteps() {
	for _, n := range s.tables[s.registry.namespaces.index] {
		if n.meta.DeletionTimestamp == nil {
			continue
		}
		hasPods := s.hasPods(n.key.Name)
		remaining := hasPods
		for _, k := range s.registry.kinds {
			if !k.namespaced || hasPods && k != s.registry.pods {
				continue
			}
			for _, r := range s.tables[k.index] {
				if r.key.Namespace != n.key.Name {
					continue
				}
				remaining = true
				if r.meta.DeletionTimestamp == nil {
					s.pending = append(s.pending, step{k, r.key, deleteContent})
				}
			}
		}
		if !remaining && len(n.meta.Finalizers) == 0 {
			s.pending = append(s.pending, step{s.registry.namespaces, n.key, finishNamespace})
		}
	}
}

func (s *Server) hasPods(namespace string) bool {
	pods := s.tables[s.registry.pods.index]
	i, _ := pods.find(client.ObjectKey{Namespace: namespace})
	return i < len(pods) && pods[i].key.Namespace == namespace
}

func (s *Server) finishNamespace(k *kind, req request, old *record) {
	s.remove(k, req, old)
}
