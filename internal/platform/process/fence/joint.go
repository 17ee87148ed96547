package fence

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Joint is the lock of a process that shares the work with other processes. Each process holds its own Lease and the
// common Lease, whose holder is the name of the group. A process renews both Leases together, and leads only while it
// holds both.
//
// Processes with another number of shards belong to another group. A process without shards holds the common Lease
// under its own name. None of these processes can act before the common Lease of the previous group has expired. A
// member that cannot renew both Leases stops acting before the common Lease expires.
//
// A member releases its own Lease, so that its successor can lead at once. The common Lease is never released,
// because a member does not know whether other members still need it. The common Lease expires.
type Joint struct {
	// ownLock is the lock of the member's own Lease. commonLock is the lock of the common Lease, and its identity is
	// the name of the group. No other lock uses these two Leases.
	ownLock, commonLock resourcelock.Interface

	// ownFound means that the member's own Lease exists. seen is the record in the common Lease after the latest read
	// or write, or nil.
	ownFound bool
	seen     *resourcelock.LeaderElectionRecord
}

// NewJoint returns the lock of a member of a group, for one elector. Each member has its own Lease. All members
// together hold the common Lease under the name of the group.
func NewJoint(own, common *Lease) *Joint {
	common.isShared = true
	return &Joint{ownLock: own, commonLock: common}
}

var errOthers = errors.New("the common Lease has another holder")

// Get implements resourcelock.Interface. While another group or process holds the common Lease, Get returns the record
// of that Lease, so that the elector waits until it expires. If the common Lease does not exist, Get reports the
// member's own Lease as missing too.
func (j *Joint) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	common, commonRaw, err := j.commonLock.Get(ctx)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return nil, nil, fmt.Errorf("read the common Lease %s: %w", j.commonLock.Describe(), err)
	}
	own, ownRaw, ownErr := j.ownLock.Get(ctx)
	if ownErr != nil && !apierrors.IsNotFound(ownErr) {
		return nil, nil, ownErr
	}
	j.ownFound, j.seen = ownErr == nil, common
	switch {
	case missing:
		return nil, nil, err
	case common.HolderIdentity == j.ownLock.Identity():
		// Another client replaced the group in the Lease with the name of this process. The elector must not assume
		// that it holds the Lease.
		common.HolderIdentity = notReleased
		return common, commonRaw, nil
	case common.HolderIdentity != "" && common.HolderIdentity != j.commonLock.Identity():
		return common, commonRaw, nil
	}
	return own, ownRaw, ownErr
}

// Create implements resourcelock.Interface. Create acquires the common Lease and creates the member's own Lease. If
// the own Lease already exists, Create fails, because the Lease may have another holder.
func (j *Joint) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := j.hold(ctx, record); err != nil {
		return err
	}
	if j.ownFound {
		return fmt.Errorf("create Lease %s: it exists already", j.ownLock.Describe())
	}
	return j.createOwn(ctx, record)
}

func (j *Joint) createOwn(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := j.ownLock.Create(ctx, record)
	j.ownFound = j.ownFound || err == nil
	return err
}

// Update implements resourcelock.Interface. Update renews the common Lease first, and then the member's own Lease. If
// the record has no holder, Update releases only the member's own Lease.
func (j *Joint) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" {
		return j.ownLock.Update(ctx, record)
	}
	if err := j.hold(ctx, record); err != nil {
		return err
	}
	if !j.ownFound {
		return j.createOwn(ctx, record)
	}
	return j.ownLock.Update(ctx, record)
}

func (j *Joint) hold(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	record.HolderIdentity = j.commonLock.Identity()
	var err error
	switch {
	case j.seen == nil:
		err = j.commonLock.Create(ctx, record)
	case j.seen.HolderIdentity == j.commonLock.Identity():
		err = j.renewCommon(ctx, record)
	default:
		// The Lease has expired or was released. If another client has changed the Lease since the last read, the
		// update fails.
		record.LeaderTransitions = j.seen.LeaderTransitions + 1
		err = j.commonLock.Update(ctx, record)
	}
	if err != nil {
		return fmt.Errorf("hold the common Lease %s: %w", j.commonLock.Describe(), err)
	}
	j.seen = &record
	return nil
}

// renewCommon renews the common Lease. A conflict with a renewal by another member counts as success, because the
// other member's renewal happened after the start of this call.
//
// renewCommon never takes over the Lease from another holder. Only the elector knows how long the record has been
// unchanged.
func (j *Joint) renewCommon(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	read, err := j.readOurs(ctx)
	if err != nil {
		return err
	}
	record.AcquireTime, record.LeaderTransitions = read.AcquireTime, read.LeaderTransitions
	if err := j.commonLock.Update(ctx, record); !apierrors.IsConflict(err) {
		return err
	}
	_, err = j.readOurs(ctx)
	return err
}

func (j *Joint) readOurs(ctx context.Context) (*resourcelock.LeaderElectionRecord, error) {
	record, _, err := j.commonLock.Get(ctx)
	if err == nil && record.HolderIdentity != j.commonLock.Identity() {
		return nil, fmt.Errorf("%w: %q", errOthers, record.HolderIdentity)
	}
	return record, err
}

// RecordEvent implements resourcelock.Interface.
func (j *Joint) RecordEvent(event string) { j.ownLock.RecordEvent(event) }

// Identity implements resourcelock.Interface.
func (j *Joint) Identity() string { return j.ownLock.Identity() }

// Describe implements resourcelock.Interface.
func (j *Joint) Describe() string { return j.ownLock.Describe() }
