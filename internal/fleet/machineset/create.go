package machineset

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/freshness"
	"machinist.dev/machinist/internal/platform/wording"
)

const (
	minCreationBackoff = time.Second
	maxCreationBackoff = 5 * time.Minute

	nameAttempts = 5
)

// create creates the plan's machines, at most one batch. A batch is small at first and doubles after each success. So
// if a quota or webhook rejects new machines, only a few requests fail.
func (p *pass) create(ctx context.Context, plan Plan) (again bool) {
	n := plan.Create
	if p.batch == 0 {
		p.batch = max(1, p.known.batch)
	}
	n = min(n, p.batch)
	if n == 0 {
		return true
	}
	prototype := templateOf(p.state.Set).machine(p.provider(ctx))
	results := make([]createResult, n)
	p.ForEach(n, func(i int) {
		m := prototype.DeepCopy()
		if len(plan.Places) > 0 {
			setPlace(m, plan.Places[i])
		}
		results[i] = p.createOne(ctx, m)
	})

	var names []string
	var failure error
	for _, result := range results {
		if result.machine != nil {
			names = append(names, result.machine.Name)
		}
		if result.machine != nil && !result.existed {
			p.done.created.add(result.machine)
		}
		// If a machine already has the chosen name, the cache may lack that machine.
		if result.existed || freshness.Ambiguous(result.err) {
			p.known.cache.Invalidate()
		}
		failure = firstError(failure, result.err)
	}
	in, _ := p.shared.replacementsOf(p.state.Set.UID)
	// Replacements that count against the budget come first, so that the budget is never exceeded.
	unassigned := in.unassigned()
	p.shared.keepReplacements(p.state.Set.UID, in.Assign(names))
	p.known.lostReplacements = p.known.lostReplacements.Assign(names[min(unassigned, len(names)):])

	if failure == nil {
		p.batch = min(2*p.batch, maxBatch)
		p.known.batch = min(p.batch, confirmedBatch)
		p.known.creation, p.known.creationFailure = backoff{}, ConditionReason{}
		return true
	}
	p.known.batch = 0
	if apierrors.HasStatusCause(failure, corev1.NamespaceTerminatingCause) {
		return false // Nothing can be created or recorded in this namespace any more.
	}
	logf.FromContext(ctx).Info("Failed to create machines", "requested", n, "created", len(names), "cause",
		failure.Error())
	p.failure = ConditionReason{v1beta1.ReasonMachineCreateFailed, wording.Shorten(failure.Error())}
	p.known.creationFailure = p.failure
	// The backoff starts with the response, because a request may take longer than the backoff.
	now := p.Clock.Now()
	p.known.creation.fail(now, minCreationBackoff, maxCreationBackoff)
	p.requeueIn(p.known.creation.until.Sub(now))
	return false
}

type createResult struct {
	machine *v1beta1.Machine
	existed bool
	err     error
}

// createOne creates one machine under a name that it chooses itself. After an error, this name shows whether the
// machine was created.
func (p *pass) createOne(ctx context.Context, prototype *v1beta1.Machine) createResult {
	var err error
	for range nameAttempts {
		m, began := prototype.DeepCopy(), p.traceBegins()
		m.Name = p.NewName(p.state.Set.Name)
		err = p.Client.Create(ctx, m)
		if err == nil {
			p.traceCreated(m, began)
			return createResult{machine: m}
		}
		if !apierrors.IsAlreadyExists(err) {
			break
		}
		existing := &v1beta1.Machine{}
		switch getErr := p.LiveReader.Get(ctx, client.ObjectKeyFromObject(m), existing); {
		case client.IgnoreNotFound(getErr) != nil:
			return createResult{err: fmt.Errorf("get machine %s, which exists already: %w", m.Name, getErr)}
		case getErr == nil && metav1.IsControlledBy(existing, p.state.Set):
			return createResult{machine: existing, existed: true}
		}
	}
	return createResult{err: fmt.Errorf("create machine: %w", err)}
}

// provider returns the provider of the set's machines, or "" if it is not known yet. In that case, the provider process
// adds the label later.
func (p *pass) provider(ctx context.Context) string {
	spec, name := &p.state.Set.Spec.Template.Spec, ""
	switch classes := p.state.Set.Spec.Placement.ClassNames(); {
	case len(classes) > 0:
		name = classes[0] // All classes of a placement have one provider.
	case spec.ClassRef == nil:
		return spec.Provider
	default:
		name = spec.ClassRef.Name
	}
	class := &v1beta1.MachineClass{}
	if err := p.Client.Get(ctx, types.NamespacedName{Namespace: p.key.Namespace, Name: name}, class); err != nil {
		logf.FromContext(ctx).V(1).Info("Provider of the class is not known yet", "class", name, "cause", err.Error())
		return ""
	}
	return class.Spec.Provider
}
