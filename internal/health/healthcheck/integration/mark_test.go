package integration

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// The mark and the rest of the status have different writers, which do not overwrite each other.
//
// Rule: remediation-confirmed-live.
func TestMarkAndRestOfStatusHaveTwoWriters(t *testing.T) {
	t.Run("a machine that a user created", func(t *testing.T) { testMarkedByAnother(t, "{}") })
	t.Run("a machine of a set, which has no managed fields", func(t *testing.T) {
		testMarkedByAnother(t, `{"metadata":{"managedFields":[{}]}}`)
	})
}

func testMarkedByAnother(t *testing.T, launch string) {
	b := newBench(t)
	machines := b.machines(3)
	broken := machines[0]
	b.must(b.c.Patch(b.ctx(), broken.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(launch))))
	b.silence(broken)
	b.advance(9 * time.Minute)
	b.wantMarked()

	// The provider has read the machine before the machine was marked for remediation.
	unaware := b.read(broken)
	b.advance(time.Minute)
	b.wantMarked(broken)
	mark := b.mark(broken)
	if mark.Reason != v1beta1.ReasonBuiltInPolicy || !strings.Contains(mark.Message, "The built-in policy") ||
		!strings.Contains(mark.Message, string(broken.Status.NodeRef.UID)) {
		t.Errorf("the mark is %+v", mark)
	}
	if !slices.ContainsFunc(b.read(broken).ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == "machinist-healthcheck" && f.Operation == metav1.ManagedFieldsOperationApply &&
			f.Subresource == "status"
	}) {
		t.Errorf("managed fields: %+v", b.read(broken).ManagedFields)
	}
	provider := func(read *v1beta1.Machine) error {
		changed := read.DeepCopy()
		changed.Status.Phase = v1beta1.MachineUnhealthy
		b.condition(changed, v1beta1.ConditionNodeHealthy, false, v1beta1.ReasonNodeUnresponsive)
		return b.c.Status().Patch(b.ctx(), changed, client.MergeFromWithOptions(read, client.MergeFromWithOptimisticLock{}),
			client.FieldOwner("provider"))
	}
	if err := provider(unaware); !apierrors.IsConflict(err) {
		t.Fatalf("a write based on a read before the mark: %v, want a conflict", err)
	}
	b.must(provider(b.read(broken)))
	b.wantMarked(broken)
	b.wantNoWrites()

	failed := b.read(broken)
	failed.Status.Phase, failed.Status.FailureReason = v1beta1.MachineFailed, v1beta1.FailureCreateError
	b.must(b.c.Status().Update(b.ctx(), failed))
	b.wantNoWrites()
	failed.Status.Phase = v1beta1.MachineUnhealthy
	b.must(b.c.Status().Update(b.ctx(), failed))

	b.recover(broken)
	b.pass()
	b.wantMarked()
	is := b.read(broken)
	if meta.FindStatusCondition(is.Status.Conditions, v1beta1.ConditionNodeHealthy) == nil ||
		is.Status.Phase != v1beta1.MachineUnhealthy || is.Status.NodeRef == nil {
		t.Errorf("more than the mark was removed: %+v", is.Status)
	}
	b.wantNoWrites()
	reported := b.reported()
	if len(reported) != 2 || !strings.Contains(reported[0], "Warning RemediationRequested") ||
		!strings.Contains(reported[1], "Normal RemediationWithdrawn") {
		t.Errorf("events %q", reported)
	}
}

// Rule: unowned-machine-not-deleted.
func TestMachineWithoutOwnerIsOnlyMarked(t *testing.T) {
	b := newBench(t)
	machines := b.machines(3)
	b.silence(machines[0])
	b.advance(10 * time.Minute)
	b.advance(time.Hour)
	b.wantMarked(machines[0])
	if !b.read(machines[0]).DeletionTimestamp.IsZero() {
		t.Error("the machine is being deleted")
	}
}

// After a restore from a backup, another field manager may own the condition RemediationRequested of a healthy machine.
func TestMarkOfAnotherFieldManagerIsRemoved(t *testing.T) {
	b := newBench(t)
	machines := b.machines(3)
	m := b.read(machines[0])
	b.condition(m, v1beta1.ConditionRemediationRequested, true, v1beta1.ReasonBuiltInPolicy)
	b.must(b.c.Status().Update(b.ctx(), m, client.FieldOwner("restore")))
	b.wantMarked(machines[0])
	b.pass()
	b.wantMarked()
	b.wantNoWrites()
}

// Rule: remediation-confirmed-live.
func TestStaleCacheMarksNothing(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(b *bench, m *v1beta1.Machine)
	}{
		{"the node is Ready again", func(b *bench, m *v1beta1.Machine) { b.recover(m) }},
		{"the machine is paused", func(b *bench, m *v1beta1.Machine) { b.annotate(m, v1beta1.AnnotationPaused, "") }},
		{"the machine has skip-remediation", func(b *bench, m *v1beta1.Machine) {
			b.annotate(m, v1beta1.AnnotationSkipRemediation, "")
		}},
		{"another machine has the name", func(b *bench, m *v1beta1.Machine) {
			b.must(b.c.Delete(b.ctx(), m))
			again := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name, Labels: m.Labels},
				Spec: m.Spec}
			status := m.Status
			b.must(b.c.Create(b.ctx(), again))
			again.Status = status
			b.must(b.c.Status().Update(b.ctx(), again))
		}},
		{"the machine is deleted", func(b *bench, m *v1beta1.Machine) { b.must(b.c.Delete(b.ctx(), m)) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t)
			machines := b.machines(3)
			b.silence(machines[0])
			stale := newStaleCache(b)
			b.options.Client, b.options.Nodes.CachedReader = stale.clientOf(b.options.Client), stale
			b.restart()
			b.clock.Step(10 * time.Minute)
			tc.change(b, machines[0])
			b.pass()
			b.wantMarked()
		})
	}
}

// Rule: remediation-annotations.
func TestMarksFollowAnnotations(t *testing.T) {
	b := newBench(t)
	machines := b.machines(5)
	b.silence(machines[0], machines[1])
	b.annotate(machines[0], v1beta1.AnnotationSkipRemediation, "")
	b.annotate(machines[2], v1beta1.AnnotationRemediate, "")
	b.advance(10 * time.Minute)
	b.wantMarked(machines[1], machines[2])
	if got := b.mark(machines[2]); got.Reason != v1beta1.ReasonRemediateAnnotation {
		t.Errorf("the mark is %+v", got)
	}
	// The annotation skip-remediation on one machine removes its mark. The other machine is paused, so its mark stays.
	b.annotate(machines[1], v1beta1.AnnotationSkipRemediation, "")
	b.annotate(machines[2], v1beta1.AnnotationPaused, "")
	b.annotate(machines[2], v1beta1.AnnotationRemediate, nil)
	b.pass()
	b.wantMarked(machines[2])
	b.annotate(machines[2], v1beta1.AnnotationPaused, nil)
	b.pass()
	b.wantMarked()
	b.wantNoWrites()
}

// Rule: remediation-by-strategy.
func TestRemediationTypes(t *testing.T) {
	for kind, reason := range map[v1beta1.RemediationType]string{
		v1beta1.RemediationReplace:  v1beta1.ReasonMachineHealthCheck,
		v1beta1.RemediationExternal: v1beta1.ReasonExternalRemediation, v1beta1.RemediationNone: "",
	} {
		t.Run(string(kind), func(t *testing.T) {
			b := newBench(t)
			c := b.check(func(c *v1beta1.MachineHealthCheck) { c.Spec.Remediation.Type = kind })
			machines := b.machines(5)
			b.silence(machines[0])
			b.advance(5 * time.Minute)
			b.wantCheck(c, v1beta1.ReasonRemediationAllowed, "", 5, 4, 1)
			switch mark := b.mark(machines[0]); {
			case reason == "" && mark != nil, reason != "" && (mark == nil || mark.Reason != reason ||
				!strings.Contains(mark.Message, "MachineHealthCheck workers")):
				t.Errorf("the mark is %+v, want %q", mark, reason)
			}
			b.wantNoWrites()
		})
	}
}

func (b *bench) annotate(m *v1beta1.Machine, key string, value any) {
	b.Helper()
	text := "null"
	if s, ok := value.(string); ok {
		text = `"` + s + `"`
	}
	b.must(b.c.Patch(b.ctx(), m.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+
		key+`":`+text+`}}}`))))
}

// A running kubelet does not create its Node again.
//
// Rule: deleted-node-replaced-at-once.
func TestMachineWithDeletedNodeIsMarkedAtOnce(t *testing.T) {
	b := newBench(t)
	machines := b.machines(3)
	b.must(b.c.Delete(b.ctx(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: machines[0].Status.NodeRef.Name}}))
	is := b.read(machines[0])
	b.condition(is, v1beta1.ConditionRegistered, false, v1beta1.ReasonNodeGone)
	b.must(b.c.Status().Update(b.ctx(), is))
	b.advance(0)
	b.wantMarked(machines[0])
}
