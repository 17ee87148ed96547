package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/validation"
	"machinist.dev/machinist/internal/platform/wording"
)

const (
	// remediationPoll is how often remediations are read while there are any. Remediations take minutes, so a watch of
	// kinds that may not be installed would gain little.
	remediationPoll = 10 * time.Second
	// remediationSettle is how long remediations are read after the start of the process, and after the last one is
	// gone. The API server may carry out a request long after its client has given up.
	remediationSettle = 2 * time.Minute
)

// remediations are the remediations that a pass has read.
type remediations struct {
	isRead bool
	// isIncomplete means that a list failed for a reason that passes without the help of an administrator.
	isIncomplete bool
	byMachine    map[types.UID][]Remediation
	// problems explain why a kind could not be read.
	problems map[schema.GroupKind]ConditionReason
	// ofCheck maps the UID of a check to the problem with its template. If there is no problem, the reason is empty.
	ofCheck   map[types.UID]ConditionReason
	templates map[types.UID]*unstructured.Unstructured
}

// readRemediations reads the remediations of all machines and the templates of all checks, if there may be any. Live
// reads do not depend on the installation of a kind, in contrast to a cache.
func (p *pass) readRemediations(ctx context.Context, groups []group) error {
	p.remediations = remediations{byMachine: map[types.UID][]Remediation{},
		problems: map[schema.GroupKind]ConditionReason{}, ofCheck: map[types.UID]ConditionReason{},
		templates: map[types.UID]*unstructured.Unstructured{}}
	var errs []error
	if p.Remediators != nil && len(p.Remediators.Kinds) > 0 && p.remediationsDue(groups) {
		p.remediations.isRead = true
		for _, kind := range p.Remediators.Kinds {
			errs = append(errs, p.listRemediations(ctx, kind))
		}
	}
	if p.remediations.isRead && !p.remediations.isIncomplete {
		p.state.remediationSignals = nil
		for _, all := range p.remediations.byMachine {
			for _, r := range all {
				p.state.remediationSignals = append(p.state.remediationSignals, r.signal())
			}
		}
	}
	for _, s := range p.state.remediationSignals {
		p.state.seen.firstObserved(s, p.now)
	}
	followed := map[types.UID]bool{}
	for _, g := range groups {
		if g.policy.External == nil {
			continue
		}
		errs = append(errs, p.checkTemplate(ctx, g))
		kind := g.policy.External.Template.RemediationKind().GroupKind()
		_, unreadable := p.remediations.problems[kind]
		for i := range g.subjects {
			s := &g.subjects[i]
			s.FollowsTemplate = !followed[s.Machine.UID]
			followed[s.Machine.UID] = true
			s.RemediationUnknown = !p.remediations.isRead || p.remediations.isIncomplete || unreadable ||
				!p.Remediators.permits(kind)
			for _, r := range p.remediations.byMachine[s.Machine.UID] {
				if r.comesFrom(g.policy.External.Template) {
					s.Remediation = &r
				}
			}
		}
	}
	return errors.Join(errs...)
}

// remediationsDue reports whether the remediations must be read in this pass.
func (p *pass) remediationsDue(groups []group) bool {
	if p.state.remediationsUntil.IsZero() {
		p.state.remediationsUntil = p.now.Add(remediationSettle)
	}
	if p.now.Before(p.state.remediationsUntil) || len(p.state.remediationSignals) > 0 {
		return true
	}
	for _, g := range groups {
		if g.policy.External == nil {
			continue
		}
		c := meta.FindStatusCondition(g.check.Status.Conditions, v1beta1.ConditionRemediationTemplateReady)
		if c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != g.check.Generation {
			return true
		}
		for _, s := range g.subjects {
			if meta.IsStatusConditionTrue(s.Machine.Status.Conditions, v1beta1.ConditionRemediationRequested) {
				return true
			}
		}
	}
	return false
}

func (p *pass) listRemediations(ctx context.Context, kind schema.GroupKind) error {
	mapping, err := p.Remediators.Client.RESTMapper().RESTMapping(kind)
	list := &unstructured.UnstructuredList{}
	if err == nil {
		list.SetGroupVersionKind(mapping.GroupVersionKind.GroupVersion().WithKind(kind.Kind + "List"))
		err = p.Remediators.Client.List(ctx, list, client.HasLabels{v1beta1.RemediationLabelMachineUID})
	}
	if err != nil {
		if apierrors.IsNotFound(err) {
			err = &meta.NoKindMatchError{GroupKind: kind} // The kind was removed a moment ago.
		}
		problem, lasting := problemOf(err, "list", kind.String())
		if lasting {
			p.remediations.problems[kind] = problem
			return nil
		}
		p.remediations.isIncomplete = true
		return fmt.Errorf("list remediations of kind %s: %w", kind, err)
	}
	for i := range list.Items {
		if r, ok := ParseRemediation(&list.Items[i]); ok && p.Remediators.owns(r) {
			p.remediations.byMachine[r.MachineUID] = append(p.remediations.byMachine[r.MachineUID], r)
		}
	}
	return nil
}

// checkTemplate reads the template of a check and records problems for its condition.
func (p *pass) checkTemplate(ctx context.Context, g group) error {
	t := g.policy.External.Template
	kind, what := t.RemediationKind().GroupKind(), fmt.Sprintf("%s %s/%s", t.Kind, t.Namespace, t.Name)
	problem, unreadable := p.remediations.problems[kind]
	switch {
	case p.Nodes == nil:
		problem = ConditionReason{v1beta1.ReasonNoTargetCluster,
			"The manager has no target cluster, so no remediations are created: remove spec.remediation.templateRef."}
	case !p.Remediators.permits(kind):
		problem = ConditionReason{v1beta1.ReasonKindNotPermitted, validation.RemediationNotPermitted(kind)}
	case !p.remediations.isRead:
		return nil
	case !unreadable:
		template := &unstructured.Unstructured{}
		template.SetGroupVersionKind(schema.FromAPIVersionAndKind(t.APIVersion, t.Kind))
		err := p.Remediators.Client.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: t.Name}, template)
		var lasting bool
		if problem, lasting = problemOf(err, "get", what); err != nil && !lasting {
			return fmt.Errorf("read the remediation template %s: %w", what, err)
		}
		if err == nil {
			p.remediations.templates[g.check.UID] = template
			if _, found, err := unstructured.NestedMap(template.Object, "spec", "template", "spec"); !found || err != nil {
				problem = ConditionReason{v1beta1.ReasonTemplateInvalid,
					what + " has no spec.template.spec: add it to the template."}
			}
		}
	}
	p.remediations.ofCheck[g.check.UID] = problem
	return nil
}

// problemOf returns the reason and the message of the condition for an error that lasts until an administrator fixes
// its cause. It returns false for other errors, and if there is no error.
func problemOf(err error, verb, what string) (ConditionReason, bool) {
	switch {
	case err == nil:
		return ConditionReason{}, false
	case meta.IsNoMatchError(err):
		return ConditionReason{v1beta1.ReasonKindNotInstalled,
			fmt.Sprintf("Cannot %s %s: the target cluster does not have this kind. Install the operator, or correct spec.remediation.templateRef.",
				verb, what)}, true
	case apierrors.IsForbidden(err):
		return ConditionReason{v1beta1.ReasonRemediationForbidden,
			fmt.Sprintf("Cannot %s %s: %s. Add the kind to remediationKinds of the chart machinist in the target cluster.",
				verb, what, err)}, true
	case apierrors.IsNotFound(err):
		return ConditionReason{v1beta1.ReasonTemplateNotFound,
			fmt.Sprintf("Cannot %s %s: it does not exist in the target cluster. Create the template, or correct spec.remediation.templateRef.",
				verb, what)}, true
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return ConditionReason{v1beta1.ReasonTemplateInvalid, fmt.Sprintf("Cannot %s %s: %s. Correct the template.", verb,
			what,
			err)}, true
	}
	return ConditionReason{}, false
}

// setTemplateCondition sets the condition RemediationTemplateReady of a check with a template, if its state is
// known.
func (p *pass) setTemplateCondition(g group, status *v1beta1.MachineHealthCheckStatus) {
	problem, known := p.remediations.ofCheck[g.check.UID]
	switch {
	case g.policy.External == nil:
		meta.RemoveStatusCondition(&status.Conditions, v1beta1.ConditionRemediationTemplateReady)
		return
	case !known:
		return
	}
	c := metav1.Condition{Type: v1beta1.ConditionRemediationTemplateReady, Status: metav1.ConditionTrue,
		Reason: v1beta1.ReasonTemplateReady, ObservedGeneration: g.check.Generation,
		LastTransitionTime: metav1.NewTime(p.now)}
	if problem.Reason != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, problem.Reason, wording.Truncate(problem.Message,
			maxMessage)
	}
	meta.SetStatusCondition(&status.Conditions, c)
}
