package cli

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/health/orphans/ledger"
	"machinist.dev/machinist/internal/platform/process"
)

// newOrphanFleet returns a fleet with the class small and the deployment web, and reports of orphans.
func newOrphanFleet(t *testing.T) *testFleet {
	t.Helper()
	p := newTestFleet(t)
	p.create(&v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Name: "small"}, Spec: v1beta1.MachineClassSpec{
		Provider: "sim", ProviderSpec: &runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Size"}`)}}})
	p.create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: process.IdentityRecord},
		Data: map[string]string{process.IdentityOfAll: "ours"}})
	p.fleet()
	entry := func(id, machine, outcome string) ledger.Entry {
		return ledger.Entry{ProviderID: id, Machine: p.namespace + "/" + machine, UID: "u-" + machine,
			Source: p.namespace + "/small", FirstSeen: time.Now(), Outcome: outcome}
	}
	inline := entry("sim://inline", "inline", "NodeReady")
	inline.Source = "a machine without a class"
	book := ledger.Store{Client: p.api, Namespace: p.namespace}
	if err := book.Keep(context.Background(), ledger.Page{Provider: "sim", WriteTime: time.Now(), Period: 1800, Total: 5,
		Entries: []ledger.Entry{entry("sim://1", "lost-1", "NodeReady"), entry("sim://2", "lost-2", "MostOrphaned"),
			entry("sim://3", "lost-3", "Delete"), entry("sim://4", "web-1-a", "NodeReady"), inline}}); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *testFleet) classAnnotations() map[string]string {
	p.Helper()
	class := &v1beta1.MachineClass{}
	if err := p.api.Get(context.Background(), client.ObjectKey{Namespace: p.namespace, Name: "small"}, class); err != nil {
		p.Fatal(err)
	}
	return class.Annotations
}

// Rule: unknown-instances-taken-in.
func TestAdoptCreatesMachinesForOrphans(t *testing.T) {
	p := newOrphanFleet(t)
	ids := []string{"orphans", "adopt", "sim://1", "sim://2", "sim://4"}
	p.run(append(ids, "--dry-run")...).succeeds(t).prints(t, "lost-1: would adopt sim://1", "Nothing was changed")
	if len(p.classAnnotations()) > 0 {
		t.Errorf("the dry run annotated the class: %v", p.classAnnotations())
	}
	p.run(ids...).succeeds(t).prints(t, "lost-1: created, will adopt sim://1",
		"web-1-a: exists already, will not adopt", "2 machines created")
	m := &v1beta1.Machine{}
	if err := p.api.Get(t.Context(), client.ObjectKey{Namespace: p.namespace, Name: "lost-1"}, m); err != nil {
		t.Fatal(err)
	}
	if m.Spec.ProviderID != "sim://1" || m.Spec.ClassRef == nil || m.Spec.ClassRef.Name != "small" {
		t.Errorf("the machine has class %+v and provider ID %q", m.Spec.ClassRef, m.Spec.ProviderID)
	}
	annotations := p.classAnnotations()
	until, err := time.Parse(time.RFC3339, annotations[v1beta1.AnnotationAdoptFromClusterUntil])
	if annotations[v1beta1.AnnotationAdoptFromCluster] != "ours" || err != nil || time.Until(until) > 61*time.Minute {
		t.Errorf("the class has the annotations %v", annotations)
	}
	p.run(ids...).succeeds(t).prints(t, "0 machines created")
}

func TestAdoptCreatesMachinesOfSet(t *testing.T) {
	p := newOrphanFleet(t)
	p.run("orphans", "adopt", "--all", "--set", "web-1").succeeds(t).prints(t, "lost-1: created, will adopt",
		"inline: created, will adopt", "3 machines created")
	m := &v1beta1.Machine{}
	if err := p.api.Get(t.Context(), client.ObjectKey{Namespace: p.namespace, Name: "inline"}, m); err != nil {
		t.Fatal(err)
	}
	if m.Labels["pool"] != "web" || len(m.OwnerReferences) > 0 || m.Spec.ClassRef.Name != "small" {
		t.Errorf("labels %v, owners %v, class %v", m.Labels, m.OwnerReferences, m.Spec.ClassRef)
	}
	err := p.api.Get(t.Context(), client.ObjectKey{Namespace: p.namespace, Name: "lost-3"}, m)
	if client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("the instance that is being removed has a machine: %v", err)
	}
}

func TestAdoptRejectsImpossibleAdoptions(t *testing.T) {
	p := newOrphanFleet(t)
	for name, test := range map[string]struct {
		args        []string
		annotations map[string]string
		mentions    []string
	}{
		"nothing named":     {nil, nil, []string{"specify either provider IDs or --all"}},
		"both":              {[]string{"sim://1", "--all"}, nil, []string{"specify either"}},
		"too long":          {[]string{"--all", "--permit=25h"}, nil, []string{"--permit 25h0m0s", "24h"}},
		"unknown":           {[]string{"sim://9"}, nil, []string{"found no instance", "sim://9"}},
		"being removed":     {[]string{"sim://3"}, nil, []string{"sim://3", "is being removed"}},
		"without its class": {[]string{"sim://inline"}, nil, []string{"not a class", "--set"}},
		"no such set":       {[]string{"sim://1", "--set=wbe"}, nil, []string{"wbe", "not found"}},
		"a class that removes orphans": {[]string{"sim://1"},
			map[string]string{v1beta1.AnnotationRemoveOrphansUntil: "2031-01-01T00:00:00Z"},
			[]string{"small", v1beta1.AnnotationRemoveOrphansUntil, "remove the annotation"}},
		"a class that permits another cluster": {[]string{"sim://1"}, map[string]string{
			v1beta1.AnnotationAdoptFromCluster:      "another",
			v1beta1.AnnotationAdoptFromClusterUntil: time.Now().Add(time.Hour).UTC().Format(time.RFC3339)},
			[]string{"instances of cluster another until"}},
	} {
		t.Run(name, func(t *testing.T) {
			class := &v1beta1.MachineClass{}
			key := client.ObjectKey{Namespace: p.namespace, Name: "small"}
			if err := p.api.Get(t.Context(), key, class); err != nil {
				t.Fatal(err)
			}
			class.Annotations = test.annotations
			if err := p.api.Update(t.Context(), class); err != nil {
				t.Fatal(err)
			}
			p.run(append([]string{"orphans", "adopt"}, test.args...)...).fails(t, test.mentions...)
		})
	}
	list := &v1beta1.MachineList{}
	if err := p.api.List(t.Context(), list, client.InNamespace(p.namespace)); err != nil || len(list.Items) != 2 {
		t.Errorf("%d machines, want the 2 machines of the fleet: %v", len(list.Items), err)
	}
}
