package simulation

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/invariants"
)

// ignoresGroup reports whether the autoscaler ignores the deployment, because it is empty and its annotations lack the
// capacity of a Node.
func (a *autoscaler) ignoresGroup() bool {
	d := &v1beta1.MachineDeployment{}
	if err := a.control.Get(context.Background(), groupKey, d); err != nil {
		return true
	}
	return a.smallest == 0 && d.ReplicasOrDefault() == 0 && (d.Annotations[v1beta1.AutoscalerCPUAnnotation] == "" ||
		d.Annotations[v1beta1.AutoscalerMemoryAnnotation] == "")
}

// capacityLedger checks the annotations with the Node capacity that the manager writes to an empty deployment.
type capacityLedger struct {
	world       *World
	setByPerson map[string]string
}

func (l *capacityLedger) begin(w *World) {
	*l = capacityLedger{world: w, setByPerson: map[string]string{}}
}

func (l *capacityLedger) clone(w *World) capacityLedger {
	return capacityLedger{w, maps.Clone(l.setByPerson)}
}

func capacityOf(o client.Object) map[string]string {
	capacity := map[string]string{}
	for key, value := range o.GetAnnotations() {
		if strings.HasPrefix(key, v1beta1.AutoscalerCapacityPrefix) {
			capacity[key] = value
		}
	}
	return capacity
}

// check records the annotations that administrators write, and reports a breach if the manager changes these
// annotations.
func (l *capacityLedger) check(c apiserver.Change) {
	after, ok := c.New.(*v1beta1.MachineDeployment)
	if !ok || c.Old == nil {
		return
	}
	before, now := capacityOf(c.Old), capacityOf(after)
	if c.Actor == person {
		for key := range before {
			if _, found := now[key]; !found {
				delete(l.setByPerson, key)
			}
		}
		for key, value := range now {
			if was, had := before[key]; !had || was != value {
				l.setByPerson[key] = value
			}
		}
		return
	}
	for key, value := range l.setByPerson {
		if got, found := now[key]; !found || got != value {
			l.world.oracle.breach("autoscaler", "%s changed %s, which a person set to %q, to %q", c.Actor, key, value, got)
		}
	}
}

func (l *capacityLedger) missing() (missing []string) {
	if !l.world.safety.optionalReconcilers.has(NodeGroups) {
		return nil
	}
	classes := map[string]*v1beta1.MachineClass{}
	for _, o := range l.world.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineClass")) {
		classes[o.GetName()] = o.(*v1beta1.MachineClass)
	}
	for _, o := range l.world.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineDeployment")) {
		_, min := o.GetAnnotations()[v1beta1.AutoscalerMinSizeAnnotation]
		if _, max := o.GetAnnotations()[v1beta1.AutoscalerMaxSizeAnnotation]; !min || !max {
			continue // The deployment is not a node group.
		}
		template := &o.(*v1beta1.MachineDeployment).Spec.Template.Spec
		if template.ClassRef == nil || classes[template.ClassRef.Name] == nil {
			missing = append(missing, fmt.Sprintf("the class of %s does not exist", o.GetName()))
			continue
		}
		wanted := invariants.NodeCapacity(classes[template.ClassRef.Name], template)
		maps.Copy(wanted, l.setByPerson)
		if got := capacityOf(o); !maps.Equal(got, wanted) {
			missing = append(missing, fmt.Sprintf("the capacity of %s is %v, want %v", o.GetName(), got, wanted))
		}
	}
	return missing
}

// autoscaledFromZero starts with an empty fleet. An autoscaler fills and empties the fleet, while administrators start
// rollouts and write the capacity annotations of the fleet.
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

// stateCPUs returns an action that sets or removes the CPU annotation of the deployment, even if another client wrote
// it.
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
