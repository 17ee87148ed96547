package fence

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lease is the lock of a Lease object. Unlike resourcelock.LeaseLock, it shows the elector each write as a change: that
// one shows what is in the lease, times in whole seconds, so that a renewal may look like the one before. Whoever waits
// would not see it, and take over while the leader counts on it.
//
// Anybody with the right to write the lease may change it while its holder counts on it, and the holder sees that at
// its next renewal only. So a lease that its holder did not release is shown as one that is held, for a lease duration
// from that change: one without a holder, one that was deleted, and one in our name that we did not take. The duration
// in it counts within bounds.
type Lease struct {
	// Client is for the namespace of the lease.
	Client coordinationclient.LeaseInterface
	// Namespace and Name of the lease.
	Namespace, Name string
	// Holder is who gets it.
	Holder string
	// Duration is the lease duration of our own election: no lease of another is over earlier.
	Duration time.Duration
	// Labels are set on it at each write, in addition to others that it has.
	Labels map[string]string
	// First reports whether no process has held the lease yet, and records that one does from now on: of all callers it
	// answers true to one only. Without it, a lease that does not exist always counts as deleted.
	First func(context.Context) (bool, error)

	// shared says that others hold it in the same name, as the members of a group do.
	shared bool
	// known is as it was read or written last; nil if it was not there.
	known *coordinationv1.Lease
	// others is as somebody else held it when it was read last; nil if nobody did.
	others *resourcelock.LeaderElectionRecord
	// asked says that we have asked for it since somebody else had it, and were not surely refused.
	asked bool
}

// LongestDuration is the longest lease duration that is believed. With a longer one in its lease, a process that died
// would keep all others waiting.
const LongestDuration = 5 * time.Minute

// notReleased is shown as the holder of a lease that has none, or a wrong one, and was not released.
const notReleased = "somebody whose name was overwritten"

// Get implements resourcelock.Interface.
func (l *Lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.known = nil
	read, err := l.Client.Get(ctx, l.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !l.asked {
		return l.missing(ctx, err)
	}
	if err != nil {
		return nil, nil, err
	}
	l.known = read
	version := []byte(string(read.UID) + "/" + read.ResourceVersion)
	record := l.shown(resourcelock.LeaseSpecToLeaderElectionRecord(&read.Spec))
	l.others = nil
	if record.HolderIdentity != "" && record.HolderIdentity != l.Holder {
		l.others, l.asked = record, false
	}
	return record, version, nil
}

// missing returns what is shown of a lease that does not exist and is not ours: its last holder may still count on it,
// also where this process never read it. Only a lease that no process has held yet is not found.
func (l *Lease) missing(ctx context.Context, notFound error) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if l.others == nil && l.First != nil {
		first, err := l.First(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("find out whether lease %s was deleted: %w", l.Describe(), err)
		}
		if first {
			return nil, nil, notFound
		}
	}
	if l.others == nil {
		l.others = l.shown(&resourcelock.LeaderElectionRecord{HolderIdentity: notReleased})
	}
	return l.others, []byte("deleted"), nil
}

// shown returns what the elector may believe of what is in the lease.
func (l *Lease) shown(record *resourcelock.LeaderElectionRecord) *resourcelock.LeaderElectionRecord {
	if record.HolderIdentity == "" && !isReleased(record) ||
		record.HolderIdentity == l.Holder && !l.shared && !l.asked {
		record.HolderIdentity = notReleased
	}
	if record.HolderIdentity != "" {
		own := int(l.Duration / time.Second)
		record.LeaseDurationSeconds = min(max(record.LeaseDurationSeconds, own), max(int(LongestDuration/time.Second), own))
	}
	return record
}

// isReleased reports whether a lease without a holder is as Lock.Release, and client-go's elector, write it.
func isReleased(record *resourcelock.LeaderElectionRecord) bool {
	return record.LeaseDurationSeconds == releasedSeconds && record.AcquireTime.Equal(&record.RenewTime)
}

// releasedSeconds is the duration in a lease that was released.
const releasedSeconds = 1

// Create implements resourcelock.Interface.
func (l *Lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.known = nil
	made, err := l.Client.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name, Labels: l.Labels},
		Spec:       resourcelock.LeaderElectionRecordToLeaseSpec(&record),
	}, metav1.CreateOptions{})
	l.ask(err)
	if err != nil {
		return err
	}
	l.known, l.others = made, nil
	return nil
}

// ask notes the answer to a request that makes the lease ours.
func (l *Lease) ask(answer error) {
	l.asked = l.asked || !apierrors.IsConflict(answer) && !apierrors.IsAlreadyExists(answer)
}

// Update implements resourcelock.Interface. It fails if anybody wrote the lease since it was read or written here. A
// lease that was deleted is made again.
func (l *Lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.LeaderTransitions < 0 || record.LeaderTransitions > math.MaxInt32 {
		record.LeaderTransitions = 0 // The API server would refuse what comes after the greatest number.
	}
	if l.known == nil && l.others != nil {
		return l.Create(ctx, record)
	}
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
	if record.HolderIdentity != "" {
		l.ask(err)
	}
	if err != nil {
		return err
	}
	l.known, l.others = written, nil
	return nil
}

// RecordEvent implements resourcelock.Interface. Events about leases are not recorded.
func (l *Lease) RecordEvent(string) {}

// Identity implements resourcelock.Interface.
func (l *Lease) Identity() string { return l.Holder }

// Describe implements resourcelock.Interface.
func (l *Lease) Describe() string { return l.Namespace + "/" + l.Name }
