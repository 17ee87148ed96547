package drain

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// daemonSetMemory is how long a DaemonSet that was read is assumed to exist. If the DaemonSet is deleted in the
// meantime, the garbage collector deletes its pods anyway.
const daemonSetMemory = time.Minute

// daemonSets detects pods whose DaemonSet no longer exists. An existing DaemonSet would create an evicted pod again.
// All nodes run pods of the same few DaemonSets. Therefore, each DaemonSet is read once a minute, and not once per
// node.
type daemonSets struct {
	target client.Reader
	clock  clock.PassiveClock

	mu    sync.Mutex
	found map[types.UID]time.Time
}

// orphanedUIDs returns the UIDs of DaemonSets that control some of the pods but no longer exist.
func (d *daemonSets) orphanedUIDs(ctx context.Context, pods []corev1.Pod) (map[types.UID]bool, error) {
	var orphaned map[types.UID]bool
	for i := range pods {
		pod := &pods[i]
		owner := daemonSetOf(pod)
		// DaemonSets of other API groups are assumed to exist, because the controller cannot read them.
		if owner == nil || !strings.HasPrefix(owner.APIVersion, "apps/") || orphaned[owner.UID] || d.known(owner.UID) {
			continue
		}
		exists, err := d.exists(ctx, pod.Namespace, owner)
		if err != nil {
			return nil, err
		}
		if exists {
			d.remember(owner.UID)
			continue
		}
		if orphaned == nil {
			orphaned = map[types.UID]bool{}
		}
		orphaned[owner.UID] = true
	}
	return orphaned, nil
}

func (d *daemonSets) exists(ctx context.Context, namespace string, owner *metav1.OwnerReference) (bool, error) {
	var set metav1.PartialObjectMetadata
	set.SetGroupVersionKind(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"})
	err := d.target.Get(ctx, types.NamespacedName{Namespace: namespace, Name: owner.Name}, &set)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("get DaemonSet %s/%s: %w", namespace, owner.Name, err)
	}
	return set.UID == owner.UID, nil
}

func (d *daemonSets) known(uid types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, found := d.found[uid]
	return found && d.clock.Since(at) < daemonSetMemory
}

func (d *daemonSets) remember(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	for old, at := range d.found {
		if now.Sub(at) >= daemonSetMemory {
			delete(d.found, old)
		}
	}
	if d.found == nil {
		d.found = map[types.UID]time.Time{}
	}
	d.found[uid] = now
}
