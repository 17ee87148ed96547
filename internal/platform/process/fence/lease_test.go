package fence

import (
	"bytes"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func twoLeases() (us, them *Lease) {
	s := newStore()
	us, them = s.lock("lease", "us"), s.lock("lease", "them")
	us.Labels, them.Labels = map[string]string{"a": "b"}, map[string]string{"a": "b"}
	return us, them
}

func TestALeaseIsCreatedReadAndAcquired(t *testing.T) {
	us, them := twoLeases()
	if _, _, err := us.Get(t.Context()); !apierrors.IsNotFound(err) {
		t.Fatalf("Get() = %v before the Lease exists, want not found", err)
	}
	if err := us.Update(t.Context(), ours); err == nil {
		t.Error("a Lease that does not exist was renewed")
	}
	if err := us.Create(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	if err := us.Update(t.Context(), ours); err != nil {
		t.Errorf("Update() = %v after Create()", err)
	}
	record, _, err := them.Get(t.Context())
	if err != nil || record.HolderIdentity != "us" {
		t.Fatalf("Get() = %+v, %v", record, err)
	}
	if err := them.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "them"}); err != nil {
		t.Fatal(err)
	}
	if record, _, err = us.Get(t.Context()); err != nil || record.HolderIdentity != "them" {
		t.Errorf("Get() = %+v, %v after another holder acquired the Lease", record, err)
	}
	stored, err := us.Client.Get(t.Context(), "lease", metav1.GetOptions{})
	if err != nil || stored.Labels["a"] != "b" {
		t.Errorf("the Lease has the labels %v, %v", stored.Labels, err)
	}
	if us.Identity() != "us" || us.Describe() != "ns/lease" {
		t.Errorf("Describe() = %s, Identity() = %s", us.Describe(), us.Identity())
	}
}

// A renewal must count as a change for candidates even if no time in the Lease changes.
//
// Rule: renewals-are-seen.
func TestCandidatesObserveEachRenewal(t *testing.T) {
	us, them := twoLeases()
	same := resourcelock.LeaderElectionRecord{HolderIdentity: "us", RenewTime: metav1.NewTime(time.Unix(1e9, 0))}
	if err := us.Create(t.Context(), same); err != nil {
		t.Fatal(err)
	}
	var before []byte
	for range 3 {
		stored, err := us.Client.Get(t.Context(), "lease", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := us.Client.Update(t.Context(), stored, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		_, raw, err := them.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(raw, before) {
			t.Errorf("a candidate sees no change after a write: %s", raw)
		}
		before = raw
	}
}

// After a failed renewal, the elector sends the same record again, although the API server may have applied it.
//
// Rule: renewals-are-seen.
func TestARepeatedRenewalHasItsOwnTime(t *testing.T) {
	_, lock, api := elected(t)
	record := ours
	record.RenewTime = metav1.NewTime(api.clock.Now())
	for range 2 {
		api.clock.Step(2 * time.Second)
		if err := lock.Update(t.Context(), record); err != nil {
			t.Fatal(err)
		}
		if got := api.writes[len(api.writes)-1].RenewTime.Time; !got.Equal(api.clock.Now()) {
			t.Errorf("the renewal at %s has the time %s", api.clock.Now(), got)
		}
	}
}
