package simulation

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/autoscaling"
	"machinist.dev/machinist/test/apiserver"
)

// ignores reports whether the deployment is no node group to the autoscaler: it is empty, and its cache does not say
// what a Node of it would offer.
func (a *autoscaler) ignores() bool {
	d := &v1beta1.MachineDeployment{}
	if err := a.control.Get(context.Background(), groupKey, d); err != nil {
		return true
	}
	return a.smallest == 0 && d.ReplicasOrDefault() == 0 && (d.Annotations[v1beta1.AutoscalerCPUAnnotation] == "" ||
		d.Annotations[v1beta1.AutoscalerMemoryAnnotation] == "")
}

// capacityLedger holds the manager to the annotations by which an empty deployment is known.
type capacityLedger struct {
	world *World
	// theirs are those that a person wrote last.
	theirs map[string]string
}

func (l *capacityLedger) begin(w *World) { *l = capacityLedger{world: w, theirs: map[string]string{}} }

func (l *capacityLedger) clone(w *World) capacityLedger {
	return capacityLedger{w, maps.Clone(l.theirs)}
}

// capacityOf returns the capacity annotations of an object.
func capacityOf(o client.Object) map[string]string {
	capacity := map[string]string{}
	for key, value := range o.GetAnnotations() {
		if strings.HasPrefix(key, v1beta1.AutoscalerCapacityPrefix) {
			capacity[key] = value
		}
	}
	return capacity
}

// check notes what people write, and that the manager leaves that alone.
func (l *capacityLedger) check(c apiserver.Change) {
	after, ok := c.New.(*v1beta1.MachineDeployment)
	if !ok || c.Old == nil {
		return
	}
	before, now := capacityOf(c.Old), capacityOf(after)
	if c.Actor == person {
		for key := range before {
			if _, found := now[key]; !found {
				delete(l.theirs, key)
			}
		}
		for key, value := range now {
			if was, had := before[key]; !had || was != value {
				l.theirs[key] = value
			}
		}
		return
	}
	for key, value := range l.theirs {
		if got, found := now[key]; !found || got != value {
			l.world.oracle.breach("autoscaler", "%s changed %s, which a person set to %q, to %q", c.Actor, key, value, got)
		}
	}
}

// missing says which annotations are not what the class of the deployment says.
func (l *capacityLedger) missing() (missing []string) {
	if !l.world.safety.optionalReconcilers.has(NodeGroups) {
		return nil
	}
	classes := map[string]*v1beta1.MachineClass{}
	for _, o := range l.world.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineClass")) {
		classes[o.GetName()] = o.(*v1beta1.MachineClass)
	}
	for _, o := range l.world.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineDeployment")) {
		template := &o.(*v1beta1.MachineDeployment).Spec.Template.Spec
		if template.ClassRef == nil || classes[template.ClassRef.Name] == nil {
			missing = append(missing, fmt.Sprintf("the class of %s is not there", o.GetName()))
			continue
		}
		wanted := autoscaling.Capacity(classes[template.ClassRef.Name], template)
		maps.Copy(wanted, l.theirs)
		if got := capacityOf(o); !maps.Equal(got, wanted) {
			missing = append(missing, fmt.Sprintf("the capacity of %s is %v, not %v", o.GetName(), got, wanted))
		}
	}
	return missing
}

// autoscaledFromZero is an empty fleet that an autoscaler fills and empties, while people roll it and write what they
// think its Nodes offer.
func autoscaledFromZero(r *rand.Rand) []Action {
	decisions := 4 + r.IntN(6)
	actions := []Action{autoscale(decisions)}
	for left := decisions; left > 0; left -= 1 + r.IntN(4) {
		var next Action
		switch r.IntN(4) {
		case 0, 1:
			next = roll([]string{"a", "b", "c"}[r.IntN(3)])
		case 2:
			next = stateCPUs([]string{"7", "0.5", "1"}[r.IntN(3)])
		case 3:
			next = stateCPUs("")
		}
		actions = append(actions, next.onceDecisionsLeft(left))
	}
	return actions
}

// stateCPUs has a person annotate the deployment, or take the annotation away, whosever it is.
func stateCPUs(cpus string) Action {
	return edit(fmt.Sprintf("state %q CPUs", cpus), func(d *v1beta1.MachineDeployment) {
		if cpus == "" {
			delete(d.Annotations, v1beta1.AutoscalerCPUAnnotation)
			return
		}
		if d.Annotations == nil {
			d.Annotations = map[string]string{}
		}
		d.Annotations[v1beta1.AutoscalerCPUAnnotation] = cpus
	})
}
