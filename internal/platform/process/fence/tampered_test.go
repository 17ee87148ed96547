package fence

import (
	"context"
	"math"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// leasedTo returns a store and a candidate. The store contains the Lease "own" with the given holder, and the candidate
// has already read this Lease.
func leasedTo(t *testing.T, holder string) (s *store, candidate *Lease) {
	t.Helper()
	s = newStore()
	if err := s.lock("own", holder).Create(t.Context(), by(holder)); err != nil {
		t.Fatal(err)
	}
	candidate = s.lock("own", "us")
	candidate.Duration = 15 * time.Second
	if _, _, err := candidate.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s, candidate
}

func (s *store) tamper(change func(*coordinationv1.LeaseSpec)) {
	l := s.leases["own"]
	change(&l.Spec)
	s.put(&l)
}

func checkRecord(t *testing.T, l resourcelock.Interface, holder string, seconds int) {
	t.Helper()
	record, _, err := l.Get(t.Context())
	if err != nil || record.HolderIdentity != holder || holder != "" && record.LeaseDurationSeconds != seconds {
		t.Errorf("Get() = %+v, %v, want the holder %q for %d s", record, err, holder, seconds)
	}
}

// Rule: unreleased-lease-is-held.
func TestAnUnreleasedLeaseIsHeldForItsDuration(t *testing.T) {
	text := func(s string) *string { return &s }
	number := func(n int32) *int32 { return &n }
	for name, c := range map[string]struct {
		change  func(*coordinationv1.LeaseSpec)
		holder  string
		seconds int
	}{
		"no holder":         {func(l *coordinationv1.LeaseSpec) { l.HolderIdentity = nil }, notReleased, 15},
		"an empty holder":   {func(l *coordinationv1.LeaseSpec) { l.HolderIdentity = text("") }, notReleased, 15},
		"the candidate":     {func(l *coordinationv1.LeaseSpec) { l.HolderIdentity = text("us") }, notReleased, 15},
		"an empty spec":     {func(l *coordinationv1.LeaseSpec) { *l = coordinationv1.LeaseSpec{} }, notReleased, 15},
		"no duration":       {func(l *coordinationv1.LeaseSpec) { l.LeaseDurationSeconds = nil }, "them", 15},
		"a short duration":  {func(l *coordinationv1.LeaseSpec) { l.LeaseDurationSeconds = number(1) }, "them", 15},
		"a longer duration": {func(l *coordinationv1.LeaseSpec) { l.LeaseDurationSeconds = number(60) }, "them", 60},
		"an extreme duration": {func(l *coordinationv1.LeaseSpec) { l.LeaseDurationSeconds = number(math.MaxInt32) },
			"them", 300},
	} {
		t.Run(name, func(t *testing.T) {
			s, candidate := leasedTo(t, "them")
			s.tamper(c.change)
			checkRecord(t, candidate, c.holder, c.seconds)
			fresh := s.lock("own", "us")
			fresh.Duration = 15 * time.Second
			checkRecord(t, fresh, c.holder, c.seconds)
		})
	}
}

func TestAReleasedLeaseIsFree(t *testing.T) {
	s, candidate := leasedTo(t, "them")
	leader := s.lock("own", "them")
	if _, _, err := leader.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	now := metav1.NewTime(time.Unix(1e9, 0))
	err := leader.Update(t.Context(), resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 1, AcquireTime: now,
		RenewTime: now})
	if err != nil {
		t.Fatal(err)
	}
	checkRecord(t, candidate, "", 0)
}

// The answer to the first update is lost, so the leader notices only at the next read that the update succeeded.
func TestAnAcquiredLeaseIsHeldAlthoughTheAnswerWasLost(t *testing.T) {
	s, candidate := leasedTo(t, "them")
	candidate.Client = lostAnswers{s}
	if err := candidate.Update(t.Context(), by("us")); err == nil {
		t.Fatal("the answer was not lost")
	}
	candidate.Client = s
	checkRecord(t, candidate, "us", 15)
}

type lostAnswers struct{ *store }

func (l lostAnswers) Update(ctx context.Context, lease *coordinationv1.Lease,
	o metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if _, err := l.store.Update(ctx, lease, o); err != nil {
		return nil, err
	}
	return nil, context.DeadlineExceeded
}

// Rule: unreleased-lease-is-held.
func TestADeletedLeaseIsHeldForItsDurationAndThenCreatedAgain(t *testing.T) {
	s, candidate := leasedTo(t, "them")
	delete(s.leases, "own")
	checkRecord(t, candidate, "them", 15)
	for name, first := range map[string]func(context.Context) (bool, error){
		"a candidate that never read the Lease":           s.lock("own", "us").IsFirst,
		"a candidate that has no record of former Leases": nil,
	} {
		fresh := s.lock("own", "us")
		fresh.Duration, fresh.IsFirst = 15*time.Second, first
		t.Log(name)
		checkRecord(t, fresh, notReleased, 15)
		if err := fresh.Update(t.Context(), by("us")); err != nil || s.holder("own") != "us" {
			t.Errorf("%s: Update() = %v, the Lease is held by %q", name, err, s.holder("own"))
		}
		delete(s.leases, "own")
	}
	if err := candidate.Update(t.Context(), by("us")); err != nil || s.holder("own") != "us" {
		t.Errorf("Update() = %v, the Lease is held by %q", err, s.holder("own"))
	}
	delete(s.leases, "own")
	if _, _, err := candidate.Get(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("Get() = %v for a leader whose Lease was deleted, want not found", err)
	}
}

// Rule: unreleased-lease-is-held.
func TestOnlyOneProcessAcquiresANewLeaseAtOnce(t *testing.T) {
	s := newStore()
	one, other := s.lock("own", "one"), s.lock("own", "other")
	other.Duration = 15 * time.Second
	if _, _, err := one.Get(t.Context()); !apierrors.IsNotFound(err) {
		t.Errorf("Get() = %v for the first process, want not found", err)
	}
	checkRecord(t, other, notReleased, 15)
	one.IsFirst = func(context.Context) (bool, error) { return false, context.DeadlineExceeded }
	if _, _, err := one.Get(t.Context()); err == nil || apierrors.IsNotFound(err) {
		t.Errorf("Get() = %v while it is unknown whether the Lease was deleted, want an error other than not found", err)
	}
}

// Rule: unreleased-lease-is-held.
func TestAMemberWaitsAfterBothLeasesWereDeleted(t *testing.T) {
	s := newStore()
	acquired(t, s.member("0", "them", "2-shards"))
	clear(s.leases)
	fresh := s.member("0", "us", "2-shards")
	checkRecord(t, fresh, notReleased, 0)
	if err := fresh.Update(t.Context(), by("us")); err != nil || s.holder("common") != "2-shards" ||
		s.holder("shard-0") != "us" {
		t.Errorf("Update() = %v, the Leases are held by %q and %q", err, s.holder("common"), s.holder("shard-0"))
	}
}

// The API server rejects numbers that do not fit into an int32.
//
// Rule: unreleased-lease-is-held.
func TestTransitionsRestartAtZeroAfterTheGreatestNumber(t *testing.T) {
	s, candidate := leasedTo(t, "them")
	record := by("us")
	record.LeaderTransitions = math.MaxInt32 + 1
	if err := candidate.Update(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	if got := *s.leases["own"].Spec.LeaseTransitions; got != 0 {
		t.Errorf("the Lease has %d transitions, want 0", got)
	}
}

// An elector assumes that it holds a Lease that contains its identity.
//
// Rule: unreleased-lease-is-held.
func TestAMemberDoesNotHoldACommonLeaseThatNamesItInsteadOfItsGroup(t *testing.T) {
	s := newStore()
	acquired(t, s.member("0", "them", "2-shards"))
	l := s.leases["common"]
	us := "us"
	l.Spec.HolderIdentity = &us
	s.put(&l)
	checkRecord(t, s.member("0", "us", "2-shards"), notReleased, 15)
}
