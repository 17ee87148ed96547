package machinedeployment

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/handover"
	"machinist.dev/machinist/internal/platform/freshness"
)

// apply carries out the plan with at most one write for each set. Sets that shrink are written before sets that grow.
func (p *pass) apply(ctx context.Context, v *view) error {
	wanted := make(map[int]int32, len(v.plan.Scales))
	for _, scale := range v.plan.Scales {
		wanted[scale.Set] = scale.To - scale.From
	}
	order := make([]int, len(v.sets))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(wanted[a], wanted[b]) })
	for _, i := range order {
		set, counted := v.sets[i], v.state.Sets[i]
		if counted.BeingDeleted {
			continue
		}
		after := v.wantedSet(p.deployment, i, wanted[i])
		if equality.Semantic.DeepEqual(set, after) {
			continue
		}
		before := counted.Replicas
		err := p.patchSet(ctx, set, after)
		// If the set already has at least as many live machines as its new replicas, the set creates no machine after
		// the write.
		countsReceived := counted.ReceiveFrom != "" && wanted[i] > 0 && before+wanted[i] <= counted.Live
		if wanted[i] != 0 && !countsReceived && (err == nil || freshness.Ambiguous(err)) {
			p.known.recordWrite(set.UID, counted.Live, before, before+wanted[i], max(after.Generation, set.Generation+1))
		}
		if isPermanentRejection(err) {
			v.noteRejection(v1beta1.ReasonInvalidConfiguration, fmt.Errorf("change set %s: %w", set.Name, err))
			continue
		}
		if err != nil {
			return fmt.Errorf("patch set %s: %w", set.Name, err)
		}
		if p.fromCache && after.Generation != set.Generation {
			p.Decisions.Note(set.UID, after.Generation)
		}
		if i == v.currentIndex && v.mayStartRevision() && revisionOf(set) != v.number {
			v.revisionReason = v1beta1.ReasonFoundNewMachineSet
			p.Recorder.Eventf(p.deployment, after, corev1.EventTypeNormal, reasonRevisionFound, "Update",
				"Revision %d uses the existing set %s", v.number, set.Name)
		}
	}
	return p.create(ctx, v, wanted[len(v.sets)])
}

func (v *view) wantedSet(d *v1beta1.MachineDeployment, i int, change int32) *v1beta1.MachineSet {
	set, counted := v.sets[i].DeepCopy(), v.state.Sets[i]
	// Do not change sets that are kept only for a rollback.
	inUse := i == v.currentIndex || set.ReplicasOrDefault()+change > 0 || ceiling(counted)+counted.Deleting > 0
	if inUse {
		propagate(set, d)
	}
	if change != 0 {
		replicas := counted.Replicas + change
		set.Spec.Replicas = &replicas
	}
	if i == v.currentIndex && v.mayStartRevision() {
		v.recordPromotion(set)
		v.recordStep(set)
		setRevision(set, v.number)
		recordCause(set, d)
	}
	v.plan.Roles[i].annotate(set)
	if i == v.currentIndex || !v.mayStartRevision() || !v.currentReplacesLost() {
		delete(set.Annotations, v1beta1.AnnotationNoCreate)
	} else if inUse {
		annotate(set, v1beta1.AnnotationNoCreate, "")
	}
	v.declareOutdated(set, i, inUse)
	if surge := v.replacementSurge(i); !equality.Semantic.DeepEqual(set, v.sets[i]) {
		// The set reads this annotation only when its replicas change, so a change of the annotation alone is not worth
		// a write.
		if surge > 0 {
			annotate(set, v1beta1.AnnotationExchangeSurge, strconv.Itoa(int(surge)))
		} else {
			delete(set.Annotations, v1beta1.AnnotationExchangeSurge)
		}
	}
	if i == v.sizedForIndex() {
		// During a rollout, this annotation records that the sets were already resized for the current replicas.
		// Without the annotation, every pass would resize the sets again.
		previous, recorded := set.Annotations[v1beta1.AnnotationSizedFor]
		sizedFor := strconv.Itoa(int(v.plan.SizedFor))
		othersActive := slices.ContainsFunc(v.activeSets(), func(active int) bool { return active != i })
		if recorded && previous == sizedFor {
			return set
		}
		if othersActive || !equality.Semantic.DeepEqual(set, v.sets[i]) {
			annotate(set, v1beta1.AnnotationSizedFor, sizedFor)
		}
	}
	return set
}

// replacementSurge returns how many machines set i needs in addition to replicas, because replacements are created
// before the old machines are deleted.
func (v *view) replacementSurge(i int) int32 {
	if i != v.currentIndex {
		return 0
	}
	return v.plan.ReplacementSurge
}

func (r Role) annotate(set *v1beta1.MachineSet) {
	handover.Annotate(set, handover.Order{Receiver: r.MoveTo, Machines: r.Moves, OnlySelected: r.BySelection,
		OnlyKept: r.ByClass},
		r.ReceiveFrom)
}

func (v *view) currentReplacesLost() bool {
	return v.state.Strategy == v1beta1.StrategyOnDelete || v.state.updatesInPlace() && !v.state.Failing
}

// sizedForIndex returns the index of the newest set after the pass, or -1 if the pass must still create that set. The
// newest set has an annotation with the deployment's replicas at the time of the last division among the sets.
func (v *view) sizedForIndex() int {
	switch {
	case v.setToCreate != nil:
		return -1
	case v.currentIndex >= 0 && v.mayStartRevision():
		return v.currentIndex
	}
	return len(v.sets) - 1
}

func (v *view) mayStartRevision() bool {
	return !v.state.Paused && !v.state.Frozen && v.state.VersionWait == ""
}

func (v *view) activeSets() (active []int) {
	replicas := make([]int32, len(v.state.Sets))
	for i, set := range v.state.Sets {
		replicas[i] = set.Replicas
	}
	for _, scale := range v.plan.Scales {
		replicas[scale.Set] = scale.To
	}
	for i, n := range replicas {
		if n > 0 {
			active = append(active, i)
		}
	}
	return active
}

func (p *pass) create(ctx context.Context, v *view, replicas int32) error {
	set := v.setToCreate
	if set == nil {
		return nil
	}
	if err := p.checkCurrent(ctx); err != nil {
		return err
	}
	set.Spec.Replicas = &replicas
	v.plan.Roles[v.state.CurrentIndex].annotate(set)
	annotate(set, v1beta1.AnnotationSizedFor, strconv.Itoa(int(v.plan.SizedFor)))
	err := p.Client.Create(ctx, set)
	switch {
	case err == nil:
		v.revisionReason = v1beta1.ReasonNewMachineSetCreated
		p.Recorder.Eventf(p.deployment, set, corev1.EventTypeNormal, reasonRevisionCreated, "Create",
			"Created set %s for revision %d", set.Name, v.number)
		return nil
	case apierrors.IsAlreadyExists(err):
		return p.resolveNameCollision(ctx, v)
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil // The namespace is being deleted.
	}
	p.noteAmbiguous(err)
	err = fmt.Errorf("create set %s: %w", set.Name, err)
	v.noteRejection(v1beta1.ReasonMachineSetCreateError, err)
	if isPermanentRejection(err) {
		return nil
	}
	return err
}

// isPermanentRejection reports whether the API server would reject the same write again.
func isPermanentRejection(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// noteRejection records the error with which the API server rejected the creation or patch of a set. Only the first
// rejection of a pass is recorded.
func (v *view) noteRejection(reason string, err error) {
	if v.rejection == nil {
		v.rejectedReason, v.rejection = reason, err
	}
}

// resolveNameCollision handles a set that already has the name of the set to create. A set of the deployment that the
// cache lacked is found by the next pass. For any other set, the collision count is increased, so the next pass uses
// another name.
func (p *pass) resolveNameCollision(ctx context.Context, v *view) error {
	d := p.deployment
	v.cannotCreateReason = fmt.Sprintf("a MachineSet with the name %s exists already", v.setToCreate.Name)
	var taken v1beta1.MachineSet
	switch err := p.LiveReader.Get(ctx, client.ObjectKeyFromObject(v.setToCreate), &taken); {
	case apierrors.IsNotFound(err):
		p.requeueIn(retryConflict) // The set was deleted meanwhile.
		return nil
	case err != nil:
		return fmt.Errorf("get the set that has the name %s: %w", v.setToCreate.Name, err)
	}
	// Adopt a set of the deployment that has lost its owner reference. A new set would replace all machines.
	if (metav1.IsControlledBy(&taken, d) || p.mayAdopt(&taken)) &&
		SameRevision(TemplateOfSet(&taken), TemplateOf(v.step.deployment)) && newerThan(&taken, v.rolloutAfter) {
		p.known.cache.Invalidate() // Use live lists until the cache has the set.
		p.requeueIn(retryConflict)
		return nil
	}
	changed := d.DeepCopy()
	count := int32(1)
	if before := d.Status.CollisionCount; before != nil && *before < math.MaxInt32 {
		count += max(*before, 0)
	}
	changed.Status.CollisionCount = &count
	if err := p.Client.Status().Patch(ctx, changed,
		client.MergeFromWithOptions(d, client.MergeFromWithOptimisticLock{})); apierrors.IsNotFound(err) {
		return nil // The deployment was deleted meanwhile.
	} else if err != nil {
		return fmt.Errorf("raise status.collisionCount, because the name %s exists already: %w", v.setToCreate.Name, err)
	}
	p.ownWrites.Record(changed)
	p.deployment = changed
	p.requeueIn(retryConflict)
	return nil
}

// mayAdopt reports whether the set has no owner, matches the selector, and would appear in a list from the API server.
func (p *pass) mayAdopt(set *v1beta1.MachineSet) bool {
	selector, err := metav1.LabelSelectorAsSelector(&p.deployment.Spec.Selector)
	return err == nil && unowned(set) && set.Labels[v1beta1.LabelMachineDeployment] == p.deployment.Name &&
		selector.Matches(labels.Set(set.Labels))
}

func (p *pass) cleanUp(ctx context.Context, v *view) error {
	for _, set := range v.expiredSets(v.state.Sets, p.deployment.RevisionHistoryLimitOrDefault()) {
		err := p.Client.Delete(ctx, set, client.Preconditions{UID: &set.UID, ResourceVersion: &set.ResourceVersion},
			client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil {
			p.noteAmbiguous(err)
			return fmt.Errorf("delete the expired set %s: %w", set.Name, err)
		}
	}
	return nil
}

// patchSet patches a set. The patch fails if another client has changed the set since it was read.
func (p *pass) patchSet(ctx context.Context, before, after *v1beta1.MachineSet) error {
	err := p.Client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	p.noteAmbiguous(err)
	return err
}

// noteAmbiguous marks the cache as not trusted if the error does not show whether the write succeeded.
func (p *pass) noteAmbiguous(err error) {
	if freshness.Ambiguous(err) {
		p.known.cache.Invalidate()
	}
}
