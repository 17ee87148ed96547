package machinedeployment

import (
	"context"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/placement"
	"machinist.dev/machinist/internal/fleet/placement/places"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// readCapacity reads the capacity of the placement's classes for the status.
func (p *pass) readCapacity(ctx context.Context, v *view) (err error) {
	if p.deployment.Spec.Placement != nil {
		v.capacity, err = places.CapacityOf(ctx, p.Client, p.deployment.Namespace, p.deployment.Spec.Placement)
	}
	return err
}

// setPlacement sets status.placement and the condition Balanced. The condition does not change during a rollout and
// while machines are created or deleted.
func (c conditions) setPlacement(d *v1beta1.MachineDeployment, v *view) {
	by := d.Spec.Placement
	if by == nil {
		c.status.Placement = nil
		meta.RemoveStatusCondition(&c.status.Conditions, v1beta1.ConditionBalanced)
		return
	}
	counted, waiting := map[placement.Choice]int{}, map[placement.Choice]int{}
	pending, ready := map[string]int{}, map[string]int32{}
	replicas := map[string]int32{}
	for _, set := range v.sets {
		for _, m := range v.machines[set.UID] {
			if !machinestate.IsLive(m) {
				continue
			}
			place := places.Of(m, set.Spec.Placement, by)
			counted[place]++
			replicas[place.ClassName]++
			if places.Pending(m) {
				pending[place.ClassName]++
			}
			if places.AwaitsCapacity(m) {
				waiting[place]++
			}
			if machinestate.IsReady(m) {
				ready[place.ClassName]++
			}
		}
	}
	c.status.Placement = nil
	capacity := make(map[string]placement.Capacity, len(v.capacity))
	for i := range by.Domains {
		for _, option := range by.Domains[i].Options {
			known := v.capacity[option.ClassName]
			row := v1beta1.PlacementOptionStatus{Domain: by.Domains[i].Name, ClassName: option.ClassName,
				Replicas: replicas[option.ClassName], ReadyReplicas: ready[option.ClassName]}
			if known.Exhausted {
				since := metav1.NewTime(known.Since)
				row.ExhaustedSince = &since
				if !known.RetryTime.IsZero() {
					retry := metav1.NewTime(known.RetryTime)
					row.RetryTime = &retry
				}
			}
			c.status.Placement = append(c.status.Placement, row)
			known.Pending = pending[option.ClassName]
			capacity[option.ClassName] = known
		}
	}
	places.AddUnlaunchable(capacity, v.currentMachines())
	report := placement.New(placement.State{Placement: by, Replicas: int(max(0, d.ReplicasOrDefault())), Machines: counted,
		Waiting: waiting, Capacity: capacity, Now: c.now}).Report()
	if v.outdatedMachines() == 0 && report.Settled() {
		report.Silent = places.SilentDomains(by, slices.Concat(slices.Collect(maps.Values(v.machines))...))
		balanced, reason, message := report.Balanced()
		c.set(v1beta1.ConditionBalanced, balanced, reason, reason, message)
	}
}

// placeableReplicas returns how many of the replicas have a place. The sets never get more replicas, because a rollout
// would wait for machines that are never created.
func (v *view) placeableReplicas(d *v1beta1.MachineDeployment) int32 {
	return placeable(d, v.currentMachines())
}

// currentMachines returns the machines of the newest set.
func (v *view) currentMachines() []*v1beta1.Machine {
	if v.currentIndex < 0 {
		return nil
	}
	return v.machines[v.sets[v.currentIndex].UID]
}

// placeable returns how many replicas the domains can have, because of their maxReplicas. current contains the machines
// of the wanted revision. Those in domains with weight 0 stay.
func placeable(d *v1beta1.MachineDeployment, current []*v1beta1.Machine) int32 {
	replicas := max(0, d.ReplicasOrDefault())
	if d.Spec.Placement == nil {
		return replicas
	}
	var limit int64
	for i := range d.Spec.Placement.Domains {
		switch domain := &d.Spec.Placement.Domains[i]; {
		case domain.WeightOrDefault() == 0:
			limit += int64(countOfDomain(current, d.Spec.Placement, domain.Name))
		case domain.MaxReplicas == nil:
			return replicas
		default:
			limit += int64(*domain.MaxReplicas)
		}
	}
	return int32(min(int64(replicas), limit))
}

func countOfDomain(machines []*v1beta1.Machine, by *v1beta1.Placement, domain string) (n int) {
	for _, m := range machines {
		if machinestate.IsLive(m) && places.Of(m, by).Domain == domain {
			n++
		}
	}
	return n
}

// deploymentsOfClass returns the deployments whose placement contains the class.
func (r *Reconciler) deploymentsOfClass(ctx context.Context, object client.Object) []reconcile.Request {
	var deployments v1beta1.MachineDeploymentList
	if err := r.Client.List(ctx, &deployments, client.InNamespace(object.GetNamespace()),
		client.UnsafeDisableDeepCopy); err != nil {
		logf.FromContext(ctx).Error(err, "Failed to list the deployments with a placement", "class",
			client.ObjectKeyFromObject(object))
		return nil
	}
	var requests []reconcile.Request
	for i := range deployments.Items {
		if deployments.Items[i].Spec.Placement.DomainOf(object.GetName()) != "" {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&deployments.Items[i])})
		}
	}
	return requests
}

// invalidPlacement returns the first error of spec.placement, or "".
func invalidPlacement(d *v1beta1.MachineDeployment) string {
	spec := &d.Spec.Template.Spec
	if d.Spec.Placement != nil && (spec.ClassRef != nil || spec.Provider != "") {
		return "spec.template.spec: classRef and provider must not be set with spec.placement"
	}
	if d.Spec.Placement == nil && spec.ClassRef == nil && spec.Provider == "" {
		return "spec.template.spec: one of classRef and provider must be set, or spec.placement"
	}
	if errs := placement.Validate(field.NewPath("spec", "placement"), d.Spec.Placement); len(errs) > 0 {
		return errs[0].Error()
	}
	return ""
}
