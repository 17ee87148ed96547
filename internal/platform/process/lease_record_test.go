package process

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A Lease is deleted before a new process starts, so the new process has never read it. The holder of the Lease may
// still act.
//
// Rule: unreleased-lease-is-held.
func TestANewProcessWaitsForALeaseDurationIfTheLeaseWasDeleted(t *testing.T) {
	c := testConfig(t)
	c.LeaseDuration, c.RenewDeadline, c.RetryPeriod = 3*time.Second, 2*time.Second, 200*time.Millisecond
	began := time.Now()
	first := start(t, c, testOptions(), nil)
	first.elected()
	if took := time.Since(began); took >= c.LeaseDuration {
		t.Errorf("the first process of an installation waited %s", took)
	}
	if err := first.stopAndWait(); err != nil {
		t.Fatal(err)
	}
	leases := clientset(t, planes.control.Config()).CoordinationV1().Leases(c.LeaderElectionNamespace)
	if err := leases.Delete(t.Context(), c.leaseName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	next := *c
	began = time.Now()
	start(t, &next, testOptions(), nil).elected()
	if took := time.Since(began); took < c.RenewDeadline {
		t.Errorf("the process leads after %s, but another process may act for %s", took, c.RenewDeadline)
	}
}

// Rule: unreleased-lease-is-held.
func TestALeaderRecordsItsLeaseAgainIfTheRecordWasDeleted(t *testing.T) {
	c := testConfig(t)
	c.StatusCheckPeriod = 200 * time.Millisecond
	start(t, c, testOptions(), nil).elected()
	records := clientset(t, planes.control.Config()).CoreV1().ConfigMaps(c.LeaderElectionNamespace)
	if err := records.Delete(t.Context(), IdentityRecord, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		record, err := records.Get(t.Context(), IdentityRecord, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := record.Annotations[heldLeases]; got != c.leaseName() {
			return fmt.Errorf("the record lists the Leases %q", got)
		}
		return nil
	})
}
