package cli

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/merge"
	"machinist.dev/machinist/internal/platform/wording"
)

// merge does the steps of the plan. Each step can be repeated, so an interrupted command continues where it stopped.
// The plan is nil if the merged deployment exists already.
func (m *placementMerge) merge(ctx context.Context, c *Cluster, in merge.Input, plan *merge.Plan,
	merged *v1beta1.MachineDeployment) error {
	report := func(format string, args ...any) { fmt.Fprintf(m.env.Err, format+"\n", args...) }
	if merged == nil {
		merged = plan.Deployment.DeepCopy()
		merged.Labels = map[string]string{v1beta1.LabelFreeze: merge.FreezeValue}
		merged.Annotations = nil // An autoscaler must not see the deployment before it has all machines.
		if err := c.Create(ctx, merged); err != nil {
			return c.Explain(fmt.Errorf("create machinedeployment %q: %w", merged.Name, err))
		}
		report("machinedeployment/%s created, and frozen", merged.Name)
	}
	for _, d := range in.Deployments {
		if err := c.handSetsOver(ctx, in, merged, d); err != nil {
			return fmt.Errorf("%w; nothing is lost: solve the problem and run the command again", err)
		}
		report("machinedeployment/%s merged", d.Name)
	}
	sets, err := c.awaitAdoption(ctx, in, merged)
	if err != nil {
		return err
	}
	if len(sets) == 0 {
		return fmt.Errorf("machinedeployment %q has no sets: delete it, if its machines do not exist any more", merged.Name)
	}
	total := replicasOf(sets)
	merged, err = c.updateMerged(ctx, merged, func(d *v1beta1.MachineDeployment) {
		d.Spec.Replicas = &total
		delete(d.Labels, v1beta1.LabelFreeze)
		if plan != nil {
			for key, value := range plan.Deployment.Annotations {
				metav1.SetMetaDataAnnotation(&d.ObjectMeta, key, value)
			}
		}
	})
	if err != nil {
		return err
	}
	if plan == nil {
		report("If an autoscaler scales the fleet, annotate machinedeployment/%s with its bounds.", merged.Name)
	}
	_, err = fmt.Fprintf(m.env.Out, "machinedeployment/%s has %s. To see it take over the machines, run machinist rollout status md/%s\n",
		merged.Name, wording.Count(total, "machine"), merged.Name)
	return err
}

// labelTemplates labels the templates of sets without a deployment. The merged deployment adopts a set only if the
// template matches its selector too. A deployment that still existed would remove the label.
func (c *Cluster) labelTemplates(ctx context.Context, in merge.Input, sets []v1beta1.MachineSet) error {
	for i := range sets {
		if metav1.GetControllerOf(&sets[i]) != nil || sets[i].Spec.Template.ObjectMeta.Labels[in.LabelKey] == in.LabelValue {
			continue
		}
		if _, err := edit(ctx, c, &sets[i], func(set *v1beta1.MachineSet) error {
			if set.Spec.Template.ObjectMeta.Labels == nil {
				set.Spec.Template.ObjectMeta.Labels = map[string]string{}
			}
			set.Spec.Template.ObjectMeta.Labels[in.LabelKey] = in.LabelValue
			return nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// handSetsOver makes the merged deployment adopt the sets of a deployment. The sets get the label of the merged
// deployment first, so that they are never without a deployment that would adopt them.
func (c *Cluster) handSetsOver(ctx context.Context, in merge.Input, merged, d *v1beta1.MachineDeployment) error {
	for range maxConflicts {
		if d.DeletionTimestamp != nil {
			return nil // The garbage collector is about to release the sets.
		}
		if err := merge.Mergeable(d); err != nil {
			return err
		}
		if class := d.Spec.Template.Spec.ClassRef.Name; merged.Spec.Placement.DomainOf(class) == "" {
			return fmt.Errorf("class %s of machinedeployment %q is not an option of machinedeployment %q", class, d.Name, merged.Name)
		}
		sets, err := c.setsOf(ctx, d)
		if err != nil {
			return err
		}
		if err := c.makeRoom(ctx, in, merged, d); err != nil {
			return err
		}
		for _, set := range sets {
			if _, err := edit(ctx, c, set, func(set *v1beta1.MachineSet) error {
				metav1.SetMetaDataLabel(&set.ObjectMeta, in.LabelKey, in.LabelValue)
				return nil
			}); err != nil {
				return err
			}
		}
		// If the deployment has changed meanwhile, for example its replicas, everything is checked again.
		err = c.Delete(ctx, d, client.PropagationPolicy(metav1.DeletePropagationOrphan),
			client.Preconditions{UID: &d.UID, ResourceVersion: &d.ResourceVersion})
		switch {
		case err == nil, apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err):
			return c.Explain(fmt.Errorf("delete machinedeployment %q: %w", d.Name, err))
		}
		fresh, err := read(ctx, c, d)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return c.Explain(err)
		}
		d = fresh
	}
	return fmt.Errorf("delete machinedeployment %q: %d attempts failed because of conflicts with other clients", d.Name,
		maxConflicts)
}

// makeRoom raises the replicas of the merged deployment if they have become less than those of its sets, for example
// because an autoscaler has scaled a deployment. Otherwise the merged deployment would delete machines.
func (c *Cluster) makeRoom(ctx context.Context, in merge.Input, merged, d *v1beta1.MachineDeployment) error {
	total := d.ReplicasOrDefault()
	var all v1beta1.MachineSetList
	if err := c.List(ctx, &all, client.InNamespace(in.Namespace),
		client.MatchingLabels{in.LabelKey: in.LabelValue}); err != nil {
		return c.Explain(fmt.Errorf("list the sets of machinedeployment %q: %w", merged.Name, err))
	}
	for i := range all.Items {
		if owner := metav1.GetControllerOf(&all.Items[i]); owner == nil || owner.UID != d.UID {
			total += all.Items[i].ReplicasOrDefault()
		}
	}
	changed, err := c.updateMerged(ctx, merged, func(merged *v1beta1.MachineDeployment) {
		if merged.ReplicasOrDefault() < total {
			merged.Spec.Replicas = &total
		}
	})
	if err == nil {
		changed.DeepCopyInto(merged)
	}
	return err
}

// updateMerged changes the merged deployment. Unlike edit, the method tries again if the specification has changed.
func (c *Cluster) updateMerged(ctx context.Context, merged *v1beta1.MachineDeployment,
	change func(*v1beta1.MachineDeployment)) (*v1beta1.MachineDeployment, error) {
	for range maxConflicts {
		after := merged.DeepCopy()
		change(after)
		err := c.Patch(ctx, after, patchFrom(merged))
		if err == nil {
			return after, nil
		}
		if !apierrors.IsConflict(err) {
			return nil, c.Explain(fmt.Errorf("change machinedeployment %q: %w", merged.Name, err))
		}
		if merged, err = read(ctx, c, merged); err != nil {
			return nil, c.Explain(err)
		}
	}
	return nil, fmt.Errorf("change machinedeployment %q: %d attempts failed because of conflicts with other clients", merged.Name,
		maxConflicts)
}

// awaitAdoption waits until the merged deployment has all sets with its label and no other deployment is left, and
// returns the sets.
func (c *Cluster) awaitAdoption(ctx context.Context, in merge.Input,
	merged *v1beta1.MachineDeployment) ([]v1beta1.MachineSet, error) {
	for {
		var sets v1beta1.MachineSetList
		if err := c.List(ctx, &sets, client.InNamespace(in.Namespace),
			client.MatchingLabels{in.LabelKey: in.LabelValue}); err != nil {
			return nil, c.Explain(fmt.Errorf("list the sets of machinedeployment %q: %w", merged.Name, err))
		}
		if !slices.ContainsFunc(sets.Items, func(set v1beta1.MachineSet) bool { return !isOwnedBy(&set, merged.UID) }) {
			return sets.Items, nil
		}
		if err := c.labelTemplates(ctx, in, sets.Items); err != nil {
			return nil, err
		}
		c.awaitChange(ctx, in.Namespace, &sets)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("interrupted while machinedeployment %q adopts sets: run the command again", merged.Name)
		}
	}
}

func isOwnedBy(set *v1beta1.MachineSet, owner types.UID) bool {
	controller := metav1.GetControllerOfNoCopy(set)
	return controller != nil && controller.UID == owner
}

func replicasOf(sets []v1beta1.MachineSet) (total int32) {
	for i := range sets {
		total += sets[i].ReplicasOrDefault()
	}
	return total
}
