package apiserver

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

func TestCreate(t *testing.T) {
	w := newWorld()
	m := machine("a")
	m.Status.Phase = v1beta1.MachineRunning
	w.must(t, w.Create(t.Context(), m))
	if m.Generation != 1 || m.UID != "uid-000001" || m.ResourceVersion != "2" || !m.CreationTimestamp.Time.Equal(epoch) {
		t.Errorf("got metadata %+v", m.ObjectMeta)
	}
	if m.Status.Phase != "" {
		t.Error("a creation set the status")
	}
	if m.Spec.Timeouts.DrainOrDefault() != 2*time.Hour || m.Spec.Timeouts.Drain == nil {
		t.Errorf("got timeouts %+v, want the default 2h for drain", m.Spec.Timeouts)
	}
	if err := w.Create(t.Context(), machine("a")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("create an existing object: got %v, want already exists", err)
	}
	bad := machine("b")
	bad.Spec.Provider = "No Label"
	if err := w.Create(t.Context(), bad); !apierrors.IsInvalid(err) {
		t.Errorf("create an invalid object: got %v, want invalid", err)
	}
}

func TestGeneratedNamesAreDeterministic(t *testing.T) {
	var names [2][]string
	for i := range names {
		w := newWorld()
		for range 50 {
			m := machine("")
			m.GenerateName = "m-"
			w.must(t, w.Create(t.Context(), m))
			if slices.Contains(names[i], m.Name) {
				t.Fatalf("%s was generated twice", m.Name)
			}
			names[i] = append(names[i], m.Name)
		}
	}
	if !slices.Equal(names[0], names[1]) {
		t.Errorf("two runs generated different names: %v and %v", names[0], names[1])
	}
}

// A write to the object does not change the status, and a write to the status changes nothing else. Only changes of the
// spec increase the generation.
func TestPatches(t *testing.T) {
	for name, test := range map[string]struct {
		change     func(*v1beta1.Machine)
		status     bool
		version    string
		generation int64
		phase      v1beta1.MachinePhase
	}{
		"nothing":            {func(m *v1beta1.Machine) {}, false, "2", 1, ""},
		"spec":               {func(m *v1beta1.Machine) { m.Spec.Version = "v1.2.3" }, false, "3", 2, ""},
		"metadata":           {func(m *v1beta1.Machine) { m.Labels = nil }, false, "3", 1, ""},
		"status of status":   {func(m *v1beta1.Machine) { m.Status.Phase = "Running" }, true, "3", 1, "Running"},
		"status of main":     {func(m *v1beta1.Machine) { m.Status.Phase = "Running" }, false, "2", 1, ""},
		"spec of status":     {func(m *v1beta1.Machine) { m.Spec.Version = "v1.2.3" }, true, "2", 1, ""},
		"metadata of status": {func(m *v1beta1.Machine) { m.Labels = nil }, true, "2", 1, ""},
		"default removed":    {func(m *v1beta1.Machine) { m.Spec.Timeouts = v1beta1.MachineTimeouts{} }, false, "2", 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			m := machine("a")
			w.must(t, w.Create(t.Context(), m))
			before := m.DeepCopy()
			test.change(m)
			if test.status {
				w.must(t, w.Status().Patch(t.Context(), m, client.MergeFrom(before)))
			} else {
				w.must(t, w.Patch(t.Context(), m, client.MergeFrom(before)))
			}
			stored := reload(t, w, machine("a"))
			if stored.ResourceVersion != test.version || stored.Generation != test.generation ||
				stored.Status.Phase != test.phase {
				t.Errorf("got version %s, generation %d, phase %q, want %s, %d, %q", stored.ResourceVersion, stored.Generation,
					stored.Status.Phase, test.version, test.generation, test.phase)
			}
			if want := int(w.Revision()) - firstRevision; len(w.Changes(0)) != want {
				t.Errorf("got %d changes, want %d", len(w.Changes(0)), want)
			}
		})
	}
}

// The server removes unknown fields and restores defaults, so none of these patches changes the stored object.
func TestPruningAndDefaults(t *testing.T) {
	for _, patch := range []string{`{"unknown":1}`, `{"spec":{"unknown":1}}`, `{"spec":{"timeouts":null}}`,
		`{"spec":{"timeouts":{"drain":null,"x":{}}}}`} {
		w := newWorld()
		w.must(t, w.Create(t.Context(), machine("a")))
		revision := w.Revision()
		w.must(t, w.Patch(t.Context(), machine("a"), client.RawPatch(types.MergePatchType, []byte(patch))))
		if w.Revision() != revision {
			t.Errorf("patch %s changed the object", patch)
		}
	}
}

func TestStaleWritesConflict(t *testing.T) {
	w := newWorld()
	m := machine("a")
	w.must(t, w.Create(t.Context(), m))
	stale := m.DeepCopy()
	changed := m.DeepCopy()
	changed.Spec.Version = "v1.2.3"
	w.must(t, w.Update(t.Context(), changed))
	if err := w.Update(t.Context(), stale.DeepCopy()); !apierrors.IsConflict(err) {
		t.Errorf("update: got %v, want a conflict", err)
	}
	locked := stale.DeepCopy()
	locked.Labels = map[string]string{"x": "y"}
	if err := w.Patch(t.Context(), locked.DeepCopy(),
		client.MergeFromWithOptions(stale, client.MergeFromWithOptimisticLock{})); !apierrors.IsConflict(err) {
		t.Errorf("patch with a lock: got %v, want a conflict", err)
	}
	w.must(t, w.Patch(t.Context(), locked, client.MergeFrom(stale)))
	if locked.Spec.Version != "v1.2.3" || locked.Labels["x"] != "y" {
		t.Errorf("patch without a lock: got %+v, want both changes", locked)
	}
	if err := w.Delete(t.Context(), stale,
		client.Preconditions{ResourceVersion: &stale.ResourceVersion}); !apierrors.IsConflict(err) {
		t.Errorf("delete: got %v, want a conflict", err)
	}
	if err := w.Delete(t.Context(), stale,
		client.Preconditions{UID: ptr.To(types.UID("other"))}); !apierrors.IsConflict(err) {
		t.Errorf("delete with another UID: got %v, want a conflict", err)
	}
}

func TestProviderIDIsImmutable(t *testing.T) {
	w := newWorld()
	m := machine("a")
	m.Spec.ProviderID = "sim://1"
	w.must(t, w.Create(t.Context(), m))
	set := func(id string) error {
		m := reload(t, w, machine("a"))
		before := m.DeepCopy()
		m.Spec.ProviderID = id
		return w.Patch(t.Context(), m, client.MergeFrom(before))
	}
	for _, id := range []string{"sim://2", ""} {
		if err := set(id); !apierrors.IsInvalid(err) {
			t.Errorf("change to %q: got %v, want invalid", id, err)
		}
	}
	before := m.DeepCopy()
	m.Status.Launch = &v1beta1.LaunchStatus{Step: v1beta1.LaunchStepReplacing}
	w.must(t, w.Status().Patch(t.Context(), m, client.MergeFrom(before)))
	if err := set("sim://2"); !apierrors.IsInvalid(err) {
		t.Errorf("change to another ID while replacing: got %v, want invalid", err)
	}
	w.must(t, set(""))
	w.must(t, set("sim://2"))
}

func TestFinalizers(t *testing.T) {
	w := newWorld()
	m := machine("a")
	m.Finalizers = []string{"example.com/a"}
	w.must(t, w.Create(t.Context(), m))
	w.now = epoch.Add(time.Minute)
	w.must(t, w.Delete(t.Context(), m))
	m = reload(t, w, m)
	if m.DeletionTimestamp == nil || !m.DeletionTimestamp.Time.Equal(w.now) || *m.DeletionGracePeriodSeconds != 0 ||
		m.Generation != 2 {
		t.Errorf("got metadata %+v after a deletion", m.ObjectMeta)
	}
	revision := w.Revision()
	w.must(t, w.Delete(t.Context(), m))
	if w.Revision() != revision {
		t.Error("a second deletion changed the object")
	}
	before := m.DeepCopy()
	m.Finalizers = append(m.Finalizers, "example.com/b")
	if err := w.Patch(t.Context(), m.DeepCopy(), client.MergeFrom(before)); !apierrors.IsInvalid(err) {
		t.Errorf("add a finalizer during deletion: got %v, want invalid", err)
	}
	m.Finalizers = nil
	w.must(t, w.Patch(t.Context(), m, client.MergeFrom(before)))
	if len(m.Finalizers) != 0 || m.DeletionTimestamp == nil {
		t.Errorf("got metadata %+v, want a deletionTimestamp and no finalizers", m.ObjectMeta)
	}
	changes := w.Changes(revision)
	if len(changes) != 1 || changes[0].Type != watch.Deleted ||
		changes[0].New.GetResourceVersion() != formatRevision(w.Revision()) ||
		len(changes[0].New.GetFinalizers()) != 1 {
		t.Errorf("got changes %+v, want one deletion with its own resource version", changes)
	}
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(m), m); !apierrors.IsNotFound(err) {
		t.Errorf("get: got %v, want not found", err)
	}
	if err := w.Patch(t.Context(), m, client.RawPatch(types.MergePatchType, []byte(`{}`))); !apierrors.IsNotFound(err) {
		t.Errorf("patch: got %v, want not found", err)
	}
}

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Labels: map[string]string{"app": "a"}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
}

func TestPodsAreDeletedGracefully(t *testing.T) {
	w := newWorld()
	bound, free := pod("bound", "n"), pod("free", "")
	w.must(t, w.Create(t.Context(), bound))
	w.must(t, w.Create(t.Context(), free))
	w.must(t, w.Delete(t.Context(), bound))
	w.must(t, w.Delete(t.Context(), free))
	list := &corev1.PodList{}
	w.must(t, w.List(t.Context(), list, client.MatchingFields{"spec.nodeName": "n"}))
	if len(list.Items) != 1 || !list.Items[0].DeletionTimestamp.Time.Equal(epoch.Add(30*time.Second)) {
		t.Fatalf("got pods %+v, want the bound pod with a grace period of 30s", list.Items)
	}
	w.must(t, w.Delete(t.Context(), bound, client.GracePeriodSeconds(0)))
	if got := w.Snapshot(corev1.SchemeGroupVersion.WithKind("Pod")); len(got) != 0 {
		t.Errorf("got pods %v, want none", got)
	}
}

func TestEvictionRespectsBudget(t *testing.T) {
	w := newWorld()
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "b"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			Selector:     &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
			MinAvailable: ptr.To(intstr.FromInt32(0))}}
	w.must(t, w.Create(t.Context(), budget))
	for _, name := range []string{"a", "b"} {
		p := pod(name, "n")
		w.must(t, w.Create(t.Context(), p))
		p.Status.Phase = corev1.PodRunning
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		w.must(t, w.Status().Update(t.Context(), p))
	}
	evict := func(name string) error {
		return w.SubResource("eviction").Create(t.Context(), pod(name, "n"), &policyv1.Eviction{})
	}
	if err := evict("a"); !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) ||
		!apierrors.IsTooManyRequests(err) {
		t.Errorf("evict before the first count of the budget: got %v, want a refusal", err)
	}
	for w.PendingSteps() > 0 {
		w.Step(0)
	}
	budget = reload(t, w, budget)
	before := budget.DeepCopy()
	budget.Spec.MinAvailable = ptr.To(intstr.FromInt32(1))
	w.must(t, w.Patch(t.Context(), budget, client.MergeFrom(before)))
	if err := evict("a"); !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
		t.Errorf("evict before the budget is counted again: got %v, want a refusal", err)
	}
	w.Step(0)
	w.must(t, evict("a"))
	if err := evict("b"); !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
		t.Errorf("evict the last pod: got %v, want a refusal", err)
	}
	if got := reload(t, w, budget).Status; got.DisruptionsAllowed != 0 || got.CurrentHealthy != 2 {
		t.Errorf("got status %+v, want 0 allowed disruptions and 2 healthy pods", got)
	}
}

func withOwner(o client.Object, owner client.Object, block bool) client.Object {
	o.SetOwnerReferences(append(o.GetOwnerReferences(), metav1.OwnerReference{APIVersion: "machinist.dev/v1beta1",
		Kind: "Machine",
		Name: owner.GetName(), UID: owner.GetUID(), BlockOwnerDeletion: &block}))
	return o
}

func collect(w *world) (done []string) {
	for w.PendingSteps() > 0 {
		done = append(done, w.Step(w.PendingSteps()-1))
	}
	return done
}

func TestGarbageCollection(t *testing.T) {
	for name, test := range map[string]struct {
		policy     metav1.DeletionPropagation
		finalizers []string
		steps      int
		remaining  []string
	}{
		"background": {metav1.DeletePropagationBackground, nil, 2, nil},
		"background, with a finalizer": {metav1.DeletePropagationBackground, []string{"example.com/a"}, 1,
			[]string{"child", "grandchild"}},
		"foreground": {metav1.DeletePropagationForeground, nil, 4, nil},
		"foreground, with a finalizer": {metav1.DeletePropagationForeground, []string{"example.com/a"}, 3,
			[]string{"child", "owner"}},
		"orphans": {metav1.DeletePropagationOrphan, nil, 2, []string{"child", "grandchild"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			owner := machine("owner")
			w.must(t, w.Create(t.Context(), owner))
			child := withOwner(machine("child"), owner, true)
			child.SetFinalizers(test.finalizers)
			w.must(t, w.Create(t.Context(), child))
			w.must(t, w.Create(t.Context(), withOwner(machine("grandchild"), child, true)))
			if w.PendingSteps() != 0 {
				t.Fatalf("got %d due steps before a deletion, want 0", w.PendingSteps())
			}
			w.must(t, w.Delete(t.Context(), owner, client.PropagationPolicy(test.policy)))
			done := collect(w)
			var remaining []string
			for _, o := range w.Snapshot(v1beta1.GroupVersion.WithKind("Machine")) {
				remaining = append(remaining, o.GetName())
			}
			if len(done) != test.steps || !slices.Equal(remaining, test.remaining) {
				t.Errorf("got objects %v after %d steps, want %v after %d: %q", remaining, len(done), test.remaining, test.steps, done)
			}
		})
	}
}

func TestDependentsKeepOtherOwners(t *testing.T) {
	w := newWorld()
	a, b := machine("a"), machine("b")
	w.must(t, w.Create(t.Context(), a))
	w.must(t, w.Create(t.Context(), b))
	child := withOwner(withOwner(machine("child"), a, true), b, true)
	w.must(t, w.Create(t.Context(), child))
	w.must(t, w.Delete(t.Context(), a))
	collect(w)
	if got := reload(t, w, machine("child")).OwnerReferences; len(got) != 1 || got[0].Name != "b" {
		t.Errorf("got owners %+v, want only b", got)
	}
}

func TestClonesAndCallersAreIndependent(t *testing.T) {
	w := newWorld()
	m := machine("a")
	w.must(t, w.Create(t.Context(), m))
	clone := &world{Server: w.Clone(func() time.Time { return epoch }), now: epoch}
	clone.Client = clone.Server.Client("clone")
	m.Labels["app"] = "changed by the caller"
	if got := reload(t, w, machine("a")); got.Labels["app"] != "a" {
		t.Error("a change of the object of a caller changed the store")
	}
	w.must(t, clone.Delete(t.Context(), machine("a")))
	w.must(t, clone.Create(t.Context(), machine("b")))
	w.must(t, w.Create(t.Context(), machine("c")))
	if w.Changes(2)[0].Key.Name != "c" || clone.Changes(3)[0].Key.Name != "b" || len(w.Changes(2)) != 1 {
		t.Errorf("got changes %+v and %+v in the clone, want only their own", w.Changes(2), clone.Changes(2))
	}
	if reload(t, w, machine("a")).Name != "a" {
		t.Error("a deletion in the clone changed the original")
	}
}

func TestMetadataAndUnstructuredObjects(t *testing.T) {
	w := newWorld()
	w.must(t, w.Create(t.Context(), machine("a")))
	gvk := v1beta1.GroupVersion.WithKind("Machine")
	partial := &metav1.PartialObjectMetadata{}
	partial.SetGroupVersionKind(gvk)
	w.must(t, w.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "a"}, partial))
	if partial.Labels["app"] != "a" || partial.GroupVersionKind() != gvk {
		t.Errorf("got metadata %+v", partial)
	}
	before := partial.DeepCopy()
	partial.Labels["app"] = "b"
	w.must(t, w.Patch(t.Context(), partial, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	w.must(t, w.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "a"}, u))
	if u.GetLabels()["app"] != "b" || u.GetGeneration() != 1 {
		t.Errorf("got %+v, want label b and generation 1", u)
	}
	u.SetLabels(map[string]string{"app": "c"})
	w.must(t, w.Update(t.Context(), u))
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MachineList"))
	w.must(t, w.List(t.Context(), list, client.MatchingLabels{"app": "c"}, client.InNamespace(namespace)))
	if len(list.Items) != 1 {
		t.Errorf("got %+v, want one object", list.Items)
	}
}

func TestApplyMergesConditions(t *testing.T) {
	w := newWorld()
	m := machine("a")
	w.must(t, w.Create(t.Context(), m))
	apply := func(kind, manager string) {
		t.Helper()
		c := client.ApplyConfigurationFromUnstructured(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "machinist.dev/v1beta1", "kind": "Machine", "metadata": map[string]any{"namespace": namespace,
				"name": "a"},
			"status": map[string]any{"conditions": []any{map[string]any{
				"type": kind, "status": "True", "reason": "A", "message": "", "lastTransitionTime": "2030-01-01T00:00:00Z"}}},
		}})
		w.must(t, w.Status().Apply(t.Context(), c, client.FieldOwner(manager)))
	}
	apply("Ready", "a")
	apply("Drained", "b")
	if got := reload(t, w, m).Status.Conditions; len(got) != 2 {
		t.Errorf("got conditions %+v, want 2", got)
	}
	revision := w.Revision()
	apply("Ready", "a")
	if w.Revision() != revision {
		t.Error("applying the same configuration again changed the object")
	}
}

func TestCancelledContext(t *testing.T) {
	w := newWorld()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Create(ctx, machine("a")); !errors.Is(err, ctx.Err()) || w.Revision() != firstRevision {
		t.Errorf("create with a cancelled context: got %v, want %v", err, ctx.Err())
	}
}
