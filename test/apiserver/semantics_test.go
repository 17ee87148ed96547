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
		t.Errorf("created %+v", m.ObjectMeta)
	}
	if m.Status.Phase != "" {
		t.Error("a creation set the status")
	}
	if m.Spec.Timeouts.DrainOrDefault() != 2*time.Hour || m.Spec.Timeouts.Drain == nil {
		t.Errorf("no default: %+v", m.Spec.Timeouts)
	}
	if err := w.Create(t.Context(), machine("a")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("created again: %v", err)
	}
	bad := machine("b")
	bad.Spec.Provider = "No Label"
	if err := w.Create(t.Context(), bad); !apierrors.IsInvalid(err) {
		t.Errorf("created an invalid one: %v", err)
	}
}

func TestGeneratedNamesAreTheSameInEachRun(t *testing.T) {
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
		t.Errorf("%v and %v", names[0], names[1])
	}
}

// Each write changes what it is for, and counts generations only where the spec changes.
func TestWrites(t *testing.T) {
	for name, test := range map[string]struct {
		change     func(*v1beta1.Machine)
		status     bool
		version    string
		generation int64
		phase      v1beta1.MachinePhase
	}{
		"nothing":             {func(m *v1beta1.Machine) {}, false, "2", 1, ""},
		"spec":                {func(m *v1beta1.Machine) { m.Spec.Version = "v1.2.3" }, false, "3", 2, ""},
		"metadata":            {func(m *v1beta1.Machine) { m.Labels = nil }, false, "3", 1, ""},
		"status of status":    {func(m *v1beta1.Machine) { m.Status.Phase = "Running" }, true, "3", 1, "Running"},
		"status of main":      {func(m *v1beta1.Machine) { m.Status.Phase = "Running" }, false, "2", 1, ""},
		"spec of status":      {func(m *v1beta1.Machine) { m.Spec.Version = "v1.2.3" }, true, "2", 1, ""},
		"metadata of status":  {func(m *v1beta1.Machine) { m.Labels = nil }, true, "2", 1, ""},
		"the unknown default": {func(m *v1beta1.Machine) { m.Spec.Timeouts = v1beta1.MachineTimeouts{} }, false, "2", 1, ""},
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
				t.Errorf("version %s generation %d phase %q", stored.ResourceVersion, stored.Generation, stored.Status.Phase)
			}
			if want := int(w.Revision()) - firstRevision; len(w.Changes(0)) != want {
				t.Errorf("%d changes, want %d", len(w.Changes(0)), want)
			}
		})
	}
}

// What the schema does not know is not stored, and what it demands has its default back.
func TestPruningAndDefaults(t *testing.T) {
	for _, patch := range []string{`{"unknown":1}`, `{"spec":{"unknown":1}}`, `{"spec":{"timeouts":null}}`,
		`{"spec":{"timeouts":{"drain":null,"x":{}}}}`} {
		w := newWorld()
		w.must(t, w.Create(t.Context(), machine("a")))
		revision := w.Revision()
		w.must(t, w.Patch(t.Context(), machine("a"), client.RawPatch(types.MergePatchType, []byte(patch))))
		if w.Revision() != revision {
			t.Errorf("%s was a write", patch)
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
		t.Errorf("update: %v", err)
	}
	locked := stale.DeepCopy()
	locked.Labels = map[string]string{"x": "y"}
	if err := w.Patch(t.Context(), locked.DeepCopy(),
		client.MergeFromWithOptions(stale, client.MergeFromWithOptimisticLock{})); !apierrors.IsConflict(err) {
		t.Errorf("patch with lock: %v", err)
	}
	w.must(t, w.Patch(t.Context(), locked, client.MergeFrom(stale)))
	if locked.Spec.Version != "v1.2.3" || locked.Labels["x"] != "y" {
		t.Errorf("a patch without lock did not merge: %+v", locked)
	}
	if err := w.Delete(t.Context(), stale,
		client.Preconditions{ResourceVersion: &stale.ResourceVersion}); !apierrors.IsConflict(err) {
		t.Errorf("delete: %v", err)
	}
	if err := w.Delete(t.Context(), stale,
		client.Preconditions{UID: ptr.To(types.UID("other"))}); !apierrors.IsConflict(err) {
		t.Errorf("delete of another: %v", err)
	}
}

func TestProviderIDIsBoundToTheMachine(t *testing.T) {
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
			t.Errorf("to %q: %v", id, err)
		}
	}
	before := m.DeepCopy()
	m.Status.Launch = &v1beta1.LaunchStatus{Step: v1beta1.LaunchStepReplacing}
	w.must(t, w.Status().Patch(t.Context(), m, client.MergeFrom(before)))
	if err := set("sim://2"); !apierrors.IsInvalid(err) {
		t.Errorf("to another while replacing: %v", err)
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
		t.Errorf("deleted %+v", m.ObjectMeta)
	}
	revision := w.Revision()
	w.must(t, w.Delete(t.Context(), m))
	if w.Revision() != revision {
		t.Error("a second deletion was a write")
	}
	before := m.DeepCopy()
	m.Finalizers = append(m.Finalizers, "example.com/b")
	if err := w.Patch(t.Context(), m.DeepCopy(), client.MergeFrom(before)); !apierrors.IsInvalid(err) {
		t.Errorf("added a finalizer: %v", err)
	}
	m.Finalizers = nil
	w.must(t, w.Patch(t.Context(), m, client.MergeFrom(before)))
	if len(m.Finalizers) != 0 || m.DeletionTimestamp == nil {
		t.Errorf("the answer is %+v", m.ObjectMeta)
	}
	changes := w.Changes(revision)
	if len(changes) != 1 || changes[0].Type != watch.Deleted ||
		changes[0].New.GetResourceVersion() != formatRevision(w.Revision()) ||
		len(changes[0].New.GetFinalizers()) != 1 {
		t.Errorf("changes %+v", changes)
	}
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(m), m); !apierrors.IsNotFound(err) {
		t.Errorf("get: %v", err)
	}
	if err := w.Patch(t.Context(), m, client.RawPatch(types.MergePatchType, []byte(`{}`))); !apierrors.IsNotFound(err) {
		t.Errorf("patch: %v", err)
	}
}

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Labels: map[string]string{"app": "a"}},
		Spec: corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
}

func TestPodsGoGracefully(t *testing.T) {
	w := newWorld()
	bound, free := pod("bound", "n"), pod("free", "")
	w.must(t, w.Create(t.Context(), bound))
	w.must(t, w.Create(t.Context(), free))
	w.must(t, w.Delete(t.Context(), bound))
	w.must(t, w.Delete(t.Context(), free))
	list := &corev1.PodList{}
	w.must(t, w.List(t.Context(), list, client.MatchingFields{"spec.nodeName": "n"}))
	if len(list.Items) != 1 || !list.Items[0].DeletionTimestamp.Time.Equal(epoch.Add(30*time.Second)) {
		t.Fatalf("pods %+v", list.Items)
	}
	w.must(t, w.Delete(t.Context(), bound, client.GracePeriodSeconds(0)))
	if got := w.Snapshot(corev1.SchemeGroupVersion.WithKind("Pod")); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

func TestEvictionKeepsTheBudget(t *testing.T) {
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
		t.Errorf("evicted while the budget is unknown: %v", err)
	}
	for w.Pending() > 0 {
		w.Step(0)
	}
	budget = reload(t, w, budget)
	before := budget.DeepCopy()
	budget.Spec.MinAvailable = ptr.To(intstr.FromInt32(1))
	w.must(t, w.Patch(t.Context(), budget, client.MergeFrom(before)))
	if err := evict("a"); !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
		t.Errorf("evicted while the budget's change is not counted: %v", err)
	}
	w.Step(0)
	w.must(t, evict("a"))
	if err := evict("b"); !apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause) {
		t.Errorf("evicted the last one: %v", err)
	}
	if got := reload(t, w, budget).Status; got.DisruptionsAllowed != 0 || got.CurrentHealthy != 2 {
		t.Errorf("status %+v", got)
	}
}

func owned(o client.Object, by client.Object, block bool) client.Object {
	o.SetOwnerReferences(append(o.GetOwnerReferences(), metav1.OwnerReference{APIVersion: "machinist.dev/v1beta1",
		Kind: "Machine",
		Name: by.GetName(), UID: by.GetUID(), BlockOwnerDeletion: &block}))
	return o
}

// collect runs the background controllers to the end, from the end or the start of the list, and returns what they did.
func collect(w *world) (done []string) {
	for w.Pending() > 0 {
		done = append(done, w.Step(w.Pending()-1))
	}
	return done
}

func TestGarbageCollection(t *testing.T) {
	for name, test := range map[string]struct {
		policy metav1.DeletionPropagation
		// protected is a finalizer on the dependent.
		protected []string
		// steps is how many the collector takes, left who is there afterwards.
		steps int
		left  []string
	}{
		"background": {metav1.DeletePropagationBackground, nil, 2, nil},
		"background, held": {metav1.DeletePropagationBackground, []string{"example.com/a"}, 1,
			[]string{"child", "grandchild"}},
		"foreground":       {metav1.DeletePropagationForeground, nil, 4, nil},
		"foreground, held": {metav1.DeletePropagationForeground, []string{"example.com/a"}, 3, []string{"child", "owner"}},
		"orphans":          {metav1.DeletePropagationOrphan, nil, 2, []string{"child", "grandchild"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld()
			owner := machine("owner")
			w.must(t, w.Create(t.Context(), owner))
			child := owned(machine("child"), owner, true)
			child.SetFinalizers(test.protected)
			w.must(t, w.Create(t.Context(), child))
			w.must(t, w.Create(t.Context(), owned(machine("grandchild"), child, true)))
			if w.Pending() != 0 {
				t.Fatalf("%d steps are due before anything was deleted", w.Pending())
			}
			w.must(t, w.Delete(t.Context(), owner, client.PropagationPolicy(test.policy)))
			done := collect(w)
			var left []string
			for _, o := range w.Snapshot(v1beta1.GroupVersion.WithKind("Machine")) {
				left = append(left, o.GetName())
			}
			if len(done) != test.steps || !slices.Equal(left, test.left) {
				t.Errorf("%v are left after %d steps: %q", left, len(done), done)
			}
		})
	}
}

func TestDependentsKeepOtherOwners(t *testing.T) {
	w := newWorld()
	a, b := machine("a"), machine("b")
	w.must(t, w.Create(t.Context(), a))
	w.must(t, w.Create(t.Context(), b))
	child := owned(owned(machine("child"), a, true), b, true)
	w.must(t, w.Create(t.Context(), child))
	w.must(t, w.Delete(t.Context(), a))
	collect(w)
	if got := reload(t, w, machine("child")).OwnerReferences; len(got) != 1 || got[0].Name != "b" {
		t.Errorf("owners %+v", got)
	}
}

// Clones and the server they come from do not see each other's writes, nor does a caller's change reach the store.
func TestAClonedServerAndCallersShareNoObjects(t *testing.T) {
	w := newWorld()
	m := machine("a")
	w.must(t, w.Create(t.Context(), m))
	clone := &world{Server: w.Clone(func() time.Time { return epoch }), now: epoch}
	clone.Client = clone.Server.Client("clone")
	m.Labels["app"] = "changed by the caller"
	if got := reload(t, w, machine("a")); got.Labels["app"] != "a" {
		t.Error("a caller's change reached the store")
	}
	w.must(t, clone.Delete(t.Context(), machine("a")))
	w.must(t, clone.Create(t.Context(), machine("b")))
	w.must(t, w.Create(t.Context(), machine("c")))
	if w.Changes(2)[0].Key.Name != "c" || clone.Changes(3)[0].Key.Name != "b" || len(w.Changes(2)) != 1 {
		t.Errorf("changes %+v and %+v", w.Changes(2), clone.Changes(2))
	}
	if reload(t, w, machine("a")).Name != "a" {
		t.Error("the clone's deletion reached the server")
	}
}

func TestOtherForms(t *testing.T) {
	w := newWorld()
	w.must(t, w.Create(t.Context(), machine("a")))
	gvk := v1beta1.GroupVersion.WithKind("Machine")
	partial := &metav1.PartialObjectMetadata{}
	partial.SetGroupVersionKind(gvk)
	w.must(t, w.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "a"}, partial))
	if partial.Labels["app"] != "a" || partial.GroupVersionKind() != gvk {
		t.Errorf("metadata %+v", partial)
	}
	before := partial.DeepCopy()
	partial.Labels["app"] = "b"
	w.must(t, w.Patch(t.Context(), partial, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	w.must(t, w.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "a"}, u))
	if u.GetLabels()["app"] != "b" || u.GetGeneration() != 1 {
		t.Errorf("unstructured %+v", u)
	}
	u.SetLabels(map[string]string{"app": "c"})
	w.must(t, w.Update(t.Context(), u))
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(v1beta1.GroupVersion.WithKind("MachineList"))
	w.must(t, w.List(t.Context(), list, client.MatchingLabels{"app": "c"}, client.InNamespace(namespace)))
	if len(list.Items) != 1 {
		t.Errorf("listed %+v", list.Items)
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
		t.Errorf("conditions %+v", got)
	}
	revision := w.Revision()
	apply("Ready", "a")
	if w.Revision() != revision {
		t.Error("the same configuration of the same manager was a write")
	}
}

func TestCancelledContext(t *testing.T) {
	w := newWorld()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Create(ctx, machine("a")); !errors.Is(err, ctx.Err()) || w.Revision() != firstRevision {
		t.Errorf("created with a cancelled context: %v", err)
	}
}
