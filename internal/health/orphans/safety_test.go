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
func TestWhatIsNotOursIsNeverTouched(t *testing.T) {
	w := newWorld(t)
	instances := []provider.Instance{
		w.lost(1, func(in *provider.Instance) { in.ClusterID = "theirs" }),
		w.lost(2, func(in *provider.Instance) { in.ClusterID = "" }),
		w.lost(3, func(in *provider.Instance) { in.ClusterID = "ours/" + w.namespace }),
		w.lost(4, func(in *provider.Instance) { in.MachineUID = "" }),
		w.lost(5, func(in *provider.Instance) { in.MachineKey = "" }),
		w.lost(6, func(in *provider.Instance) { in.MachineKey = "elsewhere/m" }),
		w.lost(7, func(in *provider.Instance) { in.ClusterID, in.MachineUID, in.MachineKey = "", "", "" }),
	}
	w.listing()
	for range 3 {
		w.pass()
	}
	w.want(instances...)
	w.wantEvents()
	if w.cloud.Deletes() != 0 {
		t.Errorf("%d deletions were sent", w.cloud.Deletes())
	}
}

// Rule: orphan-without-machine.
func TestAMachineMadeAtThatMomentKeepsItsInstance(t *testing.T) {
	w := newWorld(t)
	observations := Observations{}
	w.collector.state.observations = observations
	made := 0
	w.cloud.OnList = func(string, int) error {
		// The cache was read before; what it lacks must not count.
		made++
		m := w.machine(fmt.Sprintf("m-%d", made), "small", "")
		in := w.lost(made, func(in *provider.Instance) { in.MachineUID = m.UID })
		observations[in.ProviderID] = Observation{Machine: m.UID, First: ago(time.Hour)}
		return nil
	}
	w.listing()
	if made != 1 || len(w.instances()) != 1 || w.cloud.Deletes() != 0 {
		t.Errorf("%d made, %v left, %d deletions were sent", made, w.instances(), w.cloud.Deletes())
	}
}

// Rule: orphan-without-machine.
func TestAnInstanceOfAMachineIsLeftAlone(t *testing.T) {
	w := newWorld(t)
	w.confirm("small", now.Add(12*time.Hour).Format(time.RFC3339))
	launching := w.machine("launching", "small", "")
	w.lost(1, func(in *provider.Instance) { in.MachineUID = launching.UID })
	twin := w.lost(2, func(in *provider.Instance) { in.MachineUID = launching.UID })
	running := w.machine("running", "small", "sim:///recorded")
	w.lost(3, func(in *provider.Instance) { in.MachineUID, in.ProviderID = running.UID, "sim:///recorded" })
	duplicate := w.lost(4, func(in *provider.Instance) { in.MachineUID = running.UID })
	rescued := w.lost(5)
	w.machine("rescue", "small", rescued.ProviderID)

	w.listing()
	w.wantEvents() // The list may have been taken while one took the other's place.
	for range 3 {
		w.pass()
	}
	w.want(w.instances()...)
	if n := len(w.instances()); n != 5 || w.cloud.Deletes() != 0 {
		t.Errorf("%d left, %d deletions were sent", n, w.cloud.Deletes())
	}
	w.wantEvents("Warning StrayInstance running: The machine has instances beside the one that it has recorded, which are left alone: " + duplicate.ProviderID)
	if n := w.counted("duplicate"); n != 1 {
		t.Errorf("counted %v; the twin is %s", n, twin.ProviderID)
	}

	// Its Machine gone, a duplicate is an orphan, seen for the first time.
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
func TestNothingIsRemovedWithoutACompleteListOfMachines(t *testing.T) {
	var second string // the token of the second page, for the one case that needs it
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
			w := newWorld(t)
			w.confirm("small", now.Add(12*time.Hour).Format(time.RFC3339))
			for n := range 5 {
				w.machine(fmt.Sprintf("m-%d", n), "small", "")
			}
			orphans := []provider.Instance{w.lost(10), w.lost(11), w.lost(12)}
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
			w.listing()
			w.pass()
			if spoilt == 0 || strings.Contains(name, "second") && page == 0 || page > 2 {
				t.Errorf("%d lists were spoilt, the last with page %d", spoilt, page)
			}
			w.want(orphans...)
			if w.cloud.Deletes() != 0 {
				t.Fatalf("%d deletions were sent", w.cloud.Deletes())
			}
			// And a pass that could not tell is none.
			spoiling = false
			w.pass()
			w.want(orphans...)
			w.pass()
			w.want()
		})
	}
}

// Rule: orphan-without-machine.
func TestNoMachineAtAllIsAnAnswer(t *testing.T) {
	w := newWorld(t)
	w.lost(1)
	w.listing()
	w.pass()
	w.want()
}

// Rule: no-orphans-in-outage.
func TestNothingIsRemovedInAnOutageNorSoonAfter(t *testing.T) {
	w := newWorld(t)
	orphan := w.lost(1)
	w.listing()

	w.reach.reason = v1beta1.ReasonControlPlaneUnreachable
	w.pass()
	if again := w.listing(); again > 10*time.Second {
		t.Errorf("looks after %s whether the outage is over", again)
	}
	if w.cloud.Lists() != 1 {
		t.Errorf("the cloud was asked %d times, also in the outage", w.cloud.Lists())
	}
	w.want(orphan)

	// What was seen before the outage does not count after it.
	w.reach.reason, w.reach.since = "", w.clock.Now()
	w.listing()
	w.want(orphan)
	// An outage between two passes delays the removal by a period, too.
	w.reach.since = w.clock.Now().Add(time.Minute)
	w.pass()
	w.want(orphan)
	w.pass()
	w.want()
}

// Rule: no-orphans-in-outage.
func TestAnOutageThatBeginsDuringThePassStopsIt(t *testing.T) {
	w := newWorld(t)
	w.confirm("small", now.Add(12*time.Hour).Format(time.RFC3339))
	var orphans []provider.Instance
	for n := range 4 {
		orphans = append(orphans, w.lost(n))
	}
	w.listing()
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
func TestAnotherClusterIDStopsTheCollection(t *testing.T) {
	w := newWorld(t)
	orphan := w.lost(1)
	w.listing()
	w.mismatch = errors.New("the cluster id is another one")
	w.pass()
	w.pass()
	w.want(orphan)
	w.wantEvents("Warning ClusterIDMismatch record: Orphaned instances are left alone: the cluster id is another one")
	if w.cloud.Lists() != 1 {
		t.Errorf("the cloud was asked %d times", w.cloud.Lists())
	}
	w.mismatch = nil
	w.pass()
	w.want(orphan)
	w.pass()
	w.want()
}
