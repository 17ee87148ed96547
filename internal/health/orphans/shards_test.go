package orphans

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/sharding"
	"machinist.dev/machinist/pkg/provider"
)

// Rule: shard-collects-its-own-orphans.
func TestShardDecidesOnInstancesOfItsNamespaces(t *testing.T) {
	in := lost(1)
	own := sharding.Index("ns", 2)
	for name, tc := range map[string]struct {
		shard     sharding.Shard
		elsewhere map[string]bool
		want      Outcome
	}{
		"own namespace": {sharding.Shard{Index: own, Count: 2}, nil, OutcomeDelete},
		"another shard": {sharding.Shard{Index: 1 - own, Count: 2}, nil, OutcomeOtherInstallation},
		"recorded by a Machine of another shard": {sharding.Shard{Index: own, Count: 2},
			map[string]bool{in.ProviderID: true}, OutcomeOwned},
	} {
		s := State{Rules: rules(), Now: now, StableSince: ago(time.Hour), PreviousObservations: seen(in),
			LiveMachines:  map[types.UID]bool{},
			OtherShardIDs: tc.elsewhere, Instances: []provider.Instance{in}}
		s.Shard = tc.shard
		if got := Decide(s).Decisions[0].Outcome; got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

// inShard divides the namespaces into two shards. The collector gets the shard of the test's namespace. The result is a
// new namespace in the other shard.
func (w *testCollector) inShard() (other string) {
	w.Helper()
	w.collector.Rules.Namespace = ""
	w.collector.Rules.Shard = sharding.Shard{Index: sharding.Index(w.namespace, 2), Count: 2}
	for range 100 {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "other-"}}
		w.create(ns)
		if !w.collector.Rules.Shard.Owns(ns.Name) {
			return ns.Name
		}
	}
	w.Fatal("none of a hundred namespaces is in the other shard")
	return ""
}

func (w *testCollector) moveClass(to string) *v1beta1.MachineClass {
	w.Helper()
	class, secret := &v1beta1.MachineClass{}, &corev1.Secret{}
	for _, o := range []client.Object{class, secret} {
		if err := w.api.Get(w.Context(), client.ObjectKey{Namespace: w.namespace, Name: "small"}, o); err != nil {
			w.Fatal(err)
		}
		if err := w.api.Delete(w.Context(), o); err != nil {
			w.Fatal(err)
		}
		o.SetNamespace(to)
		o.SetResourceVersion("")
		o.SetUID("")
		w.create(o)
	}
	return class
}

// A namespace has an orphan but no class. The orphan is found with the credentials of a class in another shard, and
// that class gets no condition.
//
// Rule: shard-collects-its-own-orphans.
func TestOrphanIsFoundWithClassOfAnotherShard(t *testing.T) {
	w := newTestCollector(t)
	class := w.moveClass(w.inShard())
	orphan := w.createOrphan(1)
	theirs := w.createOrphan(2, func(in *provider.Instance) { in.MachineKey = class.Namespace + "/m" })
	w.reconcile()
	w.want(orphan, theirs)
	w.pass()
	w.want(theirs)
}

// Rule: shard-collects-its-own-orphans.
func TestClassOfAnotherShardGetsNoCondition(t *testing.T) {
	w := newTestCollector(t)
	class := w.moveClass(w.inShard())
	all := []provider.Instance{w.createOrphan(1), w.createOrphan(2), w.createOrphan(3)}
	w.reconcile()
	w.pass()
	w.want(all...)
	if n := w.metric("machinist_orphans_blocked", string(v1beta1.ReasonMostInstancesOrphaned)); n != 3 {
		t.Errorf("%v orphans are blocked, want 3", n)
	}
	if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(class), class); err != nil {
		t.Fatal(err)
	}
	if reason := blockedReason(class); reason != "" {
		t.Errorf("the class of another shard reports %s", reason)
	}
}

// Rule: shard-collects-its-own-orphans.
func TestInstanceRecordedInAnotherShardIsKept(t *testing.T) {
	w := newTestCollector(t)
	other := w.inShard()
	orphan := w.createOrphan(1)
	w.create(&v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: other, Name: "rescue"},
		Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "small"}, ProviderID: orphan.ProviderID}})
	w.collector.Client = onlyIn{w.api, w.namespace}
	w.reconcile()
	w.pass()
	w.want(orphan)
}

type onlyIn struct {
	client.Reader
	namespace string
}

// List implements client.Reader.
func (r onlyIn) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	return r.Reader.List(ctx, list, append(o, client.InNamespace(r.namespace))...)
}
