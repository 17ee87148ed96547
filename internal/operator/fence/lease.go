package fence

import (
	"context"
	"errors"
	"maps"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lease is the lock of a Lease object. Unlike resourcelock.LeaseLock, it shows the elector each write as a change: that
// one shows what is in the lease, times in whole seconds, so that a renewal may look like the one before. Whoever waits
// would not see it, and take over while the leader counts on it.
type Lease struct {
	// Client is for the namespace of the lease.
	Client coordinationclient.LeaseInterface
	// Namespace and Name of the lease.
	Namespace, Name string
	// Holder is who gets it.
	Holder string
	// Labels are set on it at each write, beside others that it has.
	Labels map[string]string

	// known is as it was read or written last; nil if it was not there.
	known *coordinationv1.Lease
}

// Get implements resourcelock.Interface.
func (l *Lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.known = nil
	read, err := l.Client.Get(ctx, l.Name, metav1.GetOptions{})
	if err != nil {
		return nil, nil, err
	}
	l.known = read
	version := []byte(string(read.UID) + "/" + read.ResourceVersion)
	return resourcelock.LeaseSpecToLeaderElectionRecord(&read.Spec), version, nil
}

// Create implements resourcelock.Interface.
func (l *Lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.known = nil
	made, err := l.Client.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name, Labels: l.Labels},
		Spec:       resourcelock.LeaderElectionRecordToLeaseSpec(&record),
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	l.known = made
	return nil
}

// Update implements resourcelock.Interface. It fails if anybody wrote the lease since it was read or written here.
func (l *Lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if l.known == nil {
		return errors.New("the lease was not read")
	}
	changed := l.known.DeepCopy()
	changed.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(&record)
	if len(l.Labels) > 0 && changed.Labels == nil {
		changed.Labels = map[string]string{}
	}
	maps.Copy(changed.Labels, l.Labels)
	written, err := l.Client.Update(ctx, changed, metav1.UpdateOptions{})
	if err != nil {
		return err
	}
	l.known = written
	return nil
}

// RecordEvent implements resourcelock.Interface. Events about leases are not recorded.
func (l *Lease) RecordEvent(string) {}

// Identity implements resourcelock.Interface.
func (l *Lease) Identity() string { return l.Holder }

// Describe implements resourcelock.Interface.
func (l *Lease) Describe() string { return l.Namespace + "/" + l.Name }
