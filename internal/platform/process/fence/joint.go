package fence

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Joint is the lock of a process that divides the work with others. Each process holds its own Lease. Together they
// hold a common Lease, whose holder is the name of their group. A process renews the common Lease whenever it renews
// its own, and leads only while both are held.
//
// Processes that divide the work differently belong to another group. A process that does all the work is an ordinary
// holder of the common Lease. Neither can act until the common Lease of the previous group has expired. That happens
// only after the last renewal of any of its members, and no member acts longer than it renewed both Leases.
//
// A member releases its own Lease, so that its successor can lead at once. The common Lease is never released, because
// a member does not know whether other members still need it. It expires.
type Joint struct {
	// own and common are only used by this lock. The identity of common is the name of the group.
	own, common resourcelock.Interface

	// ownFound means that the member's own Lease exists. seen is the common Lease as Get or a later write last returned
	// it, or nil if that Lease does not exist.
	ownFound bool
	seen     *resourcelock.LeaderElectionRecord
}

// NewJoint returns the lock of a member with its own Lease, of the group that is the holder of common. Other members
// hold common with the same identity. The lock is for one elector.
func NewJoint(own, common *Lease) *Joint {
	common.shared = true
	return &Joint{own: own, common: common}
}

// errOthers is the error if the group does not hold the common Lease.
var errOthers = errors.New("the common Lease has another holder")

// Get implements resourcelock.Interface. While another holder has the common Lease, Get returns that record, so that
// the elector waits until it expires. If the common Lease does not exist, Get reports that the member's own Lease does
// not exist either.
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
		// Another client wrote this process as the holder instead of the group. The elector would treat that record as its
		// own Lease.
		common.HolderIdentity = notReleased
		return common, commonRaw, nil
	case common.HolderIdentity != "" && common.HolderIdentity != j.common.Identity():
		return common, commonRaw, nil
	}
	return own, ownRaw, ownErr
}

// Create implements resourcelock.Interface. It creates the member's own Lease. If that Lease exists and only the common
// Lease did not, Create fails, because the existing Lease may have another holder.
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

// Update implements resourcelock.Interface. It acquires or renews both Leases, the common one first. A record without a
// holder releases only the member's own Lease.
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

// hold makes the group hold the common Lease, with a renewal that began after the call.
func (j *Joint) hold(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	record.HolderIdentity = j.common.Identity()
	var err error
	switch {
	case j.seen == nil:
		err = j.common.Create(ctx, record)
	case j.seen.HolderIdentity == j.common.Identity():
		err = j.renewCommon(ctx, record)
	default:
		// The elector saw that the Lease expired or is free. If another client wrote it since, the update fails.
		record.LeaderTransitions = j.seen.LeaderTransitions + 1
		err = j.common.Update(ctx, record)
	}
	if err != nil {
		return fmt.Errorf("hold the common Lease %s: %w", j.common.Describe(), err)
	}
	j.seen = &record
	return nil
}

// renewCommon renews the common Lease. If another member renews it at the same time, that is sufficient, because the
// Lease was read first and so the renewal happened after the call. If the Lease has another holder, renewCommon always
// fails. Only Get may lead to acquiring it from another holder, because the elector only knows how long the records
// that Get returned have been unchanged.
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
