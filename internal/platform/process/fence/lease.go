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

// Lease implements resourcelock.Interface with a Lease object. Unlike resourcelock.LeaseLock, it reports each write of
// the Lease to the elector as a change. LeaseLock compares the content of the Lease, in which times are whole seconds.
// If the leader renewed twice within one second, a candidate with LeaseLock would not notice the last renewal, and
// would take over too early.
//
// Any client that may write the Lease can change it, and its holder notices this only at its next renewal. Therefore
// a Lease that its holder did not release counts as held for another lease duration. This rule applies to a deleted
// Lease, to a Lease without a holder, and to a Lease that names this process although this process has not acquired
// it. Durations outside of the limits are replaced with the nearest limit.
type Lease struct {
	// Client is the client for the namespace of the Lease.
	Client coordinationclient.LeaseInterface
	// Namespace and Name identify the Lease.
	Namespace, Name string
	// Holder is the identity under which this process holds the Lease.
	Holder string
	// Duration is the lease duration of this process. This duration is also the minimum duration for a Lease of
	// another holder.
	Duration time.Duration
	// Labels are set on the Lease at each write. Other labels of the Lease remain.
	Labels map[string]string
	// IsFirst returns true if no process has ever held the Lease, and records that a process holds it now. IsFirst
	// returns true only once, for one caller among all processes. If IsFirst is nil, a missing Lease always counts as
	// deleted.
	IsFirst func(context.Context) (bool, error)

	// isShared is true if the members of a group hold the Lease with the same identity.
	isShared bool
	// lastLease is the Lease after the last read or write, or nil if it did not exist.
	lastLease *coordinationv1.Lease
	// foreignRecord is the latest record of the Lease if that record names another holder. Otherwise, foreignRecord
	// is nil.
	foreignRecord *resourcelock.LeaderElectionRecord
	// mayBeHeld is true if an attempt of this process to acquire the Lease may have succeeded. The field becomes
	// false when the process sees another holder.
	mayBeHeld bool
}

// LongestDuration is the maximum duration for a Lease of another holder. A longer duration would block all other
// processes after the holder has died.
const LongestDuration = 5 * time.Minute

// notReleased is a placeholder for an unknown holder. The elector sees this placeholder if another client has removed
// or overwritten the holder of a Lease that was not released.
const notReleased = "a holder whose identity was overwritten"

// Get implements resourcelock.Interface.
func (l *Lease) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.lastLease = nil
	read, err := l.Client.Get(ctx, l.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && !l.mayBeHeld {
		return l.recordOfMissing(ctx, err)
	}
	if err != nil {
		return nil, nil, err
	}
	l.lastLease = read
	version := []byte(string(read.UID) + "/" + read.ResourceVersion)
	record := l.recordForElector(resourcelock.LeaseSpecToLeaderElectionRecord(&read.Spec))
	l.foreignRecord = nil
	if record.HolderIdentity != "" && record.HolderIdentity != l.Holder {
		l.foreignRecord, l.mayBeHeld = record, false
	}
	return record, version, nil
}

// recordOfMissing returns the record that the elector sees if the Lease does not exist. If the Lease was deleted, its
// last holder may still act as the leader. Therefore recordOfMissing returns the error NotFound only for a Lease that
// no process has ever held.
func (l *Lease) recordOfMissing(ctx context.Context, notFound error) (*resourcelock.LeaderElectionRecord, []byte,
	error) {
	if l.foreignRecord == nil && l.IsFirst != nil {
		first, err := l.IsFirst(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("check whether Lease %s was deleted: %w", l.Describe(), err)
		}
		if first {
			return nil, nil, notFound
		}
	}
	if l.foreignRecord == nil {
		l.foreignRecord = l.recordForElector(&resourcelock.LeaderElectionRecord{HolderIdentity: notReleased})
	}
	return l.foreignRecord, []byte("deleted"), nil
}

func (l *Lease) recordForElector(record *resourcelock.LeaderElectionRecord) *resourcelock.LeaderElectionRecord {
	if record.HolderIdentity == "" && !isReleased(record) ||
		record.HolderIdentity == l.Holder && !l.isShared && !l.mayBeHeld {
		record.HolderIdentity = notReleased
	}
	if record.HolderIdentity != "" {
		own := int(l.Duration / time.Second)
		record.LeaseDurationSeconds = min(max(record.LeaseDurationSeconds, own), max(int(LongestDuration/time.Second), own))
	}
	return record
}

func isReleased(record *resourcelock.LeaderElectionRecord) bool {
	return record.LeaseDurationSeconds == releasedSeconds && record.AcquireTime.Equal(&record.RenewTime)
}

const releasedSeconds = 1

// Create implements resourcelock.Interface.
func (l *Lease) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.lastLease = nil
	created, err := l.Client.Create(ctx, &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name, Labels: l.Labels},
		Spec:       resourcelock.LeaderElectionRecordToLeaseSpec(&record),
	}, metav1.CreateOptions{})
	l.noteRequest(err)
	if err != nil {
		return err
	}
	l.lastLease, l.foreignRecord = created, nil
	return nil
}

func (l *Lease) noteRequest(err error) {
	l.mayBeHeld = l.mayBeHeld || !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err)
}

// Update implements resourcelock.Interface. Update fails if another client has written the Lease since this process
// last read or wrote it. Update recreates a deleted Lease.
func (l *Lease) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.LeaderTransitions < 0 || record.LeaderTransitions > math.MaxInt32 {
		record.LeaderTransitions = 0 // The API server refuses a number that does not fit into an int32.
	}
	if l.lastLease == nil && l.foreignRecord != nil {
		return l.Create(ctx, record)
	}
	if l.lastLease == nil {
		return errors.New("update a Lease that was not read before")
	}
	changed := l.lastLease.DeepCopy()
	changed.Spec = resourcelock.LeaderElectionRecordToLeaseSpec(&record)
	if len(l.Labels) > 0 && changed.Labels == nil {
		changed.Labels = map[string]string{}
	}
	maps.Copy(changed.Labels, l.Labels)
	written, err := l.Client.Update(ctx, changed, metav1.UpdateOptions{})
	if record.HolderIdentity != "" {
		l.noteRequest(err)
	}
	if err != nil {
		return err
	}
	l.lastLease, l.foreignRecord = written, nil
	return nil
}

// RecordEvent implements resourcelock.Interface. Events about leases are not recorded.
func (l *Lease) RecordEvent(string) {}

// Identity implements resourcelock.Interface.
func (l *Lease) Identity() string { return l.Holder }

// Describe implements resourcelock.Interface.
func (l *Lease) Describe() string { return l.Namespace + "/" + l.Name }
