package preview

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
	"machinist.dev/machinist/internal/fleet/machineset"
	"machinist.dev/machinist/internal/fleet/rollout/handover"
	"machinist.dev/machinist/internal/machine/preservation"
)

// simulation is a deployment whose controllers are played: what they decide is the production code's, what the world
// makes of it is ideal.
type simulation struct {
	deployment *v1beta1.MachineDeployment
	now        time.Time
	sets       []*v1beta1.MachineSet
	machines   map[types.UID][]*v1beta1.Machine // by set
	made       int
	// last is the preview of the last pass.
	last machinedeployment.Previewed
	// asleep are sets that had nothing to do, and of which nothing has changed since.
	asleep map[types.UID]bool
	// propagated are machines that get in place what does not roll, released those that their sets let go since they do
	// not match any more.
	propagated, released map[string]bool
}

func newSimulation(f Fleet) *simulation {
	p := &simulation{deployment: f.After.DeepCopy(), now: f.Now, machines: map[types.UID][]*v1beta1.Machine{},
		propagated: map[string]bool{}, released: map[string]bool{}, asleep: map[types.UID]bool{}}
	for _, set := range f.Sets {
		set = set.DeepCopy()
		set.Status.ObservedGeneration = set.Generation
		p.sets = append(p.sets, set)
	}
	for _, m := range f.Machines {
		owner := metav1.GetControllerOfNoCopy(m)
		if owner == nil || preservation.Preserved(m) {
			continue
		}
		p.machines[owner.UID] = append(p.machines[owner.UID], m.DeepCopy())
	}
	return p
}

// mostPasses bounds the passes within one wave: a hand-over takes four for each set.
const mostPasses = 1000

var errEndless = errors.New("the rollout has no end that can be previewed")

// decide lets the controllers decide and act until they wait for the world. It returns what they did, nil if nothing.
func (p *simulation) decide() (*Wave, error) {
	w := &Wave{Create: map[string]int32{}}
	for range mostPasses {
		f, err := machinedeployment.Preview(p.deployment, p.sets, p.machines, p.now)
		if err != nil {
			return nil, err
		}
		p.last = f
		acted := p.scale(f.Sets)
		if f.Doing != "" && !slices.Contains(w.Why, f.Doing) {
			w.Why = append(w.Why, f.Doing)
		}
		for _, set := range p.sets {
			if p.asleep[set.UID] {
				continue
			}
			p.asleep[set.UID] = true
			acted = p.act(set, w) || acted
		}
		if !acted {
			p.count(w)
			if len(w.Create)+len(w.Delete)+len(w.Update) == 0 {
				return nil, nil
			}
			slices.Sort(w.Delete)
			slices.Sort(w.Update)
			return w, nil
		}
	}
	return nil, errEndless
}

// scale makes the sets what a pass wants them to be.
func (p *simulation) scale(wanted []*v1beta1.MachineSet) (acted bool) {
	byUID := make(map[types.UID]*v1beta1.MachineSet, len(p.sets))
	for _, set := range p.sets {
		byUID[set.UID] = set
	}
	sets := make([]*v1beta1.MachineSet, 0, len(wanted))
	for _, set := range wanted {
		if set.UID == "" {
			set.UID, set.Generation, set.CreationTimestamp = types.UID("future/"+set.Name), 1, metav1.NewTime(p.now)
			acted = true
		} else if before := byUID[set.UID]; !equality.Semantic.DeepEqual(before, set) {
			if !equality.Semantic.DeepEqual(before.Spec, set.Spec) {
				set.Generation++
			}
			acted = true
		}
		set.Status.ObservedGeneration = set.Generation
		sets = append(sets, set)
	}
	p.sets = sets
	if acted {
		clear(p.asleep) // in a hand-over sets check one another
	}
	return acted
}

// act does what a set's controller does next.
func (p *simulation) act(set *v1beta1.MachineSet, w *Wave) (acted bool) {
	s := machineset.State{Set: set, Machines: p.machines[set.UID], Receiver: p.receiverOf(set),
		Expecting: p.expecting(set), Surge: int(p.last.MaxSurge),
		MaxInFlight: p.maxInFlight(), Now: p.now}
	plan := machineset.Decide(s)
	for _, m := range slices.Concat(plan.Delete, plan.Remediate) {
		gone := m.DeepCopy()
		at := metav1.NewTime(p.now)
		gone.DeletionTimestamp = &at
		p.replace(set.UID, gone)
		w.Delete = append(w.Delete, m.Name)
	}
	for _, m := range plan.Release {
		p.machines[set.UID] = slices.DeleteFunc(p.machines[set.UID], func(o *v1beta1.Machine) bool { return o.UID == m.UID })
		p.released[m.Name] = true
	}
	for _, update := range plan.HandOver {
		to := update.To.DeepCopy()
		to.Generation++ // what it must be has changed
		p.machines[set.UID] = slices.DeleteFunc(p.machines[set.UID], func(m *v1beta1.Machine) bool { return m.UID == to.UID })
		p.machines[s.Receiver.UID] = append(p.machines[s.Receiver.UID], to)
		w.Update = append(w.Update, to.Name)
	}
	for _, update := range plan.Update {
		if update.From.DeletionTimestamp.IsZero() {
			p.propagated[update.From.Name] = true
		}
		p.replace(set.UID, update.To)
	}
	for range plan.Create {
		p.machines[set.UID] = append(p.machines[set.UID], p.create(set))
	}
	if plan.Create > 0 {
		w.Create[set.Name] += int32(plan.Create)
	}
	set.Status.Replicas = int32(len(p.machines[set.UID]))
	if plan.Settled() {
		return false
	}
	clear(p.asleep)
	return true
}

func (p *simulation) replace(set types.UID, m *v1beta1.Machine) {
	for i, old := range p.machines[set] {
		if old.UID == m.UID {
			p.machines[set][i] = m
		}
	}
}

// create returns a machine of the set that is not launched yet.
func (p *simulation) create(set *v1beta1.MachineSet) *v1beta1.Machine {
	p.made++
	name := fmt.Sprintf("%s%d", previewed, p.made)
	labels := maps.Clone(set.Spec.Template.ObjectMeta.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1beta1.LabelMachineSet] = set.Name
	return &v1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), Namespace: set.Namespace, Generation: 1, CreationTimestamp: metav1.NewTime(p.now),
			Labels:          labels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, v1beta1.GroupVersion.WithKind("MachineSet"))},
		},
		Spec: *set.Spec.Template.Spec.DeepCopy(),
	}
}

// previewed begins the names of machines that do not exist. No machine has such a name.
const previewed = "future/"

// receiverOf returns the set that the given one has to hand machines over to, nil if there is none ready.
func (p *simulation) receiverOf(set *v1beta1.MachineSet) *v1beta1.MachineSet {
	order, ok := handover.OrderOf(set.Annotations)
	for _, to := range p.sets {
		if ok && to.Name == order.To && to.Annotations[v1beta1.AnnotationReceiveFrom] == set.Name {
			return to
		}
	}
	return nil
}

// expecting reports whether machines are being handed over to the set.
func (p *simulation) expecting(set *v1beta1.MachineSet) bool {
	return slices.ContainsFunc(p.sets, func(from *v1beta1.MachineSet) bool {
		to := p.receiverOf(from)
		return to != nil && to.UID == set.UID
	})
}

// maxInFlight is how many failed machines are replaced at a time.
func (p *simulation) maxInFlight() int {
	limit := p.deployment.Spec.Remediation.MaxInFlightOrDefault()
	n, err := intstr.GetScaledValueFromIntOrPercent(&limit, int(p.deployment.ReplicasOrDefault()), true)
	if err != nil {
		return 0
	}
	return n
}

// count notes how many machines there are at the end of a wave's decisions, before the world has followed.
func (p *simulation) count(w *Wave) {
	for _, machines := range p.machines {
		for _, m := range machines {
			w.Existing++
			if !m.DeletionTimestamp.IsZero() {
				continue
			}
			w.Live++
			if p.available(m) {
				w.Available++
			}
		}
	}
}

// available reports whether the machine is what it must be, and has been Ready for long enough.
func (p *simulation) available(m *v1beta1.Machine) bool {
	ready := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	return m.DeletionTimestamp.IsZero() && !handover.Updating(m) && ready != nil && ready.Status == metav1.ConditionTrue &&
		!ready.LastTransitionTime.After(p.longAgo())
}

// longAgo is since when a machine has to be Ready in order to be available now.
func (p *simulation) longAgo() time.Time {
	return p.now.Add(-time.Duration(p.deployment.Spec.MinReadySeconds) * time.Second)
}

// follow lets the world do what was decided: what was deleted is gone, what was made or changed is up and available. It
// reports whether anything was left to do. Machines that are in trouble stay as they are. No time passes.
func (p *simulation) follow() (acted bool) {
	for uid, machines := range p.machines {
		var rest []*v1beta1.Machine
		for _, m := range machines {
			switch {
			case !m.DeletionTimestamp.IsZero():
				acted = true
				continue
			case m.Status.Phase == v1beta1.MachineFailed, m.Status.Phase == v1beta1.MachineUnhealthy, p.available(m):
			default:
				m, acted = p.up(m), true
			}
			rest = append(rest, m)
		}
		p.machines[uid] = rest
	}
	if acted {
		clear(p.asleep)
	}
	return acted
}

// up returns the machine as one that runs and is available.
func (p *simulation) up(m *v1beta1.Machine) *v1beta1.Machine {
	m = m.DeepCopy()
	m.Status.Phase = v1beta1.MachineRunning
	if m.Spec.ProviderID == "" {
		m.Spec.ProviderID = "future://" + m.Name
	}
	for _, kind := range []string{v1beta1.ConditionReady, v1beta1.ConditionUpToDate} {
		meta.RemoveStatusCondition(&m.Status.Conditions, kind)
		meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: "Previewed", LastTransitionTime: metav1.NewTime(p.longAgo()),
			ObservedGeneration: m.Generation})
	}
	return m
}
