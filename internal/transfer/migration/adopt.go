package migration

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// This file has the phases Copying, Adopting and Adopted, in which Machinist takes the fleet over.

// forEach calls do for each item, at most parallel at the same time. After the first error, no further call starts.
func forEach[T any](ctx context.Context, parallel int, items []T, do func(context.Context, T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for _, item := range items {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			return do(ctx, item)
		})
	}
	return group.Wait()
}

// runCopying creates each missing object of the plan. An object is created after the objects to which it refers.
func (p *pass) runCopying(ctx context.Context) error {
	if fenced, err := p.ensureFenced(ctx, fenceScope{}); err != nil || !fenced {
		return err
	}
	made, own, _, err := p.makePlan(ctx)
	if err != nil {
		return err
	}
	for _, problem := range made.findings.obstacles(p.migration.Spec.Accept) {
		p.addTrouble("%s", problem)
	}
	if p.migration.Spec.Instances != nil && made.hash != p.migration.Spec.PlanHash {
		// No fence keeps the number of instances. A set with more machines than replicas would delete machines.
		p.addTrouble("%s", planChanged)
	}
	if p.troubleCount > 0 {
		return nil
	}
	c := copier{pass: p, own: own}
	if err := c.all(ctx, made); err != nil {
		return err
	}
	p.migration.Status.Machines.Copied = int32(len(made.machines)) - int32(c.missing)
	if c.missing > 0 || p.troubleCount > 0 {
		return nil
	}
	return p.enter(v1beta1.MigrationAdopting)
}

type copier struct {
	*pass
	own     *ownObjects
	missing int
}

func (c *copier) all(ctx context.Context, made *plan) error {
	for _, class := range made.classes {
		for _, secret := range class.secrets {
			if err := c.create(ctx, secret); err != nil {
				return err
			}
		}
		if _, err := c.ensure(ctx, class.object); err != nil {
			return err
		}
	}
	for _, check := range made.checks {
		if _, err := c.ensure(ctx, check); err != nil {
			return err
		}
	}
	sets := map[*set]*v1beta1.MachineSet{}
	for _, d := range made.deployments {
		owner, err := c.ensure(ctx, d.object)
		if err != nil {
			return err
		}
		for _, s := range d.sets {
			setOwner(s.object, owner, "MachineDeployment")
			if err := c.set(ctx, s, sets); err != nil {
				return err
			}
		}
	}
	for _, s := range made.sets {
		if err := c.set(ctx, s, sets); err != nil {
			return err
		}
	}
	return c.machines(ctx, made, sets)
}

func (c *copier) set(ctx context.Context, s *set, made map[*set]*v1beta1.MachineSet) error {
	object, err := c.ensure(ctx, s.object)
	if err != nil {
		return err
	}
	made[s], _ = object.(*v1beta1.MachineSet)
	return nil
}

// ensure creates an object if it does not exist, and returns the stored object.
func (c *copier) ensure(ctx context.Context, object client.Object) (client.Object, error) {
	if existing := c.own.find(object); existing != nil {
		return existing, nil // The plan has no Blocker. Therefore the migration created this object.
	}
	if err := c.Control.Create(ctx, object); err != nil {
		return nil, fmt.Errorf("create %s %s: %w", kindOf(object), object.GetName(), err)
	}
	return object, nil
}

// create creates an object. Secrets are not read with the other objects, so an existing Secret may come from an earlier
// pass or belong to another owner.
func (c *copier) create(ctx context.Context, object client.Object) error {
	err := c.Control.Create(ctx, object)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	existing := object.DeepCopyObject().(client.Object)
	if err := c.Control.Get(ctx, client.ObjectKeyFromObject(object), existing); err != nil {
		return fmt.Errorf("read %s %s: %w", kindOf(object), object.GetName(), err)
	}
	if !c.own.hasCreated(existing) {
		c.addTrouble("%s %s exists and was not created by this migration: delete or rename it", kindOf(object),
			object.GetName())
	}
	return nil
}

func (c *copier) machines(ctx context.Context, made *plan, sets map[*set]*v1beta1.MachineSet) error {
	existing := map[types.UID]bool{}
	for _, machine := range c.own.migratedMachines() {
		existing[oldUID(machine)] = true
	}
	var missing []*v1beta1.Machine
	for _, m := range made.machines {
		if !existing[m.old.GetUID()] {
			missing = append(missing, m.newMachine(c.migration, sets[m.set], origin(c.system.Group(), m.old)))
		}
	}
	c.missing = len(missing)
	for batch := range slices.Chunk(missing, copyBatch) {
		if err := forEach(ctx, c.Parallel, batch, func(ctx context.Context, machine *v1beta1.Machine) error {
			if err := c.Control.Create(ctx, machine); err != nil {
				return fmt.Errorf("create Machine %s: %w", machine.Name, err)
			}
			return nil
		}); err != nil {
			return err
		}
		c.missing -= len(batch)
		if c.missing == 0 {
			break
		}
		c.migration.Status.Machines.Copied = int32(len(made.machines) - c.missing)
		c.rememberStatus(c.migration, nil)
		if err := c.Control.Status().Update(ctx, c.migration); err != nil {
			return fmt.Errorf("write the status: %w", err)
		}
	}
	return nil
}

// copyBatch limits the Machines that one pass creates. The status shows progress after each pass.
const copyBatch = 1000

// isAdopted reports whether Machinist owns the instance of a Machine and knows its Node, if there is one.
func isAdopted(m *v1beta1.Machine, targetNodes nodes) bool {
	if m.Status.Instance == nil || m.IsAdopting() || !meta.IsStatusConditionTrue(m.Status.Conditions,
		v1beta1.ConditionLaunched) {
		return false
	}
	same := targetNodes.byProviderID[m.NodeProviderID()]
	return len(same) != 1 || m.Status.NodeRef != nil && m.Status.NodeRef.UID == same[0].UID
}

func countAdopted(own *ownObjects, targetNodes nodes) (n int32) {
	for _, m := range own.migratedMachines() {
		if isAdopted(m, targetNodes) {
			n++
		}
	}
	return n
}

const (
	// maxUnpaused limits the Machines that adopt their instances at the same time.
	maxUnpaused = 200
	// stallTimeout is the time without progress after which the migrator adds a trouble to the status of the Migration.
	stallTimeout = time.Minute
	// fenceStallTimeout is the stallTimeout of the fence. The fence waits for pods, and for the Lease of an old
	// controller and a margin.
	fenceStallTimeout = 5 * time.Minute
)

// runAdopting unpauses Machines so that they adopt their instances. The first step unpauses one Machine. Later, the
// number of Machines that adopt at the same time is at most the number of Machines that have already adopted.
func (p *pass) runAdopting(ctx context.Context) error {
	if fenced, err := p.ensureFenced(ctx, fenceScope{}); err != nil || !fenced {
		return err
	}
	own, targetNodes, err := p.readAdopted(ctx)
	if err != nil {
		return err
	}
	var paused, inProgress []*v1beta1.Machine
	adopted := 0
	for _, m := range own.migratedMachines() {
		switch {
		case isAdopted(m, targetNodes):
			adopted++
		case hasKey(m.Annotations, v1beta1.AnnotationPaused):
			paused = append(paused, m)
		default:
			inProgress = append(inProgress, m)
			p.reportRefusal(m)
		}
	}
	free := min(max(1, min(maxUnpaused, adopted))-len(inProgress), len(paused))
	if free > 0 {
		if err := forEach(ctx, p.Parallel, paused[:free], func(ctx context.Context, m *v1beta1.Machine) error {
			return p.setAnnotation(ctx, m, v1beta1.AnnotationPaused, false)
		}); err != nil {
			return err
		}
	}
	stalled := p.unchangedFor(p.migration, strconv.Itoa(adopted)) >= stallTimeout
	if stalled && len(inProgress) > 0 && p.troubleCount == 0 {
		p.addTrouble("For a minute, the process of provider %s has not adopted %s. Check that the process runs and "+
			"leads. For details, run: machinist why machine/%s -n %s", p.migration.Spec.Provider,
			examples(len(inProgress), "machine", inProgress[0].Name), inProgress[0].Name, p.migration.Namespace)
	}
	if len(paused) > 0 || len(inProgress) > 0 {
		return nil
	}
	return p.enter(v1beta1.MigrationAdopted)
}

// readAdopted reads Machinist's objects and the Nodes, and updates the counts in the status.
func (p *pass) readAdopted(ctx context.Context) (*ownObjects, nodes, error) {
	own, err := readOwnObjects(ctx, p.Control, p.migration)
	if err != nil {
		return nil, nodes{}, err
	}
	var reader client.Reader
	if p.Target != nil {
		reader = p.Target
	}
	targetNodes, err := readNodes(ctx, reader)
	if err != nil {
		return nil, nodes{}, err
	}
	p.migration.Status.Machines.Copied = int32(len(own.migratedMachines()))
	p.migration.Status.Machines.Adopted = countAdopted(own, targetNodes)
	return own, targetNodes, nil
}

func (p *pass) reportRefusal(m *v1beta1.Machine) {
	launched := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched)
	if launched == nil || launched.Status == metav1.ConditionTrue {
		return
	}
	switch launched.Reason {
	case v1beta1.ReasonAdoptionForbidden, v1beta1.ReasonAdoptionRefused, v1beta1.ReasonAdoptionUnsupported,
		v1beta1.ReasonDuplicateProviderID:
		p.addTrouble("Machine %s: %s: %s", m.Name, launched.Reason, launched.Message)
	}
}

// setAnnotation adds an empty annotation, or removes it if present is false.
func (p *pass) setAnnotation(ctx context.Context, object client.Object, key string, present bool) error {
	value := "null"
	if present {
		value = `""`
	}
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%s}}}`, object.GetUID(), key, value)
	if err := p.Control.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("annotate %s %s: %w", kindOf(object), object.GetName(), err)
	}
	return nil
}

func hasKey(m map[string]string, key string) bool {
	_, found := m[key]
	return found
}

// runAdopted runs the phase Adopted, which keeps the fence until the user commits or aborts the migration.
func (p *pass) runAdopted(ctx context.Context) error {
	if fenced, err := p.ensureFenced(ctx, fenceScope{}); err != nil || !fenced {
		return err
	}
	own, targetNodes, err := p.readAdopted(ctx)
	if err != nil {
		return err
	}
	for _, m := range own.migratedMachines() {
		if !isAdopted(m, targetNodes) {
			p.addTrouble("Machine %s is not adopted any more. Run: machinist why machine/%[1]s -n %[2]s", m.Name,
				m.Namespace)
		}
	}
	if p.troubleCount > 0 || p.migration.Spec.Stage != v1beta1.MigrationCommit {
		return nil
	}
	return p.enter(v1beta1.MigrationCommitting)
}
