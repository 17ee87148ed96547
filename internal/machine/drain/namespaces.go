package drain

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// namespaceMemory is how long the labels of a namespace are assumed to stay the same after they were read.
const namespaceMemory = time.Minute

// namespaces reads the labels of namespaces, each at most once a minute for all drains.
type namespaces struct {
	target client.Reader
	clock  clock.PassiveClock

	mu   sync.Mutex
	read map[string]namespaceLabels
}

type namespaceLabels struct {
	labels labels.Set
	at     time.Time
}

// labelsOf returns the labels of the pods' namespaces, by the name of the namespace.
func (n *namespaces) labelsOf(ctx context.Context, pods []corev1.Pod) (map[string]labels.Set, error) {
	all := map[string]labels.Set{}
	for i := range pods {
		name := pods[i].Namespace
		if _, known := all[name]; known {
			continue
		}
		set, err := n.of(ctx, name)
		if err != nil {
			return nil, err
		}
		all[name] = set
	}
	return all, nil
}

func (n *namespaces) of(ctx context.Context, name string) (labels.Set, error) {
	now := n.clock.Now()
	n.mu.Lock()
	known, found := n.read[name]
	n.mu.Unlock()
	if found && now.Sub(known.at) < namespaceMemory {
		return known.labels, nil
	}
	var namespace metav1.PartialObjectMetadata
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := n.target.Get(ctx, types.NamespacedName{Name: name}, &namespace)
	if apierrors.IsNotFound(err) {
		// The namespace was deleted a moment ago. The API server sets this label on each namespace.
		return labels.Set{corev1.LabelMetadataName: name}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get namespace %q: %w", name, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for old, entry := range n.read {
		if now.Sub(entry.at) >= namespaceMemory {
			delete(n.read, old)
		}
	}
	if n.read == nil {
		n.read = map[string]namespaceLabels{}
	}
	n.read[name] = namespaceLabels{namespace.Labels, now}
	return namespace.Labels, nil
}
