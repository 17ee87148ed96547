package fence

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Joint is the lock of a process that shares the work with other processes. Each process holds its own Lease. In
// addition to its own Lease, each of these processes holds a common Lease, whose holder is the name of their group.
// Whenever a process renews its own Lease, it renews the common Lease too. A process leads only while it holds both
// Leases.
//
// Processes that divide the work in another way belong to another group. A process that does all the work alone
// holds the common Lease under its own name. None of these processes can act before the common Lease of the
// previous group has expired. The Lease expires only when no member of that group renews it any more. A member that
// does not renew both Leases stops acting before the Lease expires.
//
// A member releases its own Lease, so that its successor can lead at once. The common Lease is never released, because
// a member does not know whether other members still need it. It expires.
type Joint struct {
	// The fields own and common are used only by this lock. The identity of common is the name of the group.
	own, common resourcelock.Interface

	// ownFound means that the member's own Lease exists. seen is the record in the common Lease after the latest
	// read or write. It is nil if the common Lease does not exist.
	ownFound bool
	seen     *resourcelock.LeaderElectionRecord
}

// NewJoint returns the lock of a member of a group. The parameter own is the Lease of this member, and common is the
// Lease that all members hold under the name of the group. The lock is for one elector.
func NewJoint(own, common *Lease) *Joint {
	common.shared = true
	return &Joint{own: own, common: common}
}

// errOthers is the error if the group does not hold the common Lease.
var errOthers = errors.New("the common Lease has another holder")

// Get implements resourcelock.Interface. While another group or process holds the common Lease, Get returns the record
// in the common Lease, so that the elector waits until the Lease expires. If the common Lease does not exist, Get
// reports that the member's own Lease does not exist either.
func (j *Joint) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	common, commonRaw, err := j.common.Get(ctx)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return nil, nil, fmt.Errorf("read the common Lease %s: %w", j.common.Describe(), err)
	}
	own, ownRaw, ownErr := j.own.Get(ctx)
	if ownErr != nil && !apierrors.IsNotFound(ownErr) {
		return nil, nil, ownErr
	}
	j.ownFound, j.seen = ownErr == nil, common
	switch {
	case missing:
		return nil, nil, err
	case common.HolderIdentity == j.own.Identity():
		// Another client replaced the name of the group with the name of this process. If Get returned the record unchanged,
		// the elector would assume that it already holds the Lease.
		common.HolderIdentity = notReleased
		return common, commonRaw, nil
	case common.HolderIdentity != "" && common.HolderIdentity != j.common.Identity():
		return common, commonRaw, nil
	}
	return own, ownRaw, ownErr
}

// Create implements resourcelock.Interface. It acquires the common Lease and creates the member's own Lease. If the
// member's own Lease exists already, Create fails, because the existing Lease may have another holder.
func (j *Joint) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := j.hold(ctx, record); err != nil {
		return err
	}
	if j.ownFound {
		return fmt.Errorf("create Lease %s: it exists already", j.own.Describe())
	}
	return j.createOwn(ctx, record)
}

func (j *Joint) createOwn(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := j.own.Create(ctx, record)
	j.ownFound = j.ownFound || err == nil
	return err
}

// Update implements resourcelock.Interface. It acquires or renews first the common Lease and then the member's own
// Lease. If the record has no holder, Update releases the member's own Lease and does not change the common Lease.
func (j *Joint) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" {
		return j.own.Update(ctx, record)
	}
	if err := j.hold(ctx, record); err != nil {
		return err
	}
	if !j.ownFound {
		return j.createOwn(ctx, record)
	}
	return j.own.Update(ctx, record)
}

// hold acquires or renews the common Lease for the group. The renewal begins after hold was called.
func (j *Joint) hold(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	record.HolderIdentity = j.common.Identity()
	var err error
	switch {
	case j.seen == nil:
		err = j.common.Create(ctx, record)
	case j.seen.HolderIdentity == j.common.Identity():
		err = j.renewCommon(ctx, record)
	default:
		// The elector saw that the Lease has expired or was released. If another client has written the Lease since then, the
		// update fails.
		record.LeaderTransitions = j.seen.LeaderTransitions + 1
		err = j.common.Update(ctx, record)
	}
	if err != nil {
		return fmt.Errorf("hold the common Lease %s: %w", j.common.Describe(), err)
	}
	j.seen = &record
	return nil
}

// renewCommon renews the common Lease. If the update conflicts with a renewal by another member, renewCommon succeeds
// too. The renewal by the other member happened after the call, because renewCommon reads the Lease before the
// update. If the Lease has another holder, renewCommon always fails. It must not take over the Lease from another
// holder, because it does not know how long the record has been unchanged. Only the elector knows this, for the
// records that Get has returned.
func (j *Joint) renewCommon(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	read, err := j.readOurs(ctx)
	if err != nil {
		return err
	}
	record.AcquireTime, record.LeaderTransitions = read.AcquireTime, read.LeaderTransitions
	if err := j.common.Update(ctx, record); !apierrors.IsConflict(err) {
		return err
	}
	_, err = j.readOurs(ctx)
	return err
}

// readOurs reads the common Lease and fails if the group does not hold it.
func (j *Joint) readOurs(ctx context.Context) (*resourcelock.LeaderElectionRecord, error) {
	record, _, err := j.common.Get(ctx)
	if err == nil && record.HolderIdentity != j.common.Identity() {
		return nil, fmt.Errorf("%w: %q", errOthers, record.HolderIdentity)
	}
	return record, err
}

// RecordEvent implements resourcelock.Interface.
func (j *Joint) RecordEvent(event string) { j.own.RecordEvent(event) }

// Identity implements resourcelock.Interface.
func (j *Joint) Identity() string { return j.own.Identity() }

// Describe implements resourcelock.Interface.
func (j *Joint) Describe() string { return j.own.Describe() }
