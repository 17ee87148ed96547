package report

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/platform/conditionlimit"
	"machinist.dev/machinist/internal/platform/validation"
	"machinist.dev/machinist/internal/platform/wording"
)

// Use holds numbers of machines for the status of a budget.
type Use struct {
	// Selected is how many machines the budget selects.
	Selected int
	// Disrupted counts the disrupted machines among the selected machines, by reason.
	Disrupted map[v1beta1.DisruptionReason]int
}

// Count returns how many machines of a namespace the budget selects, and how many of these are disrupted.
func Count(b *disruption.Budget, machines []*v1beta1.Machine) (u Use) {
	for _, m := range machines {
		if !b.Selects(m.Labels) {
			continue
		}
		u.Selected++
		if reason, is := disruption.ReasonOf(m); is {
			if u.Disrupted == nil {
				u.Disrupted = map[v1beta1.DisruptionReason]int{}
			}
			u.Disrupted[reason]++
		}
	}
	return u
}

// Total returns how many selected machines are disrupted, for any reason.
func (u Use) Total() (n int) {
	for _, ofReason := range u.Disrupted {
		n += ofReason
	}
	return n
}

// Status computes the status of a budget from the machines of its namespace. The error names the invalid fields of the
// budget.
func Status(b *v1beta1.MachineDisruptionBudget, machines []*v1beta1.Machine,
	now time.Time) (*v1beta1.MachineDisruptionBudgetStatus, error) {
	parsed, problem := disruption.Parse(b)
	use := Count(parsed, machines)
	status := b.Status.DeepCopy()
	status.ObservedGeneration = b.Generation
	status.Selected, status.Disrupted = int32(use.Selected), int32(use.Total())
	status.Allowed, status.NextChange = nil, nil
	if parsed.InForce(now) {
		allowed := int32(min(parsed.AllowedDisruptions(use.Selected), math.MaxInt32))
		status.Allowed = &allowed
	}
	if at, changes := parsed.NextChange(now); changes {
		next := metav1.NewTime(at)
		status.NextChange = &next
	}
	status.Conditions = conditionlimit.Budget.Apply(status.Conditions)
	valid := metav1.Condition{Type: v1beta1.ConditionValid, Status: metav1.ConditionTrue,
		Reason: v1beta1.ReasonBudgetUnderstood, ObservedGeneration: b.Generation, LastTransitionTime: metav1.NewTime(now)}
	if problem != nil {
		valid.Status, valid.Reason = metav1.ConditionFalse, reasonOf(problem)
		valid.Message = wording.Truncate("The budget is invalid, so it allows no disruption: "+problem.Error()+".",
			maxMessage)
	}
	meta.SetStatusCondition(&status.Conditions, valid)
	return status, problem
}

func reasonOf(problem error) string {
	first := problem
	var all utilerrors.Aggregate
	if errors.As(problem, &all) {
		first = all.Errors()[0]
	}
	var invalid *field.Error
	switch {
	case !errors.As(first, &invalid):
	case invalid.Field == validation.BudgetSelector.String():
		return v1beta1.ReasonInvalidSelector
	case invalid.Field == validation.BudgetMaxDisrupted.String():
		return v1beta1.ReasonInvalidMaxDisrupted
	}
	return v1beta1.ReasonInvalidWindow
}

// maxMessage is the schema's limit for a condition's message in bytes.
const maxMessage = 32768

// write updates the status if it changed. If only numbers of machines changed since a recent write, it does not write
// but returns how long to wait before the next attempt.
func (r *Reconciler) write(ctx context.Context, b *v1beta1.MachineDisruptionBudget,
	status *v1beta1.MachineDisruptionBudgetStatus, problem error) (wait time.Duration, err error) {
	if equality.Semantic.DeepEqual(b.Status, *status) {
		return 0, nil
	}
	key := client.ObjectKeyFromObject(b)
	if wait := r.mayWriteIn(key); wait > 0 && onlyCounts(&b.Status, status) {
		return wait, nil
	}
	changed := b.DeepCopy()
	changed.Status = *status
	err = r.Client.Status().Patch(ctx, changed, client.MergeFromWithOptions(b, client.MergeFromWithOptimisticLock{}))
	switch {
	case apierrors.IsNotFound(err):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("patch the status of the disruption budget %s: %w", key, err)
	}
	r.wrote(key)
	if problem != nil && r.Recorder != nil && differs(valid(&b.Status), valid(status)) {
		r.Recorder.Eventf(changed, nil, corev1.EventTypeWarning, valid(status).Reason, "Parse", "%s",
			valid(status).Message[:min(len(valid(status).Message), 512)])
	}
	return 0, nil
}

func onlyCounts(was, is *v1beta1.MachineDisruptionBudgetStatus) bool {
	return was.ObservedGeneration == is.ObservedGeneration && (was.Allowed == nil) == (is.Allowed == nil) &&
		was.NextChange.Equal(is.NextChange) && !differs(valid(was), valid(is))
}

func valid(status *v1beta1.MachineDisruptionBudgetStatus) *metav1.Condition {
	return meta.FindStatusCondition(status.Conditions, v1beta1.ConditionValid)
}

func differs(was, is *metav1.Condition) bool {
	return was == nil || was.Status != is.Status || was.Reason != is.Reason || was.Message != is.Message
}
