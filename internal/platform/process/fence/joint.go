package fence

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Joint is the lock of a process that shares its work with others: it holds a lease of its own, and together with the
// others a common one, whose holder is the name of their group. Each of them renews the common lease whenever it renews
// its own, so that both are held, or it does not lead.
//
// Whoever divides the work in another way is another group, or, where one process does all of it, a holder like any
// other. None of them acts until the common lease of the last has run out, which is after the last renewal of any
// member; and no member acts longer than it renewed both.
//
// A released lease of its own lets the successor in at once. The common lease is never released, because a member does
// not know whether others still need it: it runs out.
type Joint struct {
	// own and common are read and written by this lock only. The identity of common is the group's name.
	own, common resourcelock.Interface

	// ownFound says that the lease of its own is there, and seen is the common one as Get read it last or as it was
	// written since; nil where it is missing.
	ownFound bool
	seen     *resourcelock.LeaderElectionRecord
}

// NewJoint returns the lock for a member whose own lease is own, of the group that common has as its identity: others
// hold it in the same name. It is for one elector.
func NewJoint(own, common *Lease) *Joint {
	common.shared = true
	return &Joint{own: own, common: common}
}

// errOthers is for a common lease that the group does not hold.
var errOthers = errors.New("others have the common lease")

// Get implements resourcelock.Interface. While the common lease is another's, that is what it shows: the elector then
// waits for its end as it does for any. Without a common lease there is none of its own either.
func (j *Joint) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	common, commonRaw, err := j.common.Get(ctx)
	missing := apierrors.IsNotFound(err)
	if err != nil && !missing {
		return nil, nil, fmt.Errorf("read the common lease %s: %w", j.common.Describe(), err)
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
		// Somebody wrote our own name where the group's belongs. The elector would take that for a lease of ours.
		common.HolderIdentity = notReleased
		return common, commonRaw, nil
	case common.HolderIdentity != "" && common.HolderIdentity != j.common.Identity():
		return common, commonRaw, nil
	}
	return own, ownRaw, ownErr
}

// Create implements resourcelock.Interface: it makes the lease of its own. Where only the common one was missing, the
// other is not taken from whoever holds it.
func (j *Joint) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if err := j.hold(ctx, record); err != nil {
		return err
	}
	if j.ownFound {
		return fmt.Errorf("lease %s is there already", j.own.Describe())
	}
	return j.createOwn(ctx, record)
}

func (j *Joint) createOwn(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	err := j.own.Create(ctx, record)
	j.ownFound = j.ownFound || err == nil
	return err
}

// Update implements resourcelock.Interface: it takes or renews both leases, the common one first. A record without a
// holder releases the lease of its own alone.
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

// hold has the group hold the common lease from after its call on.
func (j *Joint) hold(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	record.HolderIdentity = j.common.Identity()
	var err error
	switch {
	case j.seen == nil:
		err = j.common.Create(ctx, record)
	case j.seen.HolderIdentity == j.common.Identity():
		err = j.renewCommon(ctx, record)
	default:
		// The elector saw it run out, or free. If anybody wrote it since, this fails.
		record.LeaderTransitions = j.seen.LeaderTransitions + 1
		err = j.common.Update(ctx, record)
	}
	if err != nil {
		return fmt.Errorf("hold the common lease %s: %w", j.common.Describe(), err)
	}
	j.seen = &record
	return nil
}

// renewCommon renews the common lease. If another member does so at the same time, that is as good: what counts is that
// it was renewed after this began, and so it is read first. Others that hold it are an error each time: only Get may
// lead to taking it from them, because only of what Get shows does the elector know for how long it stood still.
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

// readOurs reads the common lease, which the group must hold.
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
