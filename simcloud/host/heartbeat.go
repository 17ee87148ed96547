package host

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"machinist.dev/machinist/simcloud"
)

// renewShare is the number of renewals in one Lease duration. The renewal interval is the Lease duration divided by
// renewShare.
const renewShare = 4

type heartbeatState struct {
	lease         *coordinationv1.Lease // Lease as the server last returned it
	nextRenewal   time.Time
	nextCheck     time.Time // time of the next check of the Node
	cloudFieldsAt time.Time // time at which the cloud controller acts; zero after that
	reported      time.Time // last heartbeat in the Node's status
	lastError     string    // last printed error
	backoff       wait.Backoff
}

// heartbeat renews the Lease and updates the Node until the machine is switched off. The method prints an error
// unless the previous attempt failed in the same way, because no other component reports errors.
func (m *machine) heartbeat(ctx context.Context) {
	// A Node registers as not Ready. The Node is updated as soon as the machine is ready.
	p := &heartbeatState{backoff: newBackoff(), reported: m.registrationTime}
	m.schedule(p)
	for ctx.Err() == nil {
		err := m.heartbeatOnce(ctx, p)
		now := m.clock.Now()
		next := p.nextRenewal
		for _, other := range []time.Time{p.nextCheck, p.cloudFieldsAt} {
			if !other.IsZero() && other.Before(next) {
				next = other
			}
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			if p.lastError != "" {
				m.printf("kubelet: the heartbeat succeeds again")
				m.report(simcloud.HostJoined, "")
			}
			p.lastError, p.backoff = "", newBackoff()
		case apierrors.IsNotFound(err) && m.spec.Settings.Reregister:
			m.printf("kubelet: node %s was deleted; registering it again", m.spec.Hostname)
			p.lease = nil
			if !m.retry(ctx, "register the node", registrationBackoff(), m.register) {
				return
			}
			m.schedule(p)
			// The error may be about another missing object. Wait a second before the next attempt, so that a
			// persistent error does not cause a busy loop.
			next = now.Add(time.Second)
		default:
			if trouble := "heartbeat: " + explain(err); trouble != p.lastError {
				m.printf("kubelet: %s", trouble)
				m.report(simcloud.HostJoined, trouble)
				p.lastError = trouble
			}
			next = now.Add(min(m.interval(), p.backoff.Step()))
			if p.nextRenewal.After(now) && p.nextRenewal.Before(next) {
				next = p.nextRenewal
			}
		}
		m.pause(ctx, next.Sub(now))
	}
}

// schedule plans the first actions after the registration. A real kubelet tries to renew the Lease before its Node
// exists, which fails. So the first successful renewal, which creates the Lease of a new Node, is one interval after
// the registration.
func (m *machine) schedule(p *heartbeatState) {
	p.nextRenewal = m.registrationTime
	if m.nodeCreated {
		p.nextRenewal = m.registrationTime.Add(m.interval())
	}
	p.nextCheck = m.registrationTime.Add(time.Duration(m.spec.Settings.NodeReadyDelay))
	if !m.spec.Settings.NoCloudController {
		p.cloudFieldsAt = m.registrationTime.Add(time.Duration(m.spec.Settings.CloudDelay))
	}
}

// interval adds jitter to the renewal interval to spread the load.
func (m *machine) interval() time.Duration {
	return wait.Jitter(m.boot.leaseDuration/renewShare, 0.04)
}

// heartbeatOnce performs the due actions.
func (m *machine) heartbeatOnce(ctx context.Context, p *heartbeatState) error {
	if now := m.clock.Now(); !now.Before(p.nextRenewal) {
		if err := m.renew(ctx, p); err != nil {
			return err
		}
		p.nextRenewal = now.Add(m.interval())
	}
	if now := m.clock.Now(); !now.Before(p.nextCheck) {
		if err := m.check(ctx, p, now); err != nil {
			return err
		}
	}
	if p.cloudFieldsAt.IsZero() || m.clock.Now().Before(p.cloudFieldsAt) {
		return nil
	}
	if err := m.setCloudFields(ctx); err != nil {
		return err
	}
	p.cloudFieldsAt = time.Time{}
	return nil
}

// check compares the Node with the machine and updates the Node if necessary.
func (m *machine) check(ctx context.Context, p *heartbeatState, now time.Time) error {
	report := now.Sub(p.reported) >= m.boot.statusReport
	node, err := m.syncNode(ctx, false, report)
	if err != nil {
		return err
	}
	if err := m.handleUpdateRequest(ctx, node); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	p.nextCheck = now.Add(m.boot.statusCheck)
	if report {
		p.reported = now
	}
	return nil
}

// renew renews or creates the Lease. If the Node does not exist, it returns NotFound and creates no Lease, like a
// kubelet.
func (m *machine) renew(ctx context.Context, p *heartbeatState) error {
	ctx, cancel := context.WithTimeout(ctx, m.boot.leaseDuration/2)
	defer cancel()
	err := m.tryRenew(ctx, p)
	if apierrors.IsConflict(err) || (apierrors.IsNotFound(err) && p.lease != nil) {
		// Another client has changed or deleted the Lease.
		p.lease = nil
		err = m.tryRenew(ctx, p)
	}
	return err
}

func (m *machine) tryRenew(ctx context.Context, p *heartbeatState) error {
	leases := m.conn.coordination.Leases(corev1.NamespaceNodeLease)
	now := metav1.NewMicroTime(m.clock.Now())
	known := p.lease
	if known == nil {
		lease, err := m.makeLease(ctx, now)
		if err == nil {
			p.lease = lease
			return nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		if known, err = leases.Get(ctx, m.spec.Hostname, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	next := known.DeepCopy()
	next.Spec.HolderIdentity = ptr.To(m.spec.Hostname)
	next.Spec.LeaseDurationSeconds = ptr.To(int32(m.boot.leaseDuration / time.Second))
	next.Spec.RenewTime = &now
	lease, err := leases.Update(ctx, next, metav1.UpdateOptions{})
	if err == nil {
		p.lease = lease
	}
	return err
}

func (m *machine) makeLease(ctx context.Context, now metav1.MicroTime) (*coordinationv1.Lease, error) {
	uid, err := m.liveNode(ctx)
	if err != nil {
		return nil, err
	}
	return m.conn.coordination.Leases(corev1.NamespaceNodeLease).Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.spec.Hostname, Namespace: corev1.NamespaceNodeLease,
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: m.spec.Hostname, UID: uid}},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       ptr.To(m.spec.Hostname),
			LeaseDurationSeconds: ptr.To(int32(m.boot.leaseDuration / time.Second)),
			RenewTime:            &now,
		},
	}, metav1.CreateOptions{})
}

// liveNode returns the UID of the current Node. The UID from the registration is used only once, because the Node may
// be created again later.
func (m *machine) liveNode(ctx context.Context) (types.UID, error) {
	m.mu.Lock()
	uid := m.nodeUID
	m.nodeUID = ""
	m.mu.Unlock()
	if uid != "" {
		return uid, nil
	}
	node, err := m.conn.core.Nodes().Get(ctx, m.spec.Hostname, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return node.UID, nil
}
