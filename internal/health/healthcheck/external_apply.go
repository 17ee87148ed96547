package healthcheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/queueing"
)

// updateRemediations creates, changes and deletes remediations in the target cluster. Each action is decided on
// cached objects first, and again on live ones.
func (p *pass) updateRemediations(ctx context.Context, groups []group, desired map[types.UID]desiredByPolicy,
	s Situation) error {
	if !p.remediations.isRead {
		return nil
	}
	facts := map[types.UID]RemediationFacts{}
	for uid, all := range p.remediations.byMachine {
		facts[uid] = RemediationFacts{Remediations: all}
	}
	for _, subject := range p.subjects {
		if f, found := facts[subject.Machine.UID]; found {
			f.Subject, f.Clock = subject, s.Clocks.ForDomains(subject.domains()...)
			facts[subject.Machine.UID] = f
		}
	}
	checks := map[types.UID]*v1beta1.MachineHealthCheck{} // by Machine
	for _, g := range groups {
		for _, subject := range g.subjects {
			uid := subject.Machine.UID
			wanted, isDesired := desired[uid]
			f, found := facts[uid]
			isWanted := isDesired && wanted.Reason.Reason == v1beta1.ReasonExternalRemediation &&
				!subject.RemediationUnknown && !p.remediations.isIncomplete
			if !subject.FollowsTemplate || !found && !isWanted {
				continue
			}
			f.Subject, f.Policy, f.IsWanted = subject, g.policy, isWanted
			f.Clock = s.Clocks.ForDomains(subject.domains()...)
			facts[uid], checks[uid] = f, g.check
		}
	}
	var errs []error
	for _, uid := range slices.Sorted(maps.Keys(facts)) {
		f := facts[uid]
		f.Now = p.now
		for _, a := range PlanRemediation(f) {
			errs = append(errs, p.applyRemediation(ctx, uid, a, f, checks[uid], s))
		}
	}
	isUnsolved := func(problem ConditionReason) bool { return problem.Reason != "" }
	if len(facts) > 0 || p.remediations.isIncomplete || len(p.remediations.problems) > 0 ||
		slices.ContainsFunc(slices.Collect(maps.Values(p.remediations.ofCheck)), isUnsolved) {
		p.state.remediationsUntil = p.now.Add(remediationSettle)
	}
	if p.now.Before(p.state.remediationsUntil) {
		p.requeueIn(remediationPoll)
	}
	return errors.Join(errs...)
}

// applyRemediation carries out an action if the same action follows from live objects.
func (p *pass) applyRemediation(ctx context.Context, uid types.UID, a RemediationAction, cached RemediationFacts,
	check *v1beta1.MachineHealthCheck, s Situation) error {
	live, err := p.liveFacts(ctx, uid, a, cached, s)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(PlanRemediation(live), func(b RemediationAction) bool {
		return b.Verb == a.Verb && b.Remediation.UID == a.Remediation.UID
	}) {
		return nil // The cache is stale. Another pass follows after remediationPoll.
	}
	switch a.Verb {
	case RemediationCreate:
		err = p.createRemediation(ctx, live, check)
	case RemediationDelete:
		err = p.deleteRemediation(ctx, live.Subject.Machine, a)
	case RemediationSetTimeout:
		err = p.setTimedOut(ctx, live.Subject.Machine, a.Remediation)
	}
	if problem, lasting := problemOf(err, string(a.Verb), live.name(a)); lasting && check != nil {
		p.remediations.ofCheck[check.UID] = problem
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w", a.Verb, live.name(a), err)
	}
	return nil
}

// name returns the kind and the name of the object of an action.
func (f RemediationFacts) name(a RemediationAction) string {
	r := a.Remediation
	if a.Verb == RemediationCreate {
		t := f.Policy.External.Template
		r = Remediation{Kind: t.RemediationKind(), Namespace: t.Namespace, Name: f.Subject.Node.Name}
	}
	return r.String()
}

// liveFacts reads the Machine, its Node and the health checks of its namespace. The remediations were read live in
// this pass, and the decision about other machines stays.
func (p *pass) liveFacts(ctx context.Context, uid types.UID, a RemediationAction, cached RemediationFacts,
	s Situation) (RemediationFacts, error) {
	f := RemediationFacts{Remediations: cached.Remediations, IsWanted: cached.IsWanted, Now: cached.Now,
		Clock: s.Clocks.ForDomains(everywhere)}
	key := client.ObjectKey{Namespace: a.Remediation.Mark.Namespace, Name: a.Remediation.Mark.Machine}
	if cached.Subject.Machine != nil {
		key, f.Clock = client.ObjectKeyFromObject(cached.Subject.Machine), cached.Clock
	}
	m := &v1beta1.Machine{}
	err := p.LiveClient.Get(ctx, key, m)
	switch {
	case apierrors.IsNotFound(err), err == nil && m.UID != uid:
		return f, nil
	case err != nil:
		return f, fmt.Errorf("read machine %s: %w", key, err)
	}
	f.Subject = Subject{Machine: m, FollowsTemplate: true}
	if f.Subject.Node, err = p.liveNode(ctx, m); err != nil || !evaluable(m) {
		return f, err
	}
	list := &v1beta1.MachineHealthCheckList{}
	if err := p.LiveClient.List(ctx, list, client.InNamespace(m.Namespace)); err != nil {
		return f, fmt.Errorf("list health checks: %w", err)
	}
	checks := inOrder(list.Items)
	for i := range checks {
		policy := PolicyOf(&checks[i])
		if selector, _ := selectorOf(&checks[i]); policy.External != nil && selector.Matches(labels.Set(m.Labels)) {
			f.Policy, f.CheckVersion = policy, checks[i].ResourceVersion
			break
		}
	}
	return f, nil
}

// createRemediation creates the remediation of a machine. Its name is that of the Node, so a second attempt cannot
// create another one, and operators that ignore the annotation with the Node's name find the Node.
func (p *pass) createRemediation(ctx context.Context, f RemediationFacts, check *v1beta1.MachineHealthCheck) error {
	m, t, template := f.Subject.Machine, f.Policy.External.Template, p.remediations.templates[check.UID]
	if cached := check.Spec.Remediation.TemplateRef; cached == nil || t != *cached ||
		f.CheckVersion != check.ResourceVersion {
		// The cache is stale. Another template was read, or more machines may be unhealthy than the cache shows.
		p.requeueIn(queueing.ConflictDelay)
		return nil
	}
	if template == nil || p.remediations.ofCheck[check.UID].Reason == v1beta1.ReasonTemplateInvalid {
		return nil // The condition of the check names the problem.
	}
	o, ok := newRemediation(template, t, m, f.Subject.Node, p.Remediators.ClusterID)
	if !ok {
		return nil
	}
	name := f.name(RemediationAction{Verb: RemediationCreate})
	existing := &unstructured.Unstructured{}
	existing.SetGroupVersionKind(o.GroupVersionKind())
	err := p.Remediators.Client.Get(ctx, client.ObjectKeyFromObject(o), existing)
	if err == nil {
		if r, ok := ParseRemediation(existing); ok && p.Remediators.owns(r) && r.MachineUID == m.UID {
			return nil // An earlier request has created the object after the remediations were listed.
		}
		p.remediations.ofCheck[check.UID] = ConditionReason{v1beta1.ReasonRemediationNameTaken, fmt.Sprintf(
			"%s belongs to another client or machine, so machine %s is not remediated. Wait until it is deleted, or delete it.",
			name, m.Name)}
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	if err := p.Remediators.Client.Create(ctx, o); err != nil {
		return err
	}
	p.event(m, corev1.EventTypeNormal, reasonCreated, fmt.Sprintf("Created %s.", name))
	return nil
}

func (p *pass) deleteRemediation(ctx context.Context, m *v1beta1.Machine, a RemediationAction) error {
	uid := a.Remediation.UID
	err := p.Remediators.Client.Delete(ctx, objectOf(a.Remediation), client.Preconditions{UID: &uid})
	if err == nil && m != nil {
		p.event(m, corev1.EventTypeNormal, reasonDeleted, fmt.Sprintf("Deleted %s: %s.", a.Remediation, a.Reason))
	}
	return client.IgnoreNotFound(err)
}

// setTimedOut tells the operator to stop. The next pass replaces or reports the machine, even if the operator does
// not react.
func (p *pass) setTimedOut(ctx context.Context, m *v1beta1.Machine, r Remediation) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": r.UID, "annotations": map[string]any{
		v1beta1.RemediationAnnotationTimedOut: p.now.UTC().Format(time.RFC3339)}}})
	if err != nil {
		return err
	}
	err = p.Remediators.Client.Patch(ctx, objectOf(r), client.RawPatch(types.MergePatchType, patch))
	if err == nil {
		p.requeueIn(queueing.ConflictDelay)
		p.event(m, corev1.EventTypeWarning, reasonTimedOut, fmt.Sprintf("%s has exceeded its timeout.", r))
	}
	return client.IgnoreNotFound(err)
}

// objectOf returns a remediation for a request that needs only its kind, name and UID.
func objectOf(r Remediation) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(r.Kind)
	o.SetNamespace(r.Namespace)
	o.SetName(r.Name)
	o.SetUID(r.UID)
	return o
}
