package simulation

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/invariants"
)

// SettledDifference returns the differences between the fleet and its deployment, or "". SettledDifference compares
// each Node, each instance and each number in a status.
func SettledDifference(w *World) string {
	if w.legacy != nil {
		return w.legacy.missing()
	}
	missing := append(w.autoscaler.missing(), w.unsettledPods()...)
	missing = append(missing, w.safetyMissing()...)
	missing = append(missing, w.unsettledNamespaces()...)
	report := func(format string, args ...any) { missing = append(missing, fmt.Sprintf(format, args...)) }
	kind := func(name string) schema.GroupVersionKind { return v1beta1.GroupVersion.WithKind(name) }
	machines := w.control.Snapshot(kind("Machine"))
	fleets, left := w.fleets()
	if left > 0 {
		report("%d sets are left", left)
	}
	wanted := 0
	for _, f := range fleets {
		wanted += f.wanted
	}
	if n := w.preservedCount(machines); n > 0 {
		report("%d machines are preserved", n)
	}
	machines, untagged := byHand(w, machines, report)
	for _, o := range machines {
		m := o.(*v1beta1.Machine)
		owner := metav1.GetControllerOfNoCopy(m)
		f := fleetOf(fleets, owner)
		switch {
		case !m.DeletionTimestamp.IsZero():
			report("machine %s is being deleted: %s", m.Name, conditionsOf(m.Status.Conditions))
		case m.Status.Phase != v1beta1.MachineRunning:
			report("machine %s is %s: %s", m.Name, m.Status.Phase, conditionsOf(m.Status.Conditions))
		case meta.IsStatusConditionFalse(m.Status.Conditions, gpuHealthy):
			report("machine %s has no working GPU", m.Name)
		case !upToDate(m):
			report("machine %s is not up to date: %s", m.Name, conditionsOf(m.Status.Conditions))
		case w.wrongVersion(m) != "":
			report("machine %s runs %s, want %s", m.Name, w.wrongVersion(m), m.Spec.Version)
		case owner == nil:
		case f == nil:
			report("machine %s belongs to set %s, which does not belong to any fleet", m.Name, owner.Name)
		case f.anyRevision:
		case !f.hasClass(classNameOf(m)) || m.Spec.Version != f.template.Spec.Version:
			report("machine %s has class %s and version %q, want class %s and version %q", m.Name, classNameOf(m),
				m.Spec.Version, templateClass(&f.template.Spec, f.placement), f.template.Spec.Version)
		}
		if f != nil && m.Labels["tier"] != f.template.ObjectMeta.Labels["tier"] {
			report("machine %s has the label tier=%q, want %q", m.Name, m.Labels["tier"], f.template.ObjectMeta.Labels["tier"])
		}
		instances := w.cloud.instancesOf(m.UID)
		if len(instances) != 1 {
			report("machine %s has %d instances, want 1", m.Name, len(instances))
			continue
		}
		if !w.rightPlace(m, instances[0]) {
			report("machine %s has class %s, but its instance is in %s", m.Name, classNameOf(m), placeOf([]byte(instances[0].spec)))
		}
		switch node := w.node(instances[0].NodeName); {
		case node == nil:
			report("machine %s has no node", m.Name)
		case m.Status.NodeRef == nil || m.Status.NodeRef.UID != node.UID:
			report("machine %s is not paired with its node", m.Name)
		case node.Spec.ProviderID != "" && node.Spec.ProviderID != m.Spec.ProviderID:
			report("machine %s is paired with node %s, which has another provider ID", m.Name, node.Name)
		case len(node.Spec.Taints) > 0 || node.Spec.Unschedulable:
			report("node %s cannot be used: %v", node.Name, node.Spec.Taints)
		}
	}
	if n := len(machines) - adopters(machines); n != wanted {
		report("got %d machines, not %d", n, wanted)
	}
	all := wanted + adopters(machines) + untagged
	forced, forcedNodes := w.leftBehind()
	if n := len(w.cloud.instances) + len(w.cloud.late) - forced; n != all+w.strangersLeft() {
		report("got %d instances, not %d", n, all+w.strangersLeft())
	}
	if n := len(w.target.Snapshot(nodeKind)) - w.leftNodes() - forcedNodes; n != all {
		report("got %d nodes, not %d", n, all)
	}
	if n := len(w.target.Snapshot(corev1.SchemeGroupVersion.WithKind("Secret"))) - w.leftTokens(); n != 0 {
		report("%d bootstrap tokens are left", n)
	}
	for _, f := range fleets {
		if f.anyRevision {
			continue
		}
		// Sets without an owner may have the template of a deployment that adopts them. Only one of them is scaled up.
		left := f.wanted
		for _, set := range f.sets {
			n := 0
			if own := &set.Spec.Template.Spec; f.sameClasses(set) && own.Version == f.template.Spec.Version {
				n = min(left, invariants.Replicas(set.Spec.Replicas))
			}
			left -= n
			missing = append(missing, setMissing(set, n)...)
		}
		if left > 0 && f.deployment != nil {
			report("the sets of deployment %s lack %d replicas", f.deployment.Name, left)
		}
		if f.deployment != nil {
			missing = append(missing, deploymentMissing(f.deployment, f.wanted)...)
			missing = append(missing, w.placementMissing(f)...)
		}
	}
	return strings.Join(append(missing, w.disruptionMissing(fleets)...), "; ")
}

type askedFleet struct {
	deployment  *v1beta1.MachineDeployment
	sets        []*v1beta1.MachineSet
	wanted      int
	template    *v1beta1.MachineTemplateSpec
	placement   *v1beta1.Placement
	anyRevision bool
}

func (f *askedFleet) hasClass(name string) bool {
	return f.template.Spec.ClassRef != nil && f.template.Spec.ClassRef.Name == name || f.placement.DomainOf(name) != ""
}

// sameClasses reports whether a set has the classes of the fleet.
func (f *askedFleet) sameClasses(set *v1beta1.MachineSet) bool {
	if f.template.Spec.ClassRef != nil && set.Spec.Template.Spec.ClassRef != nil {
		return f.template.Spec.ClassRef.Name == set.Spec.Template.Spec.ClassRef.Name
	}
	wanted, own := f.placement.ClassNames(), set.Spec.Placement.ClassNames()
	slices.Sort(wanted)
	slices.Sort(own)
	return slices.Equal(wanted, own)
}

func (w *World) fleets() (fleets []*askedFleet, left int) {
	for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineDeployment")) {
		d := o.(*v1beta1.MachineDeployment)
		fleets = append(fleets, &askedFleet{deployment: d, wanted: invariants.Replicas(d.Spec.Replicas),
			template: &d.Spec.Template, placement: d.Spec.Placement,
			anyRevision: d.Spec.Strategy.Type == v1beta1.StrategyOnDelete})
	}
	for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineSet")) {
		set, owner := o.(*v1beta1.MachineSet), metav1.GetControllerOfNoCopy(o)
		if owner == nil {
			fleets = append(fleets, &askedFleet{sets: []*v1beta1.MachineSet{set},
				wanted: invariants.Replicas(set.Spec.Replicas), template: &set.Spec.Template, placement: set.Spec.Placement})
			continue
		}
		i := slices.IndexFunc(fleets, func(f *askedFleet) bool {
			return f.deployment != nil && f.deployment.UID == owner.UID
		})
		if i < 0 {
			left++
			continue
		}
		fleets[i].sets = append(fleets[i].sets, set)
	}
	return fleets, left
}

func fleetOf(fleets []*askedFleet, owner *metav1.OwnerReference) *askedFleet {
	for _, f := range fleets {
		if owner != nil && slices.ContainsFunc(f.sets, func(s *v1beta1.MachineSet) bool { return s.UID == owner.UID }) {
			return f
		}
	}
	return nil
}

func upToDate(m *v1beta1.Machine) bool {
	c := findCondition(m, v1beta1.ConditionUpToDate)
	return c == nil || c.Status == metav1.ConditionTrue && c.ObservedGeneration == m.Generation
}

func setMissing(set *v1beta1.MachineSet, n int) (missing []string) {
	if got := invariants.Replicas(set.Spec.Replicas); got != n {
		missing = append(missing, fmt.Sprintf("set %s has replicas %d, want %d", set.Name, got, n))
	}
	s := set.Status
	if s.ObservedGeneration != set.Generation {
		missing = append(missing, fmt.Sprintf("set %s has observedGeneration %d, want %d", set.Name, s.ObservedGeneration,
			set.Generation))
	}
	for _, got := range []int32{s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.FullyLabeledReplicas} {
		if int(got) != n {
			missing = append(missing, fmt.Sprintf("the status of set %s is %d/%d/%d/%d, want %d each", set.Name, s.Replicas,
				s.ReadyReplicas, s.AvailableReplicas, s.FullyLabeledReplicas, n))
			break
		}
	}
	return missing
}

func deploymentMissing(d *v1beta1.MachineDeployment, wanted int) (missing []string) {
	s := d.Status
	if s.ObservedGeneration != d.Generation {
		missing = append(missing, fmt.Sprintf("the deployment has observedGeneration %d, want %d", s.ObservedGeneration,
			d.Generation))
	}
	if !slices.Equal([]int32{s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, s.AvailableReplicas, s.UnavailableReplicas},
		[]int32{int32(wanted), int32(wanted), int32(wanted), int32(wanted), 0}) {
		missing = append(missing, fmt.Sprintf("the status of the deployment is %d/%d/%d/%d/%d, want %d each and 0 unavailable",
			s.Replicas, s.UpdatedReplicas, s.ReadyReplicas, s.AvailableReplicas, s.UnavailableReplicas, wanted))
	}
	return missing
}

func conditionsOf(conditions []metav1.Condition) string {
	var out []string
	for _, c := range conditions {
		out = append(out, fmt.Sprintf("%s=%s (%s)", c.Type, c.Status, c.Reason))
	}
	return strings.Join(out, ", ")
}
