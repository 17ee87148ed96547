package orphans

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// Rule: instance-owned-by-tags.
func TestInstancesOfOthersAreNeverTouched(t *testing.T) {
	w := newTestCollector(t)
	instances := []provider.Instance{
		w.createOrphan(1, func(in *provider.Instance) { in.ClusterID = "theirs" }),
		w.createOrphan(2, func(in *provider.Instance) { in.ClusterID = "" }),
		w.createOrphan(3, func(in *provider.Instance) { in.ClusterID = "ours/" + w.namespace }),
		w.createOrphan(4, func(in *provider.Instance) { in.MachineUID = "" }),
		w.createOrphan(5, func(in *provider.Instance) { in.MachineKey = "" }),
		w.createOrphan(6, func(in *provider.Instance) { in.MachineKey = "elsewhere/m" }),
		w.createOrphan(7, func(in *provider.Instance) { in.ClusterID, in.MachineUID, in.MachineKey = "", "", "" }),
	}
	w.reconcile()
	for range 3 {
		w.pass()
	}
	w.want(instances...)
	w.wantEvents()
	if w.cloud.DeleteCount() != 0 {
		t.Errorf("%d deletions were sent", w.cloud.DeleteCount())
	}
}

// Rule: orphan-without-machine.
func TestMachineCreatedDuringPassKeepsInstance(t *testing.T) {
	w := newTestCollector(t)
	observations := Observations{}
	w.collector.state.observations = observations
	created := 0
	w.cloud.OnList = func(string, int) error {
		created++
		m := w.machine(fmt.Sprintf("m-%d", created), "small", "")
		in := w.createOrphan(created, func(in *provider.Instance) { in.MachineUID = m.UID })
		observations[in.ProviderID] = Observation{Machine: m.UID, FirstSeen: ago(time.Hour)}
		return nil
	}
	w.reconcile()
	if created != 1 || len(w.instances()) != 1 || w.cloud.DeleteCount() != 0 {
		t.Errorf("%d created, %v left, %d deletions were sent", created, w.instances(), w.cloud.DeleteCount())
	}
}

// Rule: orphan-without-machine.
func TestInstancesOfMachinesAreKept(t *testing.T) {
	w := newTestCollector(t)
	w.confirm("small", now.Add(12*time.Hour).Format(time.RFC3339))
	launching := w.machine("launching", "small", "")
	w.createOrphan(1, func(in *provider.Instance) { in.MachineUID = launching.UID })
	twin := w.createOrphan(2, func(in *provider.Instance) { in.MachineUID = launching.UID })
	running := w.machine("running", "small", "sim:///recorded")
	w.createOrphan(3, func(in *provider.Instance) { in.MachineUID, in.ProviderID = running.UID, "sim:///recorded" })
	duplicate := w.createOrphan(4, func(in *provider.Instance) { in.MachineUID = running.UID })
	rescued := w.createOrphan(5)
	w.machine("rescue", "small", rescued.ProviderID)

	w.reconcile()
	w.wantEvents() // The list may have been read while the machine's instance was being replaced.
	for range 3 {
		w.pass()
	}
	w.want(w.instances()...)
	if n := len(w.instances()); n != 5 || w.cloud.DeleteCount() != 0 {
		t.Errorf("%d left, %d deletions were sent", n, w.cloud.DeleteCount())
	}
	w.wantEvents("Warning StrayInstance running: Found and kept instances of the machine other than the recorded one: " + duplicate.ProviderID)
	if n := w.counted("duplicate"); n != 1 {
		t.Errorf("counted %v; the twin is %s", n, twin.ProviderID)
	}

	// A duplicate is a second instance of the same Machine. When the Machine is deleted, the second instance becomes an
	// orphan. The next pass must not remove it, because it is the first pass that finds the instance as an orphan.
	for _, m := range []*v1beta1.Machine{running, launching} {
		if err := w.api.Delete(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	w.pass()
	if n := len(w.instances()); n != 5 {
		t.Errorf("%d left, want 5", n)
	}
	w.pass()
	w.want(rescued)
}

// Rule: orphan-without-machine.
func TestNothingIsRemovedWithoutCompleteListOfMachines(t *testing.T) {
	var second string // the token of the second page
	for name, spoil := range map[string]func(list *metav1.PartialObjectMetadataList, page int) error{
		"no answer": func(l *metav1.PartialObjectMetadataList, _ int) error {
			return errors.New("dial tcp: connection refused")
		},
		"no answer to the second page": func(_ *metav1.PartialObjectMetadataList, page int) error {
			if page == 1 {
				return errors.New("the continue token is too old")
			}
			return nil
		},
		"cut off": func(l *metav1.PartialObjectMetadataList, _ int) error {
			l.SetContinue("")
			return nil
		},
		"empty without a version": func(l *metav1.PartialObjectMetadataList, _ int) error {
			*l = metav1.PartialObjectMetadataList{}
			return nil
		},
		"of two versions": func(l *metav1.PartialObjectMetadataList, page int) error {
			if page == 1 {
				l.SetResourceVersion("1" + l.GetResourceVersion())
			}
			return nil
		},
		"the second page again and again": func(l *metav1.PartialObjectMetadataList, page int) error {
			if page == 0 {
				second = l.GetContinue()
			} else {
				l.SetContinue(second)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestCollector(t)
			w.confirm("small", now.Add(12*time.Hour).Format(time.RFC3339))
			for n := range 5 {
				w.machine(fmt.Sprintf("m-%d", n), "small", "")
			}
			orphans := []provider.Instance{w.createOrphan(10), w.createOrphan(11), w.createOrphan(12)}
			page, spoilt, spoiling := 0, 0, true
			w.onList = func(list client.ObjectList, o *client.ListOptions) error {
				if !spoiling {
					return nil
				}
				if o.Continue == "" {
					page = 0
				} else {
					page++
				}
				spoilt++
				return spoil(list.(*metav1.PartialObjectMetadataList), page)
			}
			w.reconcile()
			w.pass()
			if spoilt == 0 || strings.Contains(name, "second") && page == 0 || page > 2 {
				t.Errorf("%d lists were spoilt, the last with page %d", spoilt, page)
			}
			w.want(orphans...)
			if w.cloud.DeleteCount() != 0 {
				t.Fatalf("%d deletions were sent", w.cloud.DeleteCount())
			}
			spoiling = false
			w.pass()
			w.want(orphans...)
			w.pass()
			w.want()
		})
	}
}

// Rule: orphan-without-machine.
func TestEmptyListOfMachinesCounts(t *testing.T) {
	w := newTestCollector(t)
	w.createOrphan(1)
	w.reconcile()
	w.pass()
	w.want()
}

// Rule: no-orphans-in-outage.
func TestNothingIsRemovedDuringOrSoonAfterOutage(t *testing.T) {
	w := newTestCollector(t)
	orphan := w.createOrphan(1)
	w.reconcile()

	w.reach.reason = v1beta1.ReasonControlPlaneUnreachable
	w.pass()
	if again := w.reconcile(); again > 10*time.Second {
		t.Errorf("checks only after %s whether the outage is over", again)
	}
	if w.cloud.Lists() != 1 {
		t.Errorf("the cloud was listed %d times, want no list in the outage", w.cloud.Lists())
	}
	w.want(orphan)

	// Observations from before the outage do not count.
	w.reach.reason, w.reach.since = "", w.clock.Now()
	w.reconcile()
	w.want(orphan)
	// After an outage between two passes, an orphan is not removed until Rules.Period has passed.
	w.reach.since = w.clock.Now().Add(time.Minute)
	w.pass()
	w.want(orphan)
	w.pass()
	w.want()
}

// Rule: no-orphans-in-outage.
func TestOutageDuringPassStopsRemovals(t *testing.T) {
	w := newTestCollector(t)
	w.confirm("small", now.Add(12*time.Hour).Format(time.RFC3339))
	var orphans []provider.Instance
	for n := range 4 {
		orphans = append(orphans, w.createOrphan(n))
	}
	w.reconcile()
	w.cloud.OnDelete = func(string) error {
		w.reach.reason = v1beta1.ReasonControlPlaneUnreachable
		return nil
	}
	w.pass()
	w.want(orphans[1:]...)

	w.reach.reason = ""
	w.cloud.OnDelete = nil
	w.cloud.OnList = func(string, int) error {
		w.reach.reason = v1beta1.ReasonControlPlaneUnreachable
		return nil
	}
	w.pass()
	w.want(orphans[1:]...)
}

// Rule: cluster-id-mismatch-stops-collection.
func TestClusterIDMismatchStopsCollection(t *testing.T) {
	w := newTestCollector(t)
	orphan := w.createOrphan(1)
	w.reconcile()
	w.mismatch = errors.New("the cluster ID is another one")
	w.pass()
	w.pass()
	w.want(orphan)
	w.wantEvents("Warning ClusterIDMismatch record: No orphans are collected: the cluster ID is another one")
	if w.cloud.Lists() != 1 {
		t.Errorf("the cloud was listed %d times", w.cloud.Lists())
	}
	w.mismatch = nil
	w.pass()
	w.want(orphan)
	w.pass()
	w.want()
}
