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
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/migration/source"
)

const (
	// leaseHolder is the migrator's identity in the old controllers' Leases.
	leaseHolder = "machinist-migrator"
	// leaseSeconds is longer than any migration. Some old clients ignore the duration, so the migrator also renews the
	// Leases.
	leaseSeconds = 10 * 365 * 24 * 3600
	leaseRenewal = 5 * time.Second
	// assumedLease is how long an old controller leads without a renewal if no Lease has a duration.
	assumedLease = 15 * time.Second
)

// fence holds the observations of this process about the fence of one Migration, such as refused probes. After a
// restart, the process starts with an empty fence and observes everything again.
type fence struct {
	refusedProbes int // number of refused probes in a row
	lastProbe     time.Time
	probeError    error     // error of the last probe
	heldSince     time.Time // when this process first saw all Leases held by leaseHolder
	completeSince time.Time // when all parts of the fence were first in place
	lastRenewal   time.Time
	// disowned has the UIDs of the Machines from whose instances this process has removed Machinist's tags.
	disowned map[types.UID]bool
}

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
	for _, lease := range system.Leases(m.Spec.Provider) {
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

// fenceScope describes what the fence protects, in addition to old objects in the namespace.
type fenceScope struct {
	// allNamespaces protects old objects in all namespaces.
	allNamespaces bool
	// copiesOpen ends the protection of the objects that the migration created.
	copiesOpen bool
	// aborting is true in an abort, which must end even if the fence cannot work. A missing workload or namespace is
	// ignored, and the policy is not probed.
	aborting bool
}

// ensureFence creates the missing parts of the fence, and checks that the fence works. If a part of the fence is
// missing, the result waitingFor describes this part, and the caller must not continue.
func (r *Reconciler) ensureFence(ctx context.Context, m *v1beta1.Migration, system source.System,
	scope fenceScope) (waitingFor string, err error) {
	f := r.fenceOf(m)
	defer func() {
		if waitingFor != "" || err != nil {
			f.completeSince = time.Time{}
		} else if f.completeSince.IsZero() {
			f.completeSince = r.Clock.Now()
		}
	}()
	// Without the policies, the fence is never complete. Do not stop the old workloads before the policies exist.
	if missing, err := r.missingPolicy(ctx, m.Spec.Provider); err != nil || missing != "" {
		return missing, err
	}
	if recorded, err := r.recordWorkloads(ctx, m); err != nil || recorded {
		return "recording the replicas of the old workloads", err
	}
	if waitingFor, err := r.stopWorkloads(ctx, m, scope.aborting); err != nil || waitingFor != "" {
		return waitingFor, err
	}
	user, err := r.User(ctx)
	if err != nil {
		return "", err
	}
	leases := leasesOf(m, system)
	record := fenceRecord(r.SystemNamespace, m, user, leases, scope)
	changed, err := r.writeRecord(ctx, record)
	if err != nil {
		return "", err
	}
	if changed {
		f.refusedProbes, f.lastProbe = 0, time.Time{}
	}
	if !scope.aborting {
		if waitingFor, err := r.probe(ctx, m, f, record.Data[recordProbe]); err != nil || waitingFor != "" {
			return waitingFor, err
		}
	}
	if !scope.aborting { // The webhooks of the old system may be down, and an abort must end anyway.
		if err := r.pause(ctx, m); err != nil {
			return "", err
		}
	}
	return r.takeLeases(ctx, m, f, leases, scope.aborting)
}

// recordWorkloads stores the replicas of the workloads in the status, before they are scaled to 0.
func (r *Reconciler) recordWorkloads(ctx context.Context, m *v1beta1.Migration) (recorded bool, err error) {
	for _, w := range m.Spec.Fence.Workloads {
		same := func(s v1beta1.StoppedWorkload) bool { return s.Workload() == w }
		if slices.ContainsFunc(m.Status.Fence.Workloads, same) {
			continue
		}
		_, replicas, _, err := r.workload(ctx, w)
		switch {
		case apierrors.IsNotFound(err):
			continue // stopWorkloads reports the missing workload.
		case err != nil:
			return false, err
		}
		m.Status.Fence.Workloads = append(m.Status.Fence.Workloads, v1beta1.StoppedWorkload{Kind: w.Kind,
			Namespace: w.Namespace, Name: w.Name, Replicas: replicas})
		recorded = true
	}
	return recorded, nil
}

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

func (r *Reconciler) stopWorkloads(ctx context.Context, m *v1beta1.Migration,
	ignoreMissing bool) (waitingFor string, err error) {
	for _, w := range m.Spec.Fence.Workloads {
		name := fmt.Sprintf("%s %s/%s", w.Kind, w.Namespace, w.Name)
		object, replicas, selector, err := r.workload(ctx, w)
		switch {
		case apierrors.IsNotFound(err) && ignoreMissing:
			continue
		case apierrors.IsNotFound(err):
			return fmt.Sprintf("%s, which spec.fence.workloads names, does not exist", name), nil
		case err != nil:
			return "", fmt.Errorf("read %s: %w", name, err)
		}
		if replicas > 0 {
			if err := r.scale(ctx, object, 0); err != nil {
				return "", err
			}
			return fmt.Sprintf("scaling %s to 0", name), nil
		}
		labels, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			return "", fmt.Errorf("parse the selector of %s: %w", name, err)
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

// startWorkloadsOnce starts the old workloads after an abort, or if objects stay with the old system. Then it removes
// them from the status, so that a workload that a user stops later is not started again. The phase has already ended,
// because any earlier phase would stop the workloads again if its end cannot be stored.
func (r *Reconciler) startWorkloadsOnce(ctx context.Context, m *v1beta1.Migration) error {
	if m.Status.Phase == v1beta1.MigrationCompleted && len(m.Spec.Exclude) == 0 || len(m.Status.Fence.Workloads) == 0 ||
		!controllerutil.ContainsFinalizer(m, v1beta1.MigrationFinalizer) {
		return nil
	}
	if err := r.startWorkloads(ctx, m); err != nil {
		return err
	}
	m.Status.Fence.Workloads = nil
	if err := r.Control.Status().Update(ctx, m); err != nil {
		r.rememberStatus(m, nil) // The update may have been stored without an answer.
		return fmt.Errorf("record that the old workloads are started: %w", err)
	}
	r.rememberStatus(m, &m.Status)
	return nil
}

// startWorkloads restores the replicas of the old workloads. startWorkloads scales only workloads that the spec
// names, because a user who can write the status may lack the permission to scale workloads.
func (r *Reconciler) startWorkloads(ctx context.Context, m *v1beta1.Migration) error {
	for _, w := range m.Status.Fence.Workloads {
		if !slices.Contains(m.Spec.Fence.Workloads, w.Workload()) {
			continue
		}
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

// probe checks whether the policy uses the current version of the ConfigMap. The probe is a request with a value that
// the current version contains. If the policy refuses the request, the API server uses this version. API servers take a
// moment to notice a new version.
func (r *Reconciler) probe(ctx context.Context, m *v1beta1.Migration, f *fence, value string) (waitingFor string,
	err error) {
	waiting := fmt.Sprintf("waiting until all API servers apply the policy %s in namespace %s. If this takes more than a "+
		"minute, add the namespace to the value migrator.namespaces of the chart machinist-provider",
		policyOfOldObjects(m.Spec.Provider), m.SourceNamespaceOrDefault())
	if f.refusedProbes >= r.Timing.Probes {
		return "", nil
	}
	if f.lastProbe.IsZero() || r.Clock.Since(f.lastProbe) >= r.Timing.ProbeInterval {
		refused := false
		f.lastProbe = r.Clock.Now()
		if refused, f.probeError = r.probeOnce(ctx, m, value); refused {
			f.refusedProbes++
		} else {
			f.refusedProbes = 0
		}
	}
	switch {
	case f.probeError != nil:
		// Until the next probe, the error persists, so that conditions do not change with each pass.
		return "", f.probeError
	case f.refusedProbes < r.Timing.Probes:
		return waiting, nil
	}
	return "", nil
}

// probeOnce reports whether the policy refuses a request over a new connection.
func (r *Reconciler) probeOnce(ctx context.Context, m *v1beta1.Migration, value string) (refused bool, err error) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: m.SourceNamespaceOrDefault(), Name: probeLease,
		Annotations: map[string]string{v1beta1.AnnotationFenceProbe: value}}}
	api, err := r.NewClient()
	if err != nil {
		return false, fmt.Errorf("open a new connection for a probe: %w", err)
	}
	switch err := api.Create(ctx, lease, client.DryRunAll); {
	case err == nil, apierrors.IsAlreadyExists(err):
		return false, nil
	case strings.Contains(err.Error(), refusalOf(m)):
		return true, nil
	default:
		return false, fmt.Errorf("probe the policy %s: %w", policyOfOldObjects(m.Spec.Provider), err)
	}
}

// takeLeases acquires and renews the old controllers' Leases. An old controller may act until its Lease has expired, so
// takeLeases waits.
func (r *Reconciler) takeLeases(ctx context.Context, m *v1beta1.Migration, f *fence,
	leases []v1beta1.MigrationLease, ignoreMissing bool) (waitingFor string, err error) {
	renew := r.Clock.Since(f.lastRenewal) >= leaseRenewal
	for _, name := range leases {
		lease := &coordinationv1.Lease{}
		err := r.Control.Get(ctx, client.ObjectKey{Namespace: name.Namespace, Name: name.Name}, lease)
		switch {
		case apierrors.IsNotFound(err):
			lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
			r.setHolder(lease)
			err = r.Control.Create(ctx, lease)
			if apierrors.IsNotFound(err) && ignoreMissing {
				continue // The namespace does not exist, so no controller can hold the Lease.
			}
			f.heldSince = time.Time{}
		case err != nil:
		case lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != leaseHolder:
			if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil && *seconds > m.Status.Fence.LongestLeaseSeconds &&
				*seconds < leaseSeconds {
				m.Status.Fence.LongestLeaseSeconds = *seconds
				return "recording the Leases of the old controllers", nil
			}
			r.setHolder(lease)
			err = r.Control.Update(ctx, lease)
			f.heldSince = time.Time{}
		case renew:
			r.setHolder(lease)
			err = r.Control.Update(ctx, lease)
		}
		if err != nil {
			return "", fmt.Errorf("take the Lease %s/%s: %w", name.Namespace, name.Name, err)
		}
	}
	if renew {
		f.lastRenewal = r.Clock.Now()
	}
	m.Status.Fence.Leases = leases
	if len(leases) == 0 {
		return "", nil
	}
	if f.heldSince.IsZero() {
		f.heldSince = r.Clock.Now()
	}
	leaseDuration := time.Duration(m.Status.Fence.LongestLeaseSeconds) * time.Second
	if leaseDuration == 0 {
		leaseDuration = assumedLease
	}
	if r.Clock.Since(f.heldSince) < leaseDuration+r.Timing.LeaseMargin {
		return "waiting until each old controller that lost its Lease has stopped", nil
	}
	return "", nil
}

func (r *Reconciler) setHolder(lease *coordinationv1.Lease) {
	now := metav1.NewMicroTime(r.Clock.Now())
	holder, seconds := leaseHolder, int32(leaseSeconds)
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds, lease.Spec.RenewTime = &holder, &seconds, &now
	if lease.Spec.AcquireTime == nil {
		lease.Spec.AcquireTime = &now
	}
}

// releaseLeases deletes the acquired Leases. The old controllers create them again.
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
		if err := client.IgnoreNotFound(r.Control.Delete(ctx, lease, preconditionsFor(lease))); err != nil {
			return fmt.Errorf("release the Lease %s/%s: %w", name.Namespace, name.Name, err)
		}
	}
	return nil
}

// preconditionsFor makes a request fail if the object has changed since it was read.
func preconditionsFor(object client.Object) client.Preconditions {
	uid, version := object.GetUID(), object.GetResourceVersion()
	return client.Preconditions{UID: &uid, ResourceVersion: &version}
}
