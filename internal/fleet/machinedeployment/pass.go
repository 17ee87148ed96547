package machinedeployment

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/fleet/placement"
	"machinist.dev/machinist/internal/fleet/rollout/bounds"
	"machinist.dev/machinist/internal/platform/conditionlimit"
	"machinist.dev/machinist/internal/platform/freshness"
	"machinist.dev/machinist/internal/platform/validation"
)

type pass struct {
	*Reconciler
	// deployment is the version that the pass has read. The pass does not modify this object.
	deployment *v1beta1.MachineDeployment
	known      *deploymentState
	now        time.Time
	// requeueAfter is the time until the next pass without an event. Zero means never.
	requeueAfter time.Duration
	// cacheMark is the state of the cache tracker before the live lists of the pass. cacheConfirmed means that the
	// cache is at least as new as these lists.
	cacheMark      freshness.Mark
	cacheConfirmed bool
	// fromCache means that the machines came from a cache at least as new as the deployment's spec.
	fromCache bool
	// unownedSets contains the sets in a live list that have the deployment's label but no owner.
	unownedSets []*v1beta1.MachineSet
}

type view struct {
	history
	step     versionStep
	bounds   Bounds
	machines map[types.UID][]*v1beta1.Machine
	state    State
	plan     Plan

	// setToCreate is the set to create for the wanted revision, or nil. setToCreate is also the last element of
	// state.Sets.
	setToCreate *v1beta1.MachineSet
	// freeze and freezeMessage are the reason and the message of the condition Frozen. While machines may be added and
	// replaced, both strings are empty.
	freeze, freezeMessage string
	hibernated            bool
	// failedAndGone holds deleted machines of the wanted revision that failed to launch. Since their failures, no
	// machine has become Ready.
	failedAndGone      []v1beta1.FailedMachine
	denied             []disruption.Denial
	capacity           map[string]placement.Capacity // of the classes in spec.placement
	recent             []v1beta1.FailedMachine
	cannotCreateReason string
	// versionReason is the reason of the condition Progressing if state.VersionWait is not empty.
	versionReason string
	// promotion is the state of the newest revision's promotion.
	promotion promotion
	// endsPause means that the promotion ends a pause, so that the set of the newest revision must record it.
	endsPause bool
	// revisionReason is the reason of the condition Progressing if this pass began a new revision. Otherwise,
	// revisionReason is empty.
	revisionReason string
	taintsOutdated bool
	applied        bool
	// rejection is the error with which the API server rejected the write of a set. A repetition of the write would
	// fail again. rejectedReason is the reason of the condition Progressing for this error.
	rejection      error
	rejectedReason string
}

func (p *pass) run(ctx context.Context) error {
	d := p.deployment
	selector, err := metav1.LabelSelectorAsSelector(&d.Spec.Selector)
	if err != nil {
		return p.reportInvalid(ctx, ReasonInvalidSelector, fmt.Sprintf("spec.selector: %v", err))
	}
	if selector.Empty() {
		return p.reportInvalid(ctx, ReasonInvalidSelector, "spec.selector is empty: it would match every MachineSet")
	}
	if errs := validation.Selector(field.NewPath("spec", "selector"), &d.Spec.Selector); len(errs) > 0 {
		return p.reportInvalid(ctx, ReasonInvalidSelector, errs[0].Error())
	}
	if message := tooManyLabels(d); message != "" {
		return p.reportInvalid(ctx, v1beta1.ReasonInvalidConfiguration, message)
	}
	if errs := validation.Template(&d.Spec.Template); len(errs) > 0 {
		return p.reportInvalid(ctx, v1beta1.ReasonInvalidConfiguration, errs[0].Error())
	}
	if message := invalidPlacement(d); message != "" {
		return p.reportInvalid(ctx, v1beta1.ReasonInvalidConfiguration, message)
	}
	limits, err := bounds.ForDeployment(d)
	if err != nil {
		return p.reportInvalid(ctx, v1beta1.ReasonInvalidConfiguration, err.Error())
	}
	if !p.known.cache.IsConfirmed() {
		if err := p.checkCurrent(ctx); err != nil {
			return err
		}
	}
	sets, err := p.claim(ctx, selector)
	if err != nil {
		return err
	}
	if d.Spec.Replicas == nil {
		return p.storeReplicas(ctx, sets)
	}
	machines, err := p.machinesOf(ctx, sets)
	if err != nil {
		return err
	}
	v := p.observe(ctx, sets, machines, limits)
	if err := p.readDisruption(ctx, v); err != nil {
		return err
	}
	if err := p.readCapacity(ctx, v); err != nil {
		return err
	}
	v.plan = MakePlan(v.state)
	v.plan.WaitMessage = v.waitingFor(d.Name, v.plan.WaitMessage)
	if v.cannotCreateReason != "" {
		v.plan.WaitMessage = v.cannotCreateReason
	}
	err = p.apply(ctx, v)
	v.applied = err == nil && v.rejection == nil && v.cannotCreateReason == ""
	if cleanErr := p.cleanUp(ctx, v); err == nil {
		err = cleanErr
	}
	// Report the status even if a write failed.
	if reportErr := p.report(ctx, v, selector.String()); err == nil {
		err = reportErr
	}
	if err != nil {
		return err
	}
	p.known.generation, p.known.decidedAt, p.known.batch = d.Generation, p.now, v.batch()
	p.requeueIn(v.startsIn)
	return nil
}

func (p *pass) observe(ctx context.Context, sets []*v1beta1.MachineSet, machines map[types.UID][]*v1beta1.Machine,
	limits Bounds) *view {
	step := findStep(p.deployment, sets, machines, p.now)
	d := step.deployment
	v := &view{history: findRevision(d, sets, p.now), step: step, bounds: limits, machines: machines,
		hibernated:     d.Spec.Hibernated,
		taintsOutdated: !p.NoOutdatedTaints}
	v.state = State{
		Strategy:     d.Spec.Strategy.TypeOrDefault(),
		Manual:       d.Spec.Strategy.OrchestrationOrDefault() == v1beta1.OrchestrationManual,
		Replicas:     v.placeableReplicas(d),
		Bounds:       limits,
		SizedFor:     v.sizedFor(),
		Paused:       d.Spec.Paused,
		CurrentIndex: v.currentIndex,
	}
	v.readPromotion(d)
	uids := make([]types.UID, len(v.sets))
	p.known.machines = 0
	for i, set := range v.sets {
		uids[i] = set.UID
		p.known.machines += len(machines[set.UID])
		counted, requeueAfter := count(set, machines[set.UID], v.state.Strategy == v1beta1.StrategyInPlace,
			d.Spec.MinReadySeconds, p.now)
		p.known.includeUnobserved(set, &counted)
		if i != v.currentIndex {
			counted.Kept = countKept(d, set, machines[set.UID], v.rolloutAfter)
		}
		if receiver := v.setNamed(counted.MoveTo); counted.ByClass && receiver != nil {
			counted.Movable = countOfClasses(machines[set.UID], classNames(TemplateOfSet(receiver)))
		}
		v.state.Sets = append(v.state.Sets, counted)
		p.requeueIn(requeueAfter)
	}
	p.known.keepOnly(uids)
	p.requeueIn(v.readLimits(d, p.now))
	v.freeze, v.freezeMessage = p.frozenBy(v)
	v.state.Frozen = v.freeze != ""
	v.versionReason, v.state.VersionWait = p.versionWait(ctx, v)
	v.recent = p.shared.recentFailures(p.known, d.Status.RecentFailures, machines)
	switch seen := p.shared.takeFailed(p.known); {
	case v.currentIndex >= 0:
		set := v.sets[v.currentIndex]
		p.known.failures.restore(set, d.Status.FailedMachines)
		inARow, ready := p.known.failures.observe(set.UID, machines[set.UID], seen)
		if v.outdatedMachines() == 0 && v.state.Sets[v.currentIndex].Available >= v.state.Replicas {
			clear(p.known.failures.machines) // All machines of the revision launched.
		}
		v.failedAndGone = p.known.failures.gone(machines[set.UID])
		if v.state.updatesInPlace() {
			inARow += updatesRejected(machines[set.UID])
		}
		v.state.Failing = failing(inARow, ready, p.known.failures.hasRecovered, d, v.number)
	case v.mayStartRevision():
		set := v.newSet(d)
		v.recordStep(set)
		if taken := v.setNamed(set.Name); taken != nil && !taken.DeletionTimestamp.IsZero() {
			v.cannotCreateReason = fmt.Sprintf("set %s cannot be created while a set with the same name is being deleted",
				taken.Name)
			break
		}
		v.setToCreate = set
		v.state.CurrentIndex = len(v.state.Sets)
		v.state.Sets = append(v.state.Sets, Set{Name: set.Name})
	}
	return v
}

// frozenBy returns the reason and the message of the condition Frozen if no machine may be added or replaced. If the
// whole process must not add or replace machines, only deployments that need to do so get the condition Frozen.
func (p *pass) frozenBy(v *view) (reason, message string) {
	if _, labelled := p.deployment.Labels[v1beta1.LabelFreeze]; labelled {
		return v1beta1.ReasonFrozenByLabel, fmt.Sprintf("The label %s stops the creation of machines and rollouts.",
			v1beta1.LabelFreeze)
	}
	if p.deployment.Spec.Hibernated {
		return v1beta1.ReasonHibernated, hibernationFreeze
	}
	reason, message = p.StopReason()
	if reason == "" || v.currentIndex >= 0 && v.outdatedMachines() == 0 && v.state.Sets[v.currentIndex].Replicas >= v.state.Replicas {
		return "", ""
	}
	p.requeueIn(frozenPoll)
	return reason, message
}

// batch returns how many machines must become Ready or be gone before the next step of a rollout, or 0 without a
// rollout. The next step begins after half of the machines that may be replaced at a time, so that creations and
// deletions overlap.
func (v *view) batch() int32 {
	if v.state.Strategy != v1beta1.StrategyRollingUpdate || !v.state.mayRollOut() || v.outdatedMachines() == 0 ||
		v.plan.StopReason != "" {
		return 0
	}
	return min((v.bounds.MaxSurge+v.bounds.MaxUnavailable+1)/2, v.inProgress())
}

// inProgress returns how many machines must still become Ready or be gone after the plan has been applied.
func (v *view) inProgress() (n int32) {
	replicas := make([]int32, len(v.state.Sets))
	for i, set := range v.state.Sets {
		replicas[i] = set.Replicas
	}
	for _, scale := range v.plan.Scales {
		replicas[scale.Set] = scale.To
	}
	for i, set := range v.state.Sets {
		n += set.Deleting + max(0, set.Live-replicas[i])
		if i == v.state.CurrentIndex {
			n += max(0, replicas[i]-set.Ready)
		}
	}
	return n
}

// requeueIn requests another pass after the duration d, unless an earlier pass is already requested. Zero requests
// none.
func (p *pass) requeueIn(d time.Duration) { p.requeueAfter = sooner(p.requeueAfter, d) }

func (p *pass) reportInvalid(ctx context.Context, reason, message string) error {
	status := p.deployment.Status.DeepCopy()
	status.Conditions = conditionlimit.Fleet.Apply(status.Conditions)
	status.ObservedGeneration = p.deployment.Generation
	c := conditions{status: status, generation: p.deployment.Generation, now: p.now}
	c.put(metav1.Condition{Type: v1beta1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: reason,
		Message: message})
	c.summarize(false, true, reason, message)
	return p.writeStatus(ctx, status)
}

// Reasons of Progressing on a MachineDeployment, in addition to those of package v1beta1.
const (
	// ReasonInvalidSelector surfaces on the condition Progressing if the selector is invalid. The controller then does
	// nothing.
	ReasonInvalidSelector = "InvalidSelector"
)
