package machine

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// putFormer creates a running instance in the cloud whose tags name a Machine of another control cluster. That Machine
// has the namespace of this test.
func (w *world) putFormer(id, cluster, name string) {
	w.cloud.Put("", provider.Instance{ProviderID: id, State: provider.StateRunning, NodeName: nodeNameOf(w.namespace, name),
		Type: "large", Zone: "r-2", LaunchTime: w.clock.Now().Add(-time.Hour), ClusterID: cluster,
		MachineUID: "uid-before-the-loss", MachineKey: w.namespace + "/" + name})
}

func (w *world) permit(class, cluster string, until time.Time) {
	w.t.Helper()
	o := &v1beta1.MachineClass{}
	if err := w.api.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: class}, o); err != nil {
		w.t.Fatal(err)
	}
	before := o.DeepCopy()
	o.Annotations = map[string]string{v1beta1.AnnotationAdoptFromCluster: cluster,
		v1beta1.AnnotationAdoptFromClusterUntil: until.UTC().Format(time.RFC3339)}
	if err := w.api.Patch(w.t.Context(), o, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

// The objects of a cluster that was restored from a backup have other UIDs.
//
// Rule: adoption-by-former-identity.
func TestMachineAdoptsItsInstanceAfterClusterLoss(t *testing.T) {
	for name, lost := range map[string]string{"under another cluster id": "the-lost-cluster",
		"under the same cluster id": newWorld(t).process.ClusterID} {
		t.Run(name, func(t *testing.T) { testAdoptionAfterLoss(t, lost) })
	}
}

func testAdoptionAfterLoss(t *testing.T, lost string) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", joinsWithToken)
	id := "fake://" + w.namespace + "/m-1"
	w.putFormer(id, lost, "m")
	w.createMachine("m", withProviderID(id))

	refused := func(reason string, mentions ...string) {
		t.Helper()
		w.step(11 * time.Minute)
		w.reconcile("m")
		w.reconcile("m")
		m := w.get("m")
		w.wantCondition(m, v1beta1.ConditionLaunched, "False", reason)
		message := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched).Message
		for _, mention := range mentions {
			if !strings.Contains(message, mention) {
				t.Errorf("%q does not mention %q", message, mention)
			}
		}
		if in := w.instance(id); in == nil || in.ClusterID != lost || in.MachineUID != "uid-before-the-loss" {
			t.Errorf("the instance was touched: %+v", in)
		}
	}
	refused(v1beta1.ReasonAdoptionForbidden, "spec.adoption is Forbid")
	w.allow("small", v1beta1.AdoptionAllow)
	refused(v1beta1.ReasonAdoptionRefused, v1beta1.AnnotationAdoptFromCluster+"="+lost, "24h0m0s in the future")
	w.allow("small", v1beta1.AdoptionForbid)
	w.permit("small", lost, w.clock.Now())
	refused(v1beta1.ReasonAdoptionForbidden, lost, "is in the past")
	w.permit("small", lost, w.clock.Now().Add(48*time.Hour))
	refused(v1beta1.ReasonAdoptionForbidden, "more than 24h0m0s in the future")
	w.permit("small", "another-cluster", w.clock.Now().Add(time.Hour))
	refused(v1beta1.ReasonAdoptionRefused, v1beta1.AnnotationAdoptFromCluster+"="+lost)

	w.permit("small", lost, w.clock.Now().Add(time.Hour))
	w.step(11 * time.Minute)
	for range 3 {
		w.reconcile("m")
	}
	m := w.get("m")
	w.wantCondition(m, v1beta1.ConditionLaunched, "True", v1beta1.ReasonInstanceAdopted)
	if in := w.instance(id); in == nil || in.ClusterID != w.process.ClusterID || in.MachineUID != m.UID {
		t.Errorf("the instance is %+v", in)
	}
	if made := len(w.cloud.LiveInstances()); made != 1 {
		t.Errorf("%d instances", made)
	}
}

// Rule: adoption-by-former-identity.
func TestAdoptionFromClusterNeedsTheSameNameAndTags(t *testing.T) {
	t.Parallel()
	const lost = "the-lost-cluster"
	w := newWorld(t)
	w.class("small", joinsWithToken)
	w.permit("small", lost, w.clock.Now().Add(time.Hour))

	other := "fake://" + w.namespace + "/other-1"
	w.putFormer(other, lost, "other")
	w.createMachine("m", withProviderID(other))
	w.reconcile("m")
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionLaunched, "False", v1beta1.ReasonAdoptionRefused)
	if in := w.instance(other); in == nil || in.ClusterID != lost {
		t.Errorf("the instance was touched: %+v", in)
	}

	pet := "fake://" + w.namespace + "/pet-1"
	w.createUntagged(pet, nodeNameOf(w.namespace, "pet"))
	w.createMachine("n", withProviderID(pet))
	w.reconcile("n")
	w.reconcile("n")
	w.wantCondition(w.get("n"), v1beta1.ConditionLaunched, "False", v1beta1.ReasonAdoptionForbidden)
	if in := w.instance(pet); in == nil || in.ClusterID != "" {
		t.Errorf("the instance was touched: %+v", in)
	}
}
