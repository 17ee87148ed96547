package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// leasePeriod is the interval at which a kubelet renews its Lease.
const leasePeriod = 10 * time.Second

// maxHeartbeats limits the heartbeats that are sent in parallel. With a slow API server, heartbeats are late; the bench
// does not measure this.
const maxHeartbeats = 32

// sendHeartbeats renews the Lease of every node each leasePeriod and reports each node's status once. The requests are
// spread evenly over the time.
func (h *hosts) sendHeartbeats(ctx context.Context, during time.Duration) (requests int, err error) {
	names := h.names()
	var sent atomic.Int64
	var nodes sync.WaitGroup
	slots := semaphore.NewWeighted(maxHeartbeats)
	begun := time.Now()
	// runAt waits until the offset from the start of the idle phase, and calls action for a node. If the idle phase has
	// ended, runAt returns false without calling action.
	runAt := func(offset time.Duration, name string, action func(context.Context, string) error) bool {
		if offset >= during || !pause(ctx, time.Until(begun.Add(offset))) || slots.Acquire(ctx, 1) != nil {
			return false
		}
		defer slots.Release(1)
		if time.Since(begun) >= during {
			return false
		}
		if err := action(ctx, name); err != nil {
			if ctx.Err() == nil {
				h.setError(fmt.Errorf("heartbeat of node %s: %w", name, err))
			}
			return false
		}
		sent.Add(1)
		return true
	}
	for i, name := range names {
		share := float64(i) / float64(len(names))
		nodes.Go(func() {
			for offset := time.Duration(share * float64(leasePeriod)); runAt(offset, name, h.renew); offset += leasePeriod {
			}
		})
		nodes.Go(func() { runAt(time.Duration(share*float64(during)), name, h.report) })
	}
	nodes.Wait()
	pause(ctx, time.Until(begun.Add(during)))
	return int(sent.Load()), ctx.Err()
}

// pause reports false if ctx is canceled before d has passed.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// report updates the heartbeats in the Node's status. A kubelet updates the heartbeats from time to time, even if the
// rest of the status is unchanged.
func (h *hosts) report(ctx context.Context, name string) error {
	now := metav1.Now().UTC().Format(time.RFC3339)
	patch := `{"status":{"conditions":[`
	for i, t := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure,
		corev1.NodePIDPressure, corev1.NodeReady} {
		if i > 0 {
			patch += ","
		}
		patch += fmt.Sprintf(`{"type":%q,"lastHeartbeatTime":%q}`, t, now)
	}
	_, err := h.kube.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, []byte(patch+"]}}"),
		metav1.PatchOptions{}, "status")
	return err
}

func (h *hosts) renew(ctx context.Context, name string) error {
	leases := h.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	patch := fmt.Sprintf(`{"spec":{"renewTime":%q}}`, metav1.NowMicro().UTC().Format(metav1.RFC3339Micro))
	_, err := leases.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		return err
	}
	_, err = leases.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: ptr.To[int32](40),
			RenewTime: ptr.To(metav1.NowMicro())},
	}, metav1.CreateOptions{})
	return err
}
