package migration

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wording"
)

// The phases in which Machinist takes the fleet over: Copying, Adopting, Adopted.

// each calls do for all items, in their order and several at a time. The first error ends it.
func each[T any](ctx context.Context, parallel int, items []T, do func(context.Context, T) error) error {
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

// copying makes what the plan has and does not exist: what others refer to comes first.
func (p *pass) copying(ctx context.Context) error {
	if stands, err := p.fenced(ctx, fenceScope{}); err != nil || !stands {
		return err
	}
	made, mine, _, err := p.makePlan(ctx)
	if err != nil {
		return err
	}
	for _, problem := range made.findings.blocking(p.migration.Spec.Accept) {
		p.trouble("%s", problem)
	}
	if p.counted > 0 {
		return nil
	}
	c := copier{pass: p, mine: mine}
	if err := c.all(ctx, made); err != nil {
		return err
	}
	p.migration.Status.Machines.Copied = int32(len(made.machines)) - int32(c.missing)
	if c.missing > 0 || p.counted > 0 {
		return nil
	}
	return p.enter(v1beta1.MigrationAdopting)
}

// copier makes objects that do not exist.
type copier struct {
	*pass
	mine    *ours
	missing int // Machines that could not be made in this pass
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
			ownedBy(s.object, owner, "MachineDeployment")
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

// ensure returns the object as it is at the API server, and makes it if it is not there.
func (c *copier) ensure(ctx context.Context, object client.Object) (client.Object, error) {
	if existing := c.mine.find(object); existing != nil {
		return existing, nil // The plan found no other owner.
	}
	if err := c.Control.Create(ctx, object); err != nil {
		return nil, fmt.Errorf("make %s %s: %w", kindOf(object), object.GetName(), err)
	}
	return object, nil
}

// create makes a Secret, which is not read before: one that is there already is from an earlier pass, or in the way.
func (c *copier) create(ctx context.Context, object client.Object) error {
	err := c.Control.Create(ctx, object)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	existing := object.DeepCopyObject().(client.Object)
	if err := c.Control.Get(ctx, client.ObjectKeyFromObject(object), existing); err != nil {
		return fmt.Errorf("read %s %s: %w", kindOf(object), object.GetName(), err)
	}
	if !c.mine.made(existing) {
		c.trouble("%s %s exists and is of another owner: delete or rename it", kindOf(object), object.GetName())
	}
	return nil
}

func (c *copier) machines(ctx context.Context, made *plan, sets map[*set]*v1beta1.MachineSet) error {
	existing := map[types.UID]bool{}
	for _, machine := range c.mine.ofMigration() {
		existing[oldUID(machine)] = true
	}
	var missing []*v1beta1.Machine
	for _, m := range made.machines {
		if !existing[m.old.GetUID()] {
			missing = append(missing, m.copy(c.migration, sets[m.set], origin(c.system.Group(), m.old)))
		}
	}
	c.missing = len(missing)
	for batch := range slices.Chunk(missing, copiedAtOnce) {
		if err := each(ctx, c.Parallel, batch, func(ctx context.Context, machine *v1beta1.Machine) error {
			if err := c.Control.Create(ctx, machine); err != nil {
				return fmt.Errorf("make Machine %s: %w", machine.Name, err)
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
		c.keepStatus(c.migration, nil)
		if err := c.Control.Status().Update(ctx, c.migration); err != nil {
			return fmt.Errorf("write the status: %w", err)
		}
	}
	return nil
}

// copiedAtOnce is how many Machines are made between two writes of the status, by which people see how far it is.
const copiedAtOnce = 1000

// isAdopted reports whether the instance of a Machine is ours, and its Node, if it has one, is the Machine's.
func isAdopted(m *v1beta1.Machine, all nodes) bool {
	if m.Status.Instance == nil || m.Adopting() || !meta.IsStatusConditionTrue(m.Status.Conditions,
		v1beta1.ConditionLaunched) {
		return false
	}
	same := all.byProviderID[m.Spec.ProviderID]
	return len(same) != 1 || m.Status.NodeRef != nil && m.Status.NodeRef.UID == same[0].UID
}

func countAdopted(mine *ours, all nodes) (n int32) {
	for _, m := range mine.ofMigration() {
		if isAdopted(m, all) {
			n++
		}
	}
	return n
}

const (
	// maxUnpaused is how many Machines are being adopted at a time.
	maxUnpaused = 200
	// patience is for how long the provider's process may get no further before that is said.
	patience = time.Minute
)

// adopting unpauses Machines, at first one, then as many as are adopted already.
func (p *pass) adopting(ctx context.Context) error {
	if stands, err := p.fenced(ctx, fenceScope{}); err != nil || !stands {
		return err
	}
	mine, all, err := p.readAdopted(ctx)
	if err != nil {
		return err
	}
	var paused, underWay []*v1beta1.Machine
	adopted := 0
	for _, m := range mine.ofMigration() {
		switch {
		case isAdopted(m, all):
			adopted++
		case has(m.Annotations, v1beta1.AnnotationPaused):
			paused = append(paused, m)
		default:
			underWay = append(underWay, m)
			p.refused(m)
		}
	}
	free := min(max(1, min(maxUnpaused, adopted))-len(underWay), len(paused))
	if free > 0 {
		if err := each(ctx, p.Parallel, paused[:free], func(ctx context.Context, m *v1beta1.Machine) error {
			return p.annotation(ctx, m, v1beta1.AnnotationPaused, false)
		}); err != nil {
			return err
		}
	}
	if p.unchangedFor(p.migration, adopted) >= patience && len(underWay) > 0 && p.counted == 0 {
		p.trouble("The process of provider %s has adopted none of %s for a while, the first is %s: see whether it runs and "+
			"leads, and machinist why machine/%[3]s", p.migration.Spec.Provider, wording.Count(len(underWay), "machine"),
			underWay[0].Name)
	}
	if len(paused) > 0 || len(underWay) > 0 {
		return nil
	}
	return p.enter(v1beta1.MigrationAdopted)
}

// readAdopted reads our objects and the Nodes, and counts.
func (p *pass) readAdopted(ctx context.Context) (*ours, nodes, error) {
	mine, err := readOurs(ctx, p.Control, p.migration)
	if err != nil {
		return nil, nodes{}, err
	}
	var reader client.Reader
	if p.Target != nil {
		reader = p.Target
	}
	all, err := readNodes(ctx, reader)
	if err != nil {
		return nil, nodes{}, err
	}
	p.migration.Status.Machines.Copied = int32(len(mine.ofMigration()))
	p.migration.Status.Machines.Adopted = countAdopted(mine, all)
	return mine, all, nil
}

// refused reports a Machine whose adoption the provider refuses.
func (p *pass) refused(m *v1beta1.Machine) {
	launched := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched)
	if launched == nil || launched.Status == metav1.ConditionTrue {
		return
	}
	switch launched.Reason {
	case v1beta1.ReasonAdoptionForbidden, v1beta1.ReasonAdoptionRefused, v1beta1.ReasonAdoptionUnsupported,
		v1beta1.ReasonDuplicateProviderID:
		p.trouble("Machine %s: %s: %s", m.Name, launched.Reason, launched.Message)
	}
}

// annotation puts an annotation on an object, or takes it off, if the object has not been changed since it was read.
func (p *pass) annotation(ctx context.Context, object client.Object, key string, there bool) error {
	value := "null"
	if there {
		value = `""`
	}
	patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"annotations":{%q:%s}}}`, object.GetUID(), key, value)
	if err := p.Control.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("annotate %s %s: %w", kindOf(object), object.GetName(), err)
	}
	return nil
}

func has(m map[string]string, key string) bool {
	_, found := m[key]
	return found
}

// adopted holds what was reached until a person decides.
func (p *pass) adopted(ctx context.Context) error {
	if stands, err := p.fenced(ctx, fenceScope{}); err != nil || !stands {
		return err
	}
	mine, all, err := p.readAdopted(ctx)
	if err != nil {
		return err
	}
	for _, m := range mine.ofMigration() {
		if !isAdopted(m, all) {
			p.trouble("Machine %s was adopted and is not any more: see machinist why machine/%s", m.Name, m.Name)
		}
	}
	if p.counted > 0 || p.migration.Spec.Stage != v1beta1.MigrationCommit {
		return nil
	}
	return p.enter(v1beta1.MigrationCommitting)
}
