package healthcheck

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/validation"
)

// Reads here do not wait for this process's own writes, because with many machines a write is always in progress. To
// prevent duplicate writes, the process reads each machine live before it requests the remediation, and does not repeat
// an existing request.

func (p *pass) readChecks(ctx context.Context) error {
	list := &v1beta1.MachineHealthCheckList{}
	if err := p.Client.List(ctx, list, client.UnsafeDisableDeepCopy, client.DisableReadYourWritesConsistency); err != nil {
		return fmt.Errorf("list health checks: %w", err)
	}
	p.checks = inOrder(list.Items)
	uids := make(map[types.UID]bool, len(p.checks))
	for i := range p.checks {
		uids[p.checks[i].UID] = true
	}
	p.state.forgetOld(p.now, uids)
	return nil
}

// inOrder returns the checks that are not being deleted, sorted by name.
func inOrder(checks []v1beta1.MachineHealthCheck) []v1beta1.MachineHealthCheck {
	checks = slices.DeleteFunc(checks, func(c v1beta1.MachineHealthCheck) bool { return !c.DeletionTimestamp.IsZero() })
	slices.SortFunc(checks, func(a, b v1beta1.MachineHealthCheck) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return checks
}

func (p *pass) readMachines(ctx context.Context) error {
	machines, err := index.ListShared[v1beta1.Machine](ctx, p.Client, &v1beta1.MachineList{},
		client.DisableReadYourWritesConsistency)
	if err != nil {
		return fmt.Errorf("list machines: %w", err)
	}
	p.state.setMachineCount(len(machines))
	p.subjects = make([]Subject, 0, len(machines))
	p.sets = map[types.UID][]*v1beta1.Machine{}
	for _, m := range machines {
		s := Subject{Machine: m}
		if s.Node, err = p.cachedNode(ctx, m); err != nil {
			return err
		}
		s.Domain = domainOf(m, s.Node)
		if retries, _, ok := retriesOf(m); ok {
			s.Retries, s.RetriesResetIn = retries, untilRetriesReset(m, p.now)
		}
		p.subjects = append(p.subjects, s)
		if owner := metav1.GetControllerOfNoCopy(m); owner != nil {
			p.sets[owner.UID] = append(p.sets[owner.UID], m)
		}
	}
	return nil
}

// cachedNode returns the machine's Node, or nil. The cache shares the object, so it must not be changed. Nodes are read
// by name, because a cluster may have many Nodes without a machine.
func (p *pass) cachedNode(ctx context.Context, m *v1beta1.Machine) (*corev1.Node, error) {
	if p.Nodes == nil || m.Status.NodeRef == nil {
		return nil, nil
	}
	node := &corev1.Node{}
	err := p.Nodes.CachedReader.Get(ctx, client.ObjectKey{Name: m.Status.NodeRef.Name}, node, client.UnsafeDisableDeepCopy,
		client.DisableReadYourWritesConsistency)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read node %s from the cache: %w", m.Status.NodeRef.Name, err)
	default:
		return node, nil
	}
}

func (p *pass) trackMeltdown(ctx context.Context) Meltdown {
	d := DetectMeltdown(p.subjects, p.MeltdownThreshold)
	p.Metrics.setMeltdown(d)
	began, ended := p.state.trackMeltdown(p.now, d)
	log := logf.FromContext(ctx)
	if len(began) > 0 {
		log.Info("Meltdown began: remediation stops", "cause", d.Describe(func(string) bool { return true }), "domains", began)
	}
	if len(ended) > 0 {
		log.Info("Meltdown ended: health timeouts start again", "domains", ended)
	}
	return d
}

type group struct {
	policy   Policy
	subjects []Subject
	// check is nil for the built-in policy.
	check     *v1beta1.MachineHealthCheck
	namespace string
	unusable  ConditionReason
}

// groups returns one group for each check, and one for each namespace with unselected machines or a restriction.
func (p *pass) groups() []group {
	var checks []group
	selectors := map[string][]int{} // the indexes of checks by namespace
	var usable []labels.Selector
	for i := range p.checks {
		c := &p.checks[i]
		g := group{policy: PolicyOf(c), check: c, namespace: c.Namespace}
		var selector labels.Selector
		selector, g.unusable = selectorOf(c)
		checks, usable = append(checks, g), append(usable, selector)
		selectors[c.Namespace] = append(selectors[c.Namespace], i)
	}
	builtIn := map[string]*group{}
	for namespace := range p.state.restrictions {
		builtIn[namespace] = &group{policy: p.BuiltIn, namespace: namespace}
	}
	for _, s := range p.subjects {
		m := s.Machine
		if !evaluable(m) {
			continue
		}
		selected := false
		for _, i := range selectors[m.Namespace] {
			if usable[i].Matches(labels.Set(m.Labels)) {
				selected = true
				checks[i].subjects = append(checks[i].subjects, s)
			}
		}
		if selected {
			continue
		}
		g := builtIn[m.Namespace]
		if g == nil {
			g = &group{policy: p.BuiltIn, namespace: m.Namespace}
			builtIn[m.Namespace] = g
		}
		g.subjects = append(g.subjects, s)
	}
	for _, namespace := range slices.Sorted(maps.Keys(builtIn)) {
		checks = append(checks, *builtIn[namespace])
	}
	return checks
}

// selectorOf returns the selector of a check. An unusable check selects nothing.
func selectorOf(c *v1beta1.MachineHealthCheck) (labels.Selector, ConditionReason) {
	selector, err := metav1.LabelSelectorAsSelector(&c.Spec.Selector)
	if err != nil {
		return labels.Nothing(), ConditionReason{v1beta1.ReasonInvalidSelector, "spec.selector: " + err.Error()}
	}
	if errs := validation.HealthCheck(c); len(errs) > 0 {
		return labels.Nothing(), ConditionReason{v1beta1.ReasonInvalidConfiguration, errs[0].Error()}
	}
	return selector, ConditionReason{}
}

func (p *pass) checkOwners(ctx context.Context, g group, s Situation) {
	for i := range g.subjects {
		subject := &g.subjects[i]
		clock := s.Clocks.ForDomains(subject.domains()...)
		if Evaluate(g.policy, subject.Machine, subject.Node, s.Now, clock).Health == HealthUnhealthy {
			subject.OwnerFrozen = p.ownerFrozen(ctx, subject.Machine)
		}
	}
}

const ownerPoll = 10 * time.Second

// ownerFrozen reports whether the machine's set is frozen. It returns false if the set does not exist.
func (p *pass) ownerFrozen(ctx context.Context, m *v1beta1.Machine) bool {
	owner := metav1.GetControllerOf(m)
	if owner == nil || owner.Kind != "MachineSet" {
		return false
	}
	key := types.NamespacedName{Namespace: m.Namespace, Name: owner.Name}
	frozen, known := p.frozenSets[key]
	if !known {
		set := &v1beta1.MachineSet{}
		err := p.Client.Get(ctx, key, set)
		unknown := err != nil && !apierrors.IsNotFound(err)
		if unknown {
			p.requeueIn(ownerPoll) // The set counts as frozen until then. No event reports when it can be read.
		}
		frozen = err == nil && has(set.Labels, v1beta1.LabelFreeze) || unknown
		p.frozenSets[key] = frozen
	}
	return frozen
}
