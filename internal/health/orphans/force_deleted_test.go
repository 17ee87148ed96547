package orphans

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/health/orphans/ledger"
	"machinist.dev/machinist/pkg/provider"
)

func (w *testCollector) forced(in provider.Instance) {
	w.Helper()
	book := ledger.Store{Client: w.api, Namespace: w.namespace}
	w.collector.Ledger = book
	key := machineOf(&in)
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: key.UID},
		Spec: v1beta1.MachineSpec{ProviderID: in.ProviderID, ClassRef: &v1beta1.LocalRef{Name: "small"}}}
	left := ForceDeletedBook{Book: book, Rules: w.collector.Rules, Provider: w.namespace}
	if err := left.AddForceDeleted(w.Context(), m, w.clock.Now()); err != nil {
		w.Fatal(err)
	}
}

// The user asked for the removal, so it needs no confirmation. A Ready Node is drained.
//
// Rule: left-instance-removed.
func TestRemnantsOfForceDeletedMachinesAreRemoved(t *testing.T) {
	w := newTestCollector(t)
	live, cached, drainer, _ := w.target()
	drainer.empty, drainer.detached = true, true
	orphans := []provider.Instance{w.createOrphan(1), w.createOrphan(2), w.createOrphan(3)}
	for _, c := range []client.Client{live, cached} {
		w.node(c, "ready", orphans[0].ProviderID, corev1.ConditionTrue)
	}
	for _, in := range orphans {
		w.forced(in)
	}
	w.pass()
	w.want(orphans...)
	w.pass()
	w.wantBlocked("small", "", "")
	w.want()
	if len(drainer.asked) == 0 {
		t.Error("the Ready Node was not drained")
	}
	if page, _ := w.page(); len(page.ForceDeleted) != 3 {
		t.Errorf("kept %+v", page.ForceDeleted)
	}
	w.pass() // In this pass, the lists no longer contain the remnants for the first time.
	w.pass()
	if page, _ := w.page(); len(page.ForceDeleted) != 0 {
		t.Errorf("kept entries of remnants that are gone: %+v", page.ForceDeleted)
	}
}

// Rule: left-instance-removed.
func TestForceDeletedEntryStaysUntilNothingIsFound(t *testing.T) {
	for name, tc := range map[string]struct {
		prevent func(*testCollector)
		allow   func(*testCollector)
	}{
		"the cloud refuses the credentials": {
			func(w *testCollector) { w.cloud.OnList = func(string, int) error { return errors.New("401") } },
			func(w *testCollector) { w.cloud.OnList = nil },
		},
		"a leftover exists": {
			func(w *testCollector) {
				p := part(1)
				p.MachineKey = w.namespace + "/m-1"
				w.collector.Rules.MaxDeletes = 0
				w.cloud.Leftovers["small"] = []provider.Leftover{p}
			},
			func(w *testCollector) { delete(w.cloud.Leftovers, "small") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestCollector(t)
			in := lost(1)
			in.MachineKey = w.namespace + "/m-1"
			w.forced(in)
			if page, _ := w.page(); page.Period != int64(w.collector.Rules.Period/time.Second) {
				t.Errorf("the period is %d seconds", page.Period)
			}
			tc.prevent(w)
			for range 4 {
				w.pass()
			}
			if page, _ := w.page(); len(page.ForceDeleted) != 1 || page.ForceDeleted[0].ProviderID != in.ProviderID {
				t.Fatalf("kept %+v", page.ForceDeleted)
			}
			tc.allow(w)
			w.pass()
			if page, _ := w.page(); len(page.ForceDeleted) != 1 {
				t.Error("the entry was removed after a single list")
			}
			w.pass()
			if page, _ := w.page(); len(page.ForceDeleted) != 0 {
				t.Errorf("kept %+v", page.ForceDeleted)
			}
		})
	}
}

// A cloud may list a new instance so late that its Machine has already been deleted.
//
// Rule: left-instance-removed.
func TestForceDeletedEntryStaysForMinAge(t *testing.T) {
	s := State{Rules: rules(), Now: now, ForceDeleted: forceDeleted{"uid-1": {UID: "uid-1", Source: "ns/small", FirstSeen: ago(time.Minute)}}}
	class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "small"}}
	listed := []*scope{{source: class}}
	listed[0].sources = append(listed[0].sources, class)
	before := map[types.UID]bool{"uid-1": true}
	if finished, _ := s.finishForceDeleted(listed, before); len(finished) != 0 {
		t.Error("the entry was removed before MinAge")
	}
	s.Now = now.Add(s.MinAge)
	if finished, _ := s.finishForceDeleted(listed, before); !finished["uid-1"] {
		t.Error("the entry was kept after MinAge")
	}
	if finished, _ := s.finishForceDeleted(nil, before); len(finished) != 0 {
		t.Error("the entry was removed although nothing was listed")
	}
	s.ForceDeleted["uid-1"] = ledger.Entry{UID: "uid-1", Source: "ns/small", ProviderID: "sim:///1"}
	for _, test := range []struct {
		in   provider.Instance
		kept bool
	}{
		{provider.Instance{ProviderID: "sim:///2", MachineUID: "uid-1"}, true},
		{provider.Instance{ProviderID: "sim:///1"}, true}, // an instance without the tags of its Machine
		{provider.Instance{ProviderID: "sim:///2", MachineUID: "uid-2"}, false},
	} {
		s.Instances = []provider.Instance{test.in}
		if finished, _ := s.finishForceDeleted(listed, before); finished["uid-1"] == test.kept {
			t.Errorf("with the instance %s of %q, the entry is kept: %t", test.in.ProviderID, test.in.MachineUID, !test.kept)
		}
	}
}
