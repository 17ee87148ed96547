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

// renewShare of its duration is how often a Lease is renewed.
const renewShare = 4

// pulse is the state of the heartbeat.
type pulse struct {
	lease       *coordinationv1.Lease // as the server last returned it
	nextRenewal time.Time
	nextCheck   time.Time // of the Node
	adoptAt     time.Time // by the cloud controller; zero when that is done
	reported    time.Time // when the Node's heartbeat was last renewed
	trouble     string    // what the last attempt failed of, as printed
	backoff     wait.Backoff
}

// heartbeat renews the Lease and holds the Node against the machine, until the
// plug is pulled. A failure is printed when it is another than the last one:
// nobody else hears of it.
func (m *machine) heartbeat(ctx context.Context) {
	// A Node registers as not Ready, and is updated as soon as it is.
	p := &pulse{backoff: newBackoff(), reported: m.registered}
	m.schedule(p)
	for ctx.Err() == nil {
		err := m.beat(ctx, p)
		now := m.clock.Now()
		next := p.nextRenewal
		for _, other := range []time.Time{p.nextCheck, p.adoptAt} {
			if !other.IsZero() && other.Before(next) {
				next = other
			}
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			if p.trouble != "" {
				m.printf("kubelet: heartbeat is well again")
				m.report(simcloud.HostJoined, "")
			}
			p.trouble, p.backoff = "", newBackoff()
		case apierrors.IsNotFound(err) && m.spec.Settings.Reregister:
			m.printf("kubelet: node %s is gone; registers again", m.spec.Hostname)
			p.lease = nil
			if !m.retry(ctx, "register node", registrationBackoff(), m.register) {
				return
			}
			m.schedule(p)
			// At once, but if it is something else that is not found, not in a
			// busy loop.
			next = now.Add(time.Second)
		default:
			if trouble := "heartbeat: " + explain(err); trouble != p.trouble {
				m.printf("kubelet: %s", trouble)
				m.report(simcloud.HostJoined, trouble)
				p.trouble = trouble
			}
			next = now.Add(min(m.interval(), p.backoff.Step()))
			if p.nextRenewal.After(now) && p.nextRenewal.Before(next) {
				next = p.nextRenewal
			}
		}
		m.pause(ctx, next.Sub(now))
	}
}

// schedule plans what follows a registration. A kubelet tries to renew its
// Lease before it has registered; the first Lease of a new Node comes with the
// next try, an interval later.
func (m *machine) schedule(p *pulse) {
	p.nextRenewal = m.registered
	if m.created {
		p.nextRenewal = m.registered.Add(m.interval())
	}
	p.nextCheck = m.registered.Add(time.Duration(m.spec.Settings.NodeReadyDelay))
	if !m.spec.Settings.NoCloudController {
		p.adoptAt = m.registered.Add(time.Duration(m.spec.Settings.CloudDelay))
	}
}

// interval is how often the Lease is renewed, with jitter to keep machines
// apart.
func (m *machine) interval() time.Duration {
	return wait.Jitter(m.boot.leaseDuration/renewShare, 0.04)
}

// beat does what is due.
func (m *machine) beat(ctx context.Context, p *pulse) error {
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
	if p.adoptAt.IsZero() || m.clock.Now().Before(p.adoptAt) {
		return nil
	}
	if err := m.adoptNode(ctx); err != nil {
		return err
	}
	p.adoptAt = time.Time{}
	return nil
}

// check holds the Node against the machine.
func (m *machine) check(ctx context.Context, p *pulse, now time.Time) error {
	report := now.Sub(p.reported) >= m.boot.statusReport
	node, err := m.syncNode(ctx, false, report)
	if err != nil {
		return err
	}
	if err := m.obey(ctx, node); err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	p.nextCheck = now.Add(m.boot.statusCheck)
	if report {
		p.reported = now
	}
	return nil
}

// renew renews the Lease, and makes it if it is missing. Without a Node there
// is no Lease either: NotFound then, as with a kubelet.
func (m *machine) renew(ctx context.Context, p *pulse) error {
	ctx, cancel := context.WithTimeout(ctx, m.boot.leaseDuration/2)
	defer cancel()
	err := m.tryRenew(ctx, p)
	if apierrors.IsConflict(err) || (apierrors.IsNotFound(err) && p.lease != nil) {
		// Somebody changed or deleted it: what we know of it is worth nothing.
		p.lease = nil
		err = m.tryRenew(ctx, p)
	}
	return err
}

func (m *machine) tryRenew(ctx context.Context, p *pulse) error {
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

// makeLease creates the Lease as the Node's.
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

// liveNode is the UID of the machine's Node. The one that registration returned
// serves once; after that the Node may be gone.
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
