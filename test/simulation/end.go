package simulation

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/invariants"
)

// End describes the final state of a run without names and times. The values count how often each line occurs.
type End map[string]int

func endOf(w *World) End {
	end := End{}
	count := func(parts ...any) { end[strings.TrimSuffix(fmt.Sprintln(parts...), "\n")]++ }
	of := func(kind string) []client.Object { return w.control.Snapshot(v1beta1.GroupVersion.WithKind(kind)) }
	for _, o := range of("Machine") {
		m := o.(*v1beta1.Machine)
		count("machine", owned(m), classNameOf(m), m.Spec.Version, m.Status.Phase, isDeleting(m), m.Finalizers,
			stableEntries(m.Labels), stableEntries(m.Annotations), conditions(m.Status.Conditions))
	}
	for _, o := range of("MachineSet") {
		s := o.(*v1beta1.MachineSet)
		count("set", templateClass(&s.Spec.Template.Spec, s.Spec.Placement), s.Spec.Template.Spec.Version, invariants.Replicas(s.Spec.Replicas),
			s.Status.Replicas, s.Status.AvailableReplicas, isDeleting(s), s.Finalizers, conditions(s.Status.Conditions))
	}
	for _, o := range of("MachineDeployment") {
		d := o.(*v1beta1.MachineDeployment)
		count("deployment", invariants.Replicas(d.Spec.Replicas), d.Spec.Paused, d.Status.UpdatedReplicas,
			d.Status.AvailableReplicas, isDeleting(d), d.Finalizers, conditions(d.Status.Conditions))
	}
	for _, o := range of("MachineClass") {
		c := o.(*v1beta1.MachineClass)
		count("class", c.Name, isDeleting(c), classFinalizers(w, c), conditions(c.Status.Conditions))
	}
	for _, o := range w.target.Snapshot(nodeKind) {
		n := o.(*corev1.Node)
		if w.isLeft(n) {
			continue
		}
		var taints []string
		for _, t := range n.Spec.Taints {
			taints = append(taints, t.Key)
		}
		count("node", readiness(n), n.Spec.Unschedulable, taints, n.Status.NodeInfo.KubeletVersion, stableEntries(n.Labels),
			slices.Sorted(maps.Keys(n.Annotations)))
	}
	for _, in := range w.cloud.instances {
		if !in.trail.givenAway.IsZero() {
			continue // The object remains only if another installation took it first.
		}
		count("instance", in.spec, cmp.Or(in.kubelet, in.version), in.State, in.owner() == "")
	}
	count("late creations", len(w.cloud.late), "secrets",
		len(w.target.Snapshot(corev1.SchemeGroupVersion.WithKind("Secret")))-w.leftTokens())
	return end
}

// templateClass returns the class of a template, or the classes of the placement.
func templateClass(template *v1beta1.MachineSpec, p *v1beta1.Placement) string {
	if template.ClassRef == nil {
		return strings.Join(p.ClassNames(), ",")
	}
	return template.ClassRef.Name
}

func classNameOf(m *v1beta1.Machine) string {
	if m.Spec.ClassRef == nil {
		return ""
	}
	return m.Spec.ClassRef.Name
}

// classFinalizers returns the finalizers of a class that machines use. For an unused class, the result is empty,
// because the finalizers of such a class may differ between runs.
func classFinalizers(w *World, c *v1beta1.MachineClass) []string {
	for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("Machine")) {
		if ref := o.(*v1beta1.Machine).Spec.ClassRef; ref != nil && ref.Name == c.Name {
			return c.Finalizers
		}
	}
	return nil
}

// anyEnd accepts each end, for scenarios in which administrators or an autoscaler act depending on the current state.
// Other checks of the oracle apply to such runs.
func anyEnd(e End) { clear(e) }

// passedRevisions ignores sets without machines. If a change is reverted early, the deployment creates no set for this
// revision.
func passedRevisions(e End) {
	for line := range e {
		if strings.HasPrefix(line, "set ") && strings.Contains(line, " 0 0 0 ") {
			delete(e, line)
		}
	}
}

// adoptedOrNot removes lines from the end: the lines that are different if a set has adopted a machine without an
// owner. The function SettledDifference checks the numbers of machines, instances and Nodes instead.
func adoptedOrNot(e End) {
	for line := range e {
		kind, _, _ := strings.Cut(line, " ")
		if strings.HasPrefix(line, "machine unowned ") || kind == "instance" || kind == "node" {
			delete(e, line)
		}
	}
	withoutCondition("set", v1beta1.ConditionAdoptionSkipped)(e)
}

// withoutCondition returns a function that removes a condition of a kind, for conditions that depend on when
// administrators act.
func withoutCondition(kind, condition string) func(End) {
	pattern := regexp.MustCompile(regexp.QuoteMeta(condition) + `=[^ \]]+ ?`)
	return func(e End) {
		out := End{}
		for line, n := range e {
			if strings.HasPrefix(line, kind+" ") {
				line = pattern.ReplaceAllString(line, "")
			}
			out[line] += n
		}
		clear(e)
		maps.Copy(e, out)
	}
}

func owned(o client.Object) string {
	if owner := metav1.GetControllerOfNoCopy(o); owner != nil {
		return owner.Kind
	}
	return "unowned"
}

func isDeleting(o client.Object) bool { return !o.GetDeletionTimestamp().IsZero() }

func stableEntries(all map[string]string) []string {
	var out []string
	for key, value := range all {
		switch key {
		case "app", "tier", v1beta1.AnnotationPreserve:
			out = append(out, key+"="+value)
		default:
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// conditions returns the conditions that are compared at the end of a run. It omits conditions with the status False
// about failures, stalls, pauses and freezes, because they exist only if the problem occurred in the run. It also omits
// CapacityAvailable, which exists only if the cloud refused an instance in the run.
func conditions(all []metav1.Condition) []string {
	var out []string
	for _, c := range all {
		relevant := true
		switch c.Type {
		case v1beta1.ConditionReplicaFailure, v1beta1.ConditionPaused, v1beta1.ConditionFrozen, v1beta1.ConditionStalled,
			v1beta1.ConditionReconciling:
			relevant = c.Status != metav1.ConditionFalse
		case v1beta1.ConditionCapacityAvailable:
			relevant = false
		}
		if relevant {
			out = append(out, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
		}
	}
	slices.Sort(out)
	return out
}

func (e End) clone() End { return maps.Clone(e) }

func (e End) difference(from End) string {
	var out []string
	for _, line := range slices.Sorted(maps.Keys(from)) {
		if n := from[line] - e[line]; n > 0 {
			out = append(out, fmt.Sprintf("-%d %s", n, line))
		}
	}
	for _, line := range slices.Sorted(maps.Keys(e)) {
		if n := e[line] - from[line]; n > 0 {
			out = append(out, fmt.Sprintf("+%d %s", n, line))
		}
	}
	return strings.Join(out, "\n    ")
}
