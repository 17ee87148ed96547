package healthcheck

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/queueing"
	"machinist.dev/machinist/internal/platform/wording"
)

// fieldManager owns RemediationRequested. The rest of the status is the provider's.
const fieldManager = "machinist-healthcheck"

// maxMessage is how long a message in the status may be.
const maxMessage = 4096

// wanted is a wish with the policy that has it.
type wanted struct {
	Wish
	policy Policy
}

// collect adds the wishes of one policy. Where several policies are for one machine, that a person asks comes first,
// then that one of them says it is enough, then whatever the first wants.
func collect(all map[types.UID]wanted, p Policy, wishes []Wish) {
	rank := func(w Wish) int {
		switch {
		case w.Forced:
			return 2
		case w.Restrict:
			return 1
		}
		return 0
	}
	for _, w := range wishes {
		uid := w.Subject.Machine.UID
		if before, ok := all[uid]; !ok || rank(w) > rank(before.Wish) {
			all[uid] = wanted{w, p}
		}
	}
}

// mark makes RemediationRequested what is wished.
func (p *pass) mark(ctx context.Context, wishes map[types.UID]wanted, s Situation) error {
	var errs []error
	for _, subject := range p.subjects {
		m := subject.Machine
		c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
		if _, wish := wishes[m.UID]; wish || c == nil || leftAlone(m) {
			continue
		}
		if machinestate.Failed(m) && c.Status == metav1.ConditionTrue && judged(m) {
			continue // It failed after it was marked, and will be replaced in any case.
		}
		errs = append(errs, p.withdraw(ctx, m))
	}
	pending := slices.SortedFunc(maps.Values(wishes), func(a, b wanted) int {
		x, y := a.Subject.Machine, b.Subject.Machine
		return cmp.Or(y.CreationTimestamp.Compare(x.CreationTimestamp.Time), cmp.Compare(x.Namespace, y.Namespace),
			cmp.Compare(x.Name, y.Name))
	})
	done := 0
	for _, w := range pending {
		if fulfilled(w.Wish, w.Subject.Machine) {
			continue
		}
		if done++; done > maxMarks {
			p.requeueIn(time.Millisecond)
			break
		}
		errs = append(errs, p.fulfil(ctx, w, s))
	}
	return errors.Join(errs...)
}

// fulfilled reports whether the condition is as wished. What its message says in detail may have changed since.
func fulfilled(w Wish, m *v1beta1.Machine) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
	return c != nil && (c.Status == metav1.ConditionTrue) == w.Mark && c.Reason == w.Reason.Reason
}

// fulfil gives a machine the condition, if it deserves it when it is checked where it is written.
func (p *pass) fulfil(ctx context.Context, w wanted, s Situation) error {
	m := &v1beta1.Machine{}
	if err := p.Live.Get(ctx, client.ObjectKeyFromObject(w.Subject.Machine), m); err != nil {
		return client.IgnoreNotFound(err)
	}
	if m.UID != w.Subject.Machine.UID || !judged(m) || fulfilled(w.Wish, m) {
		return nil
	}
	switch {
	case w.Forced && !has(m.Annotations, v1beta1.AnnotationRemediate):
		return nil
	case w.Mark && !w.Forced:
		node, err := p.liveNode(ctx, m)
		if err != nil {
			return err
		}
		v := Evaluate(w.policy, m, node, s.Now, s.Clocks.In(w.Subject.domains()...))
		if v.Health != Unhealthy {
			p.requeueIn(max(v.RecheckAfter, queueing.ConflictDelay)) // The cache is late.
			return nil
		}
	}
	status := metav1.ConditionFalse
	if w.Mark {
		status = metav1.ConditionTrue
	}
	before := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
	at := metav1.NewTime(p.Clock.Now()) // Later than p.now where the process was suspended in between.
	if before != nil && before.Status == status && before.Reason == w.Reason.Reason {
		at = before.LastTransitionTime
	}
	message := wording.Truncate(w.Reason.Message, maxMessage)
	_, err := p.apply(ctx, m, m.ResourceVersion, map[string]any{
		"type": v1beta1.ConditionRemediationRequested, "status": string(status), "reason": w.Reason.Reason,
		"message":            message,
		"observedGeneration": m.Generation, "lastTransitionTime": at.UTC().Format(time.RFC3339),
	})
	if err != nil {
		return fmt.Errorf("set %s of machine %s: %w", v1beta1.ConditionRemediationRequested,
			client.ObjectKeyFromObject(m), err)
	}
	result := resultExhausted
	if w.Mark {
		result = resultRequested
		p.event(m, corev1.EventTypeWarning, reasonRequested, message)
	}
	p.Metrics.count(w.Reason.Reason, result)
	return nil
}

// liveNode reads the Node of a machine where it is; nil if it is gone.
func (p *pass) liveNode(ctx context.Context, m *v1beta1.Machine) (*corev1.Node, error) {
	if p.Nodes == nil || m.Status.NodeRef == nil {
		return nil, nil
	}
	node := &corev1.Node{}
	err := p.Nodes.Live.Get(ctx, client.ObjectKey{Name: m.Status.NodeRef.Name}, node)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read node %s: %w", m.Status.NodeRef.Name, err)
	}
	return node, nil
}

// withdraw takes the condition back.
func (p *pass) withdraw(ctx context.Context, cached *v1beta1.Machine) error {
	m := &v1beta1.Machine{}
	if err := p.Live.Get(ctx, client.ObjectKeyFromObject(cached), m); err != nil {
		return client.IgnoreNotFound(err)
	}
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
	if c == nil || m.UID != cached.UID || leftAlone(m) {
		return nil // The cache is late.
	}
	left, err := p.apply(ctx, m, "")
	if err == nil && meta.FindStatusCondition(left, v1beta1.ConditionRemediationRequested) != nil {
		// Somebody else owns it too, as after a restore from a backup. On a healthy machine it would be its end.
		changed := m.DeepCopy()
		meta.RemoveStatusCondition(&changed.Status.Conditions, v1beta1.ConditionRemediationRequested)
		err = p.Live.Status().Patch(ctx, changed, client.MergeFromWithOptions(m, client.MergeFromWithOptimisticLock{}),
			client.FieldOwner(fieldManager))
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("take %s of machine %s back: %w", v1beta1.ConditionRemediationRequested,
			client.ObjectKeyFromObject(m), err)
	}
	if c.Status == metav1.ConditionTrue {
		p.event(m, corev1.EventTypeNormal, reasonWithdrawn, "The machine is not to be remediated any more.")
		p.Metrics.count(c.Reason, resultWithdrawn)
	}
	return nil
}

// apply makes conditions all that this field manager has in the machine's status, and returns those of all managers.
// The UID keeps it from making the machine anew, the version, if any, from acting on what has changed.
func (p *pass) apply(ctx context.Context, m *v1beta1.Machine, version string,
	conditions ...any) ([]metav1.Condition, error) {
	metadata := map[string]any{"namespace": m.Namespace, "name": m.Name, "uid": string(m.UID)}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1beta1.GroupVersion.String(), "kind": "Machine", "metadata": metadata,
	}}
	if len(conditions) > 0 {
		object.Object["status"] = map[string]any{"conditions": conditions}
	}
	err := p.Live.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.ForceOwnership,
		client.FieldOwner(fieldManager))
	if err != nil {
		return nil, err
	}
	after := &v1beta1.Machine{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, after); err != nil {
		return nil, err
	}
	return after.Status.Conditions, nil
}

// recordRows writes down who replaces those that, in the sets of machines whose policy counts that.
func (p *pass) recordRows(ctx context.Context, groups []group) error {
	counting := map[types.UID]bool{}
	for _, g := range groups {
		if g.policy.MaxRetries == nil {
			continue
		}
		for _, s := range g.subjects {
			if owner := metav1.GetControllerOf(s.Machine); owner != nil {
				counting[owner.UID] = true
			}
		}
	}
	known := p.state.takeGone()
	p.state.vacancies = map[types.UID][]Vacancy{}
	if !slices.ContainsFunc(groups, func(g group) bool { return g.policy.MaxRetries != nil }) {
		return nil
	}
	var errs []error
	for set := range known {
		if _, found := p.sets[set]; !found {
			p.sets[set] = nil // All of its machines are gone, and their replacements are not in the cache yet.
		}
	}
	for set, machines := range p.sets {
		// A set all of whose machines are being replaced has none that is judged.
		if !counting[set] && slices.ContainsFunc(machines, judged) {
			continue
		}
		found, left := Succeed(machines, known[set], p.now)
		for _, s := range found {
			if err := p.recordRow(ctx, s); err != nil {
				errs, left = append(errs, err), append(left, s.Vacancy)
			}
		}
		if len(left) > 0 {
			p.state.vacancies[set] = left
		}
	}
	return errors.Join(errs...)
}

func (p *pass) recordRow(ctx context.Context, s Succession) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": s.Machine.UID, "annotations": map[string]any{v1beta1.AnnotationRemediationRetry: s.Vacancy.annotation()},
	}})
	if err != nil {
		return err
	}
	target := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: s.Machine.Namespace, Name: s.Machine.Name}}
	if err := p.Live.Patch(ctx, target, client.RawPatch(types.MergePatchType, patch)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("record what machine %s replaces: %w", client.ObjectKeyFromObject(target), err)
	}
	return nil
}

// onlyConflicts reports whether all that went wrong is that somebody else wrote first.
func onlyConflicts(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			if !onlyConflicts(e) {
				return false
			}
		}
		return true
	}
	return apierrors.IsConflict(err)
}
