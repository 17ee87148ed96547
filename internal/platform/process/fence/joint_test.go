package fence

import (
	"context"
	"strconv"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// store is an API server with Leases. The store rejects outdated writes.
type store struct {
	coordinationclient.LeaseInterface
	leases   map[string]coordinationv1.Lease
	revision int
	// takenNames contains the names of all Leases that exist or existed before.
	takenNames   map[string]bool
	beforeUpdate func(name string)
}

func (s *store) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	l, ok := s.leases[name]
	if !ok {
		return nil, apierrors.NewNotFound(leases, name)
	}
	return l.DeepCopy(), nil
}

func (s *store) put(l *coordinationv1.Lease) *coordinationv1.Lease {
	s.revision++
	l = l.DeepCopy()
	l.ResourceVersion = strconv.Itoa(s.revision)
	s.leases[l.Name] = *l
	s.takenNames[l.Name] = true
	return l.DeepCopy()
}

func (s *store) first(name string) bool {
	first := !s.takenNames[name]
	s.takenNames[name] = true
	return first
}

func (s *store) Create(_ context.Context, l *coordinationv1.Lease,
	_ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	if _, ok := s.leases[l.Name]; ok {
		return nil, apierrors.NewAlreadyExists(leases, l.Name)
	}
	return s.put(l), nil
}

func (s *store) Update(_ context.Context, l *coordinationv1.Lease,
	_ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if s.beforeUpdate != nil {
		s.beforeUpdate(l.Name)
	}
	if s.leases[l.Name].ResourceVersion != l.ResourceVersion {
		return nil, apierrors.NewConflict(leases, l.Name, nil)
	}
	return s.put(l), nil
}

func (s *store) holder(name string) string {
	l, ok := s.leases[name]
	if !ok || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

func (s *store) lock(name, holder string) *Lease {
	return &Lease{Client: s, Namespace: "ns", Name: name, Holder: holder,
		IsFirst: func(context.Context) (bool, error) { return s.first(name), nil }}
}

func (s *store) member(shard, holder, group string) *Joint {
	common := s.lock("common", group)
	return NewJoint(s.lock("shard-"+shard, holder), common)
}

func by(holder string) resourcelock.LeaderElectionRecord {
	return resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 15}
}

func newStore() *store {
	return &store{leases: map[string]coordinationv1.Lease{}, takenNames: map[string]bool{}}
}

func acquired(t *testing.T, j *Joint) {
	t.Helper()
	if _, _, err := j.Get(t.Context()); !apierrors.IsNotFound(err) {
		t.Fatalf("Get() = %v, want not found", err)
	}
	if err := j.Create(t.Context(), by(j.Identity())); err != nil {
		t.Fatal(err)
	}
}

// Rule: shards-agree-on-their-number.
func TestMembersHoldTheCommonLeaseTogether(t *testing.T) {
	s := newStore()
	a, b := s.member("0", "a", "2-shards"), s.member("1", "b", "2-shards")
	acquired(t, a)
	acquired(t, b)
	for range 3 {
		for _, j := range []*Joint{a, b} {
			if err := j.Update(t.Context(), by(j.Identity())); err != nil {
				t.Fatal(err)
			}
		}
	}
	if s.holder("common") != "2-shards" || s.holder("shard-0") != "a" || s.holder("shard-1") != "b" {
		t.Errorf("the Leases are %v", s.leases)
	}
}

// Rule: shards-agree-on-their-number.
func TestAMemberSeesAnotherHolderOfTheCommonLease(t *testing.T) {
	s := newStore()
	unsharded := s.lock("common", "unsharded")
	if err := unsharded.Create(t.Context(), by("unsharded")); err != nil {
		t.Fatal(err)
	}
	a := s.member("0", "a", "2-shards")
	record, first, err := a.Get(t.Context())
	if err != nil || record.HolderIdentity != "unsharded" {
		t.Fatalf("Get() = %+v, %v, want the other holder", record, err)
	}
	if err := unsharded.Update(t.Context(), by("unsharded")); err != nil {
		t.Fatal(err)
	}
	if _, second, err := a.Get(t.Context()); err != nil || string(first) == string(second) {
		t.Errorf("a member sees no change after a renewal of the other holder: %s, %v", second, err)
	}
	if err := a.Update(t.Context(), by("a")); err != nil {
		t.Fatal(err)
	}
	if s.holder("common") != "2-shards" || s.holder("shard-0") != "a" {
		t.Errorf("the Leases are %v", s.leases)
	}
	if err := unsharded.Update(t.Context(), by("unsharded")); !apierrors.IsConflict(err) {
		t.Errorf("Update() of the former holder = %v, want a conflict", err)
	}
}

// Rule: shards-agree-on-their-number.
func TestAMemberThatLostTheCommonLeaseRenewsNothing(t *testing.T) {
	s := newStore()
	a := s.member("0", "a", "2-shards")
	acquired(t, a)
	other := s.lock("common", "3-shards")
	if _, _, err := other.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := other.Update(t.Context(), by("3-shards")); err != nil {
		t.Fatal(err)
	}
	before := s.revision
	for range 2 {
		if err := a.Update(t.Context(), by("a")); err == nil {
			t.Error("a member renewed although its group does not hold the common Lease")
		}
	}
	if s.revision != before || s.holder("common") != "3-shards" {
		t.Errorf("the member wrote a Lease: %v", s.leases)
	}
	if record, _, err := a.Get(t.Context()); err != nil || record.HolderIdentity != "3-shards" {
		t.Errorf("Get() = %+v, %v, want the other group", record, err)
	}
}

func TestTwoMembersCanRenewAtTheSameTime(t *testing.T) {
	s := newStore()
	a, b := s.member("0", "a", "2-shards"), s.member("1", "b", "2-shards")
	acquired(t, a)
	acquired(t, b)
	s.beforeUpdate = func(name string) {
		if name == "common" {
			s.beforeUpdate = nil
			if err := b.Update(t.Context(), by("b")); err != nil {
				t.Error(err)
			}
		}
	}
	if err := a.Update(t.Context(), by("a")); err != nil {
		t.Errorf("Update() = %v", err)
	}
}

// Rule: shards-agree-on-their-number.
func TestAMemberReleasesOnlyItsOwnLease(t *testing.T) {
	s := newStore()
	a := s.member("0", "a", "2-shards")
	acquired(t, a)
	if err := a.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err != nil {
		t.Fatal(err)
	}
	if s.holder("shard-0") != "" || s.holder("common") != "2-shards" {
		t.Errorf("the Leases are %v", s.leases)
	}
}

func TestAMissingCommonLeaseDoesNotFreeTheLeaseOfAMember(t *testing.T) {
	s := newStore()
	a, successor := s.member("0", "a", "2-shards"), s.member("0", "successor", "2-shards")
	acquired(t, a)
	delete(s.leases, "common")
	checkRecord(t, successor, notReleased, 0)
	if err := successor.Create(t.Context(), by("successor")); err == nil || s.holder("shard-0") != "a" {
		t.Errorf("the Lease is held by %s: %v", s.holder("shard-0"), err)
	}
	if record, _, err := successor.Get(t.Context()); err != nil || record.HolderIdentity != "a" {
		t.Errorf("Get() = %+v, %v, want the holder", record, err)
	}
}
