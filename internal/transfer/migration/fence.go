package migration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/migration/source"
)

const (
	// leaseHolder is who holds the Leases of the old controllers during a migration.
	leaseHolder = "machinist-migrator"
	// leaseSeconds is longer than any migration lasts. Older clients ignore it, so the Leases are renewed as well.
	leaseSeconds = 10 * 365 * 24 * 3600
	// leaseRenewal is how often they are.
	leaseRenewal = 5 * time.Second
	// assumedLease is the time for which an old controller leads without renewing where no Lease said how long.
	assumedLease = 15 * time.Second
)

// fence is what this process knows of the fence of one migration. What it has not seen itself it finds out again.
type fence struct {
	probes   int       // how many in a row were refused
	probed   time.Time // when the last was made
	taken    time.Time // since when all Leases are seen to be ours
	standing time.Time // since when all of it holds
	renewed  time.Time
	// disowned are the Machines whose instances this process gave back.
	disowned map[types.UID]bool
}

// leasesOf are the Leases to take.
func leasesOf(m *v1beta1.Migration, system source.System) []v1beta1.MigrationLease {
	if !m.Spec.Fence.ElectsLeaderOrDefault() {
		return nil
	}
	if len(m.Spec.Fence.Leases) > 0 {
		return m.Spec.Fence.Leases
	}
	namespaces := []string{m.SourceNamespaceOrDefault()}
	for _, w := range m.Spec.Fence.Workloads {
		if !slices.Contains(namespaces, w.Namespace) {
			namespaces = append(namespaces, w.Namespace)
		}
	}
	var leases []v1beta1.MigrationLease
	for _, lease := range system.Leases() {
		if lease.Namespace != "" {
			leases = append(leases, v1beta1.MigrationLease{Namespace: lease.Namespace, Name: lease.Name})
			continue
		}
		for _, namespace := range namespaces {
			leases = append(leases, v1beta1.MigrationLease{Namespace: namespace, Name: lease.Name})
		}
	}
	return leases
}

// fenceScope says for what the fence stands beside the old objects of the Migration.
type fenceScope struct {
	// everywhere closes the old objects of all namespaces.
	everywhere bool
	// oursOpen no longer closes Machinist's own.
	oursOpen bool
	// lenient takes a workload that does not exist for one that has stopped.
	lenient bool
}

// ensureFence puts up the fence, or sees that it stands. Until waits is empty, nothing else must be done.
func (r *Reconciler) ensureFence(ctx context.Context, m *v1beta1.Migration, system source.System,
	scope fenceScope) (waits string, err error) {
	f := r.fenceOf(m)
	defer func() {
		if waits != "" || err != nil {
			f.standing = time.Time{}
		} else if f.standing.IsZero() {
			f.standing = r.Clock.Now()
		}
	}()
	if recorded, err := r.recordWorkloads(ctx, m); err != nil || recorded {
		return "the replicas of the old workloads are being recorded", err
	}
	if waits, err := r.stopWorkloads(ctx, m, scope.lenient); err != nil || waits != "" {
		return waits, err
	}
	user, err := r.User(ctx)
	if err != nil {
		return "", err
	}
	leases := leasesOf(m, system)
	changed, err := r.applyPolicy(ctx, oldPolicy(m, user, leases, scope.everywhere))
	if err != nil {
		return "", err
	}
	if changed {
		f.probes, f.probed = 0, time.Time{}
	}
	if scope.oursOpen {
		err = r.removePolicy(ctx, newPolicyName(m))
	} else {
		_, err = r.applyPolicy(ctx, newPolicy(m, user))
	}
	if err != nil {
		return "", err
	}
	if waits, err := r.probe(ctx, m, f); err != nil || waits != "" {
		return waits, err
	}
	return r.takeLeases(ctx, m, f, leases)
}

// recordWorkloads writes down how many replicas the workloads have, before they have none.
func (r *Reconciler) recordWorkloads(ctx context.Context, m *v1beta1.Migration) (recorded bool, err error) {
	for _, w := range m.Spec.Fence.Workloads {
		same := func(s v1beta1.StoppedWorkload) bool { return s.Workload() == w }
		if slices.ContainsFunc(m.Status.Fence.Workloads, same) {
			continue
		}
		_, replicas, _, err := r.workload(ctx, w)
		switch {
		case apierrors.IsNotFound(err):
			continue // stopWorkloads reports it.
		case err != nil:
			return false, err
		}
		m.Status.Fence.Workloads = append(m.Status.Fence.Workloads, v1beta1.StoppedWorkload{Kind: w.Kind,
			Namespace: w.Namespace, Name: w.Name, Replicas: replicas})
		recorded = true
	}
	return recorded, nil
}

// workload reads a workload: the object, its replicas and how to find its pods.
func (r *Reconciler) workload(ctx context.Context, w v1beta1.MigrationWorkload) (client.Object, int32,
	*metav1.LabelSelector, error) {
	key := client.ObjectKey{Namespace: w.Namespace, Name: w.Name}
	replicas := func(n *int32) int32 {
		if n == nil {
			return 1
		}
		return *n
	}
	if w.Kind == "StatefulSet" {
		set := &appsv1.StatefulSet{}
		err := r.Control.Get(ctx, key, set)
		return set, replicas(set.Spec.Replicas), set.Spec.Selector, err
	}
	deployment := &appsv1.Deployment{}
	err := r.Control.Get(ctx, key, deployment)
	return deployment, replicas(deployment.Spec.Replicas), deployment.Spec.Selector, err
}

func (r *Reconciler) scale(ctx context.Context, object client.Object, replicas int32) error {
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	if err := r.Control.SubResource("scale").Patch(ctx, object, patch); err != nil {
		return fmt.Errorf("scale %s/%s to %d: %w", object.GetNamespace(), object.GetName(), replicas, err)
	}
	return nil
}

// stopWorkloads scales the old workloads to 0 and waits until none of their pods is left.
func (r *Reconciler) stopWorkloads(ctx context.Context, m *v1beta1.Migration,
	lenient bool) (waits string, err error) {
	for _, w := range m.Spec.Fence.Workloads {
		name := fmt.Sprintf("%s %s/%s", w.Kind, w.Namespace, w.Name)
		object, replicas, selector, err := r.workload(ctx, w)
		switch {
		case apierrors.IsNotFound(err) && lenient:
			continue
		case apierrors.IsNotFound(err):
			return fmt.Sprintf("%s of spec.fence.workloads does not exist", name), nil
		case err != nil:
			return "", fmt.Errorf("read %s: %w", name, err)
		}
		if replicas > 0 {
			if err := r.scale(ctx, object, 0); err != nil {
				return "", err
			}
			return fmt.Sprintf("%s is being scaled to 0", name), nil
		}
		labels, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			return "", fmt.Errorf("the selector of %s: %w", name, err)
		}
		pods := &corev1.PodList{}
		if err := r.Control.List(ctx, pods, client.InNamespace(w.Namespace),
			client.MatchingLabelsSelector{Selector: labels}); err != nil {
			return "", fmt.Errorf("list the pods of %s: %w", name, err)
		}
		if len(pods.Items) > 0 {
			return fmt.Sprintf("pod %s/%s of %s still exists", w.Namespace, pods.Items[0].Name, name), nil
		}
	}
	return "", nil
}

// startWorkloads gives the old workloads the replicas that they had, if they have none.
func (r *Reconciler) startWorkloads(ctx context.Context, m *v1beta1.Migration) error {
	for _, w := range m.Status.Fence.Workloads {
		object, replicas, _, err := r.workload(ctx, w.Workload())
		switch {
		case apierrors.IsNotFound(err) || err == nil && (replicas > 0 || w.Replicas == 0):
			continue
		case err != nil:
			return fmt.Errorf("read %s %s/%s: %w", w.Kind, w.Namespace, w.Name, err)
		}
		if err := r.scale(ctx, object, w.Replicas); err != nil {
			return err
		}
	}
	return nil
}

// probe sees that the policy is in force: an API server applies a new one only after a moment, and there may be several
// servers.
func (r *Reconciler) probe(ctx context.Context, m *v1beta1.Migration, f *fence) (waits string, err error) {
	const waiting = "the policy that closes the old objects is not known to be in force everywhere yet"
	if f.probes >= r.Timing.Probes {
		return "", nil
	}
	if !f.probed.IsZero() && r.Clock.Since(f.probed) < r.Timing.ProbeInterval {
		return waiting, nil
	}
	f.probed = r.Clock.Now()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: m.SourceNamespaceOrDefault(), Name: probeLease,
		Annotations: map[string]string{v1beta1.AnnotationFenceProbe: ""}}}
	api, err := r.Fresh()
	if err != nil {
		return "", fmt.Errorf("make a new connection for a probe: %w", err)
	}
	err = api.Create(ctx, lease, client.DryRunAll)
	if err == nil || !strings.Contains(err.Error(), oldPolicyName(m)) {
		f.probes = 0
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return "", fmt.Errorf("probe the policy %s: %w", oldPolicyName(m), err)
		}
		return waiting, nil
	}
	if f.probes++; f.probes < r.Timing.Probes {
		return waiting, nil
	}
	return "", nil
}

// takeLeases holds the Leases of the old controllers. Those who held them may act for as long as they think they lead.
func (r *Reconciler) takeLeases(ctx context.Context, m *v1beta1.Migration, f *fence,
	leases []v1beta1.MigrationLease) (waits string, err error) {
	renew := r.Clock.Since(f.renewed) >= leaseRenewal
	for _, name := range leases {
		lease := &coordinationv1.Lease{}
		err := r.Control.Get(ctx, client.ObjectKey{Namespace: name.Namespace, Name: name.Name}, lease)
		switch {
		case apierrors.IsNotFound(err):
			lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
			r.hold(lease)
			err = r.Control.Create(ctx, lease)
			f.taken = time.Time{}
		case err != nil:
		case lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != leaseHolder:
			if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil && *seconds > m.Status.Fence.LongestLeaseSeconds &&
				*seconds < leaseSeconds {
				m.Status.Fence.LongestLeaseSeconds = *seconds
				return "the Leases of the old controllers are being recorded", nil
			}
			r.hold(lease)
			err = r.Control.Update(ctx, lease)
			f.taken = time.Time{}
		case renew:
			r.hold(lease)
			err = r.Control.Update(ctx, lease)
		}
		if err != nil {
			return "", fmt.Errorf("take the Lease %s/%s: %w", name.Namespace, name.Name, err)
		}
	}
	if renew {
		f.renewed = r.Clock.Now()
	}
	m.Status.Fence.Leases = leases
	if len(leases) == 0 {
		return "", nil
	}
	if f.taken.IsZero() {
		f.taken = r.Clock.Now()
	}
	led := time.Duration(m.Status.Fence.LongestLeaseSeconds) * time.Second
	if led == 0 {
		led = assumedLease
	}
	if r.Clock.Since(f.taken) < led+r.Timing.LeaseMargin {
		return "an old controller that lost its Lease may act for some seconds more", nil
	}
	return "", nil
}

func (r *Reconciler) hold(lease *coordinationv1.Lease) {
	now := metav1.NewMicroTime(r.Clock.Now())
	holder, seconds := leaseHolder, int32(leaseSeconds)
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &holder, &seconds, &now
	if lease.Spec.AcquireTime == nil {
		lease.Spec.AcquireTime = &now
	}
}

// releaseLeases removes the Leases that were taken: the old controllers make them anew.
func (r *Reconciler) releaseLeases(ctx context.Context, m *v1beta1.Migration) error {
	for _, name := range m.Status.Fence.Leases {
		lease := &coordinationv1.Lease{}
		err := r.Control.Get(ctx, client.ObjectKey{Namespace: name.Namespace, Name: name.Name}, lease)
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return fmt.Errorf("read the Lease %s/%s: %w", name.Namespace, name.Name, err)
		case lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != leaseHolder:
			continue
		}
		if err := client.IgnoreNotFound(r.Control.Delete(ctx, lease, exactly(lease))); err != nil {
			return fmt.Errorf("release the Lease %s/%s: %w", name.Namespace, name.Name, err)
		}
	}
	return nil
}

// exactly limits a deletion to the object as it was read.
func exactly(object client.Object) client.Preconditions {
	uid, version := object.GetUID(), object.GetResourceVersion()
	return client.Preconditions{UID: &uid, ResourceVersion: &version}
}
