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

// fieldManager owns the condition RemediationRequested. The provider owns the rest of the status.
const fieldManager = "machinist-healthcheck"

// maxMessage is the API's limit for a message in a status.
const maxMessage = 4096

type desiredByPolicy struct {
	DesiredCondition
	policy Policy
}

// merge adds the conditions of one policy. A user's request takes precedence over a hold, and a hold over a mark.
func merge(all map[types.UID]desiredByPolicy, p Policy, desired []DesiredCondition) {
	rank := func(w DesiredCondition) int {
		switch {
		case w.IsForced:
			return 2
		case w.PreventsReplacement:
			return 1
		}
		return 0
	}
	for _, w := range desired {
		uid := w.Subject.Machine.UID
		if before, ok := all[uid]; !ok || rank(w) > rank(before.DesiredCondition) {
			all[uid] = desiredByPolicy{w, p}
		}
	}
}

func (p *pass) updateMarks(ctx context.Context, desired map[types.UID]desiredByPolicy, s Situation) error {
	var errs []error
	for _, subject := range p.subjects {
		m := subject.Machine
		c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
		if _, wanted := desired[m.UID]; wanted || c == nil || readOnly(m) {
			continue
		}
		if machinestate.HasFailed(m) && c.Status == metav1.ConditionTrue && evaluable(m) {
			continue // The machine failed after it was marked, and is replaced with or without the mark.
		}
		errs = append(errs, p.withdraw(ctx, m))
	}
	pending := slices.SortedFunc(maps.Values(desired), func(a, b desiredByPolicy) int {
		x, y := a.Subject.Machine, b.Subject.Machine
		return cmp.Or(y.CreationTimestamp.Compare(x.CreationTimestamp.Time), cmp.Compare(x.Namespace, y.Namespace),
			cmp.Compare(x.Name, y.Name))
	})
	done := 0
	for _, w := range pending {
		if hasCondition(w.DesiredCondition, w.Subject.Machine) {
			continue
		}
		if done++; done > maxMarks {
			p.requeueIn(time.Millisecond)
			break
		}
		errs = append(errs, p.applyDesired(ctx, w, s))
	}
	return errors.Join(errs...)
}

// hasCondition reports whether the machine has the desired condition, apart from details of the message.
func hasCondition(w DesiredCondition, m *v1beta1.Machine) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
	return c != nil && (c.Status == metav1.ConditionTrue) == w.RequestsReplacement && c.Reason == w.Reason.Reason
}

// applyDesired sets the condition if a live read still requires it.
func (p *pass) applyDesired(ctx context.Context, w desiredByPolicy, s Situation) error {
	m := &v1beta1.Machine{}
	if err := p.LiveClient.Get(ctx, client.ObjectKeyFromObject(w.Subject.Machine), m); err != nil {
		return client.IgnoreNotFound(err)
	}
	if m.UID != w.Subject.Machine.UID || !evaluable(m) || hasCondition(w.DesiredCondition, m) {
		return nil
	}
	switch {
	case w.IsForced && !has(m.Annotations, v1beta1.AnnotationRemediate):
		return nil
	case w.RequestsReplacement && !w.IsForced:
		node, err := p.liveNode(ctx, m)
		if err != nil {
			return err
		}
		v := Evaluate(w.policy, m, node, s.Now, s.Clocks.ForDomains(w.Subject.domains()...))
		if v.Health != HealthUnhealthy {
			p.requeueIn(max(v.RecheckAfter, queueing.ConflictDelay)) // The cache is stale.
			return nil
		}
		why, ok := w.policy.remediation(m)
		if w.policy.Reboots != nil && (!ok || why.Reason != w.Reason.Reason) {
			p.requeueIn(queueing.ConflictDelay) // A reboot has begun or ended.
			return nil
		}
	}
	status := metav1.ConditionFalse
	if w.RequestsReplacement {
		status = metav1.ConditionTrue
	}
	before := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
	at := metav1.NewTime(p.Clock.Now()) // A suspended process may have an old p.now.
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
	if w.RequestsReplacement {
		result = resultRequested
		p.event(m, corev1.EventTypeWarning, reasonRequested, message)
	}
	p.Metrics.count(w.Reason.Reason, result)
	return nil
}

func (p *pass) liveNode(ctx context.Context, m *v1beta1.Machine) (*corev1.Node, error) {
	if p.Nodes == nil || m.Status.NodeRef == nil {
		return nil, nil
	}
	node := &corev1.Node{}
	err := p.Nodes.LiveReader.Get(ctx, client.ObjectKey{Name: m.Status.NodeRef.Name}, node)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read node %s: %w", m.Status.NodeRef.Name, err)
	}
	return node, nil
}

func (p *pass) withdraw(ctx context.Context, cached *v1beta1.Machine) error {
	m := &v1beta1.Machine{}
	if err := p.LiveClient.Get(ctx, client.ObjectKeyFromObject(cached), m); err != nil {
		return client.IgnoreNotFound(err)
	}
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
	if c == nil || m.UID != cached.UID || readOnly(m) {
		return nil // The cache is stale.
	}
	left, err := p.apply(ctx, m, "")
	if err == nil && meta.FindStatusCondition(left, v1beta1.ConditionRemediationRequested) != nil {
		// Another field manager may own the condition too, for example after a restore from a backup. Even then, the
		// condition must not stay on a healthy machine.
		changed := m.DeepCopy()
		meta.RemoveStatusCondition(&changed.Status.Conditions, v1beta1.ConditionRemediationRequested)
		err = p.LiveClient.Status().Patch(ctx, changed, client.MergeFromWithOptions(m, client.MergeFromWithOptimisticLock{}),
			client.FieldOwner(fieldManager))
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("remove %s of machine %s: %w", v1beta1.ConditionRemediationRequested,
			client.ObjectKeyFromObject(m), err)
	}
	if c.Status == metav1.ConditionTrue {
		p.event(m, corev1.EventTypeNormal, reasonWithdrawn, "Remediation of the machine is no longer requested.")
		p.Metrics.count(c.Reason, resultWithdrawn)
	}
	return nil
}

// apply sets the conditions of this field manager and returns the conditions of all managers. The request contains the
// UID, so that the API server does not create a deleted machine again. If version is not empty, the request fails if
// the machine has another resource version.
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
	err := p.LiveClient.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.ForceOwnership,
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

func (p *pass) recordRetries(ctx context.Context, groups []group) error {
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
	p.state.predecessors = map[types.UID][]Predecessor{}
	if !slices.ContainsFunc(groups, func(g group) bool { return g.policy.MaxRetries != nil }) {
		return nil
	}
	var errs []error
	for set := range known {
		if _, found := p.sets[set]; !found {
			p.sets[set] = nil // All machines of the set are gone, and their replacements are not in the cache yet.
		}
	}
	for set, machines := range p.sets {
		// Skip sets that no policy with MaxRetries selects. If all machines of a set are being deleted, the policy of
		// the set is unknown, and the set is not skipped.
		if !counting[set] && slices.ContainsFunc(machines, evaluable) {
			continue
		}
		found, left := MatchReplacements(machines, known[set], p.now)
		for _, s := range found {
			if err := p.recordRetry(ctx, s); err != nil {
				errs, left = append(errs, err), append(left, s.Predecessor)
			}
		}
		if len(left) > 0 {
			p.state.predecessors[set] = left
		}
	}
	return errors.Join(errs...)
}

func (p *pass) recordRetry(ctx context.Context, s Replacement) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": s.Machine.UID, "annotations": map[string]any{v1beta1.AnnotationRemediationRetry: s.Predecessor.annotation()},
	}})
	if err != nil {
		return err
	}
	target := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: s.Machine.Namespace, Name: s.Machine.Name}}
	if err := p.LiveClient.Patch(ctx, target, client.RawPatch(types.MergePatchType,
		patch)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("record which machine %s replaces: %w", client.ObjectKeyFromObject(target), err)
	}
	return nil
}

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
