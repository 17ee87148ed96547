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
	"machinist.dev/machinist/internal/fleet/placement"
	"machinist.dev/machinist/internal/fleet/rollout/handover"
	"machinist.dev/machinist/internal/machine/preservation"
)

// simulation simulates a deployment. The real controllers' code makes the decisions, and the simulation executes them
// without failures.
type simulation struct {
	deployment *v1beta1.MachineDeployment
	now        time.Time
	sets       []*v1beta1.MachineSet
	machines   map[types.UID][]*v1beta1.Machine
	created    int
	last       machinedeployment.PassPreview
	// idleSets contains the UIDs of the sets for which the controller has nothing to do until a set or machine
	// changes.
	idleSets map[types.UID]bool
	// propagatedMachines has the names of the machines that the change updates in place. releasedMachines has the
	// names of the machines whose labels no longer match the selector of their set.
	propagatedMachines, releasedMachines map[string]bool
	// keptMachines has the names of the machines that a revision receives unchanged, because their class remains.
	keptMachines map[string]bool
	// capacity is what is known about the capacity of the classes.
	capacity map[string]placement.Capacity
}

func newSimulation(f Fleet) *simulation {
	p := &simulation{deployment: f.NewDeployment.DeepCopy(), now: f.Now, machines: map[types.UID][]*v1beta1.Machine{},
		propagatedMachines: map[string]bool{}, releasedMachines: map[string]bool{}, idleSets: map[types.UID]bool{},
		keptMachines: map[string]bool{}, capacity: f.Capacity}
	for _, set := range f.Sets {
		set = set.DeepCopy()
		set.Status.ObservedGeneration = set.Generation
		p.sets = append(p.sets, set)
	}
	for _, m := range f.Machines {
		owner := metav1.GetControllerOfNoCopy(m)
		if owner == nil || preservation.IsPreserved(m) {
			continue
		}
		p.machines[owner.UID] = append(p.machines[owner.UID], m.DeepCopy())
	}
	return p
}

// maxPasses limits the passes in one wave. A hand-over takes four passes for each set.
const maxPasses = 1000

var errEndless = errors.New("preview the rollout: it does not end after the maximum number of steps")

// decide runs passes until the controllers wait for machines. It returns the decisions of the controllers as a wave, or
// nil if there were no decisions.
func (p *simulation) decide() (*Wave, error) {
	w := &Wave{Create: map[string]int32{}}
	for range maxPasses {
		f, err := machinedeployment.Preview(p.deployment, p.sets, p.machines, p.now)
		if err != nil {
			return nil, err
		}
		p.last = f
		if step := f.Step; step != nil {
			w.Step = fmt.Sprintf("step %d of %d: %s", step.Number, step.Total, step.Version)
		}
		acted := p.scale(f.Sets)
		if f.Actions != "" && !slices.Contains(w.Reasons, f.Actions) {
			w.Reasons = append(w.Reasons, f.Actions)
		}
		for _, set := range p.sets {
			if p.idleSets[set.UID] {
				continue
			}
			p.idleSets[set.UID] = true
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
		clear(p.idleSets) // In a hand-over, the controller of one set also reads the other set.
	}
	return acted
}

func (p *simulation) act(set *v1beta1.MachineSet, w *Wave) (acted bool) {
	s := machineset.State{Set: set, Machines: p.machines[set.UID], Receiver: p.receiverOf(set),
		Expecting: p.isReceiver(set), Surge: int(p.last.MaxSurge),
		MaxInFlight: p.maxInFlight(), Now: p.now, Places: p.placesOf(set)}
	order, _ := handover.OrderOf(set.Annotations)
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
		p.releasedMachines[m.Name] = true
	}
	for _, update := range plan.HandOver {
		to := update.To.DeepCopy()
		if !order.OnlyKept {
			to.Generation++
		}
		p.machines[set.UID] = slices.DeleteFunc(p.machines[set.UID], func(m *v1beta1.Machine) bool { return m.UID == to.UID })
		p.machines[s.Receiver.UID] = append(p.machines[s.Receiver.UID], to)
		if order.OnlyKept {
			p.keptMachines[to.Name] = true
			continue
		}
		w.Update = append(w.Update, to.Name)
	}
	for _, update := range plan.Update {
		if update.From.DeletionTimestamp.IsZero() {
			p.propagatedMachines[update.From.Name] = true
		}
		p.replace(set.UID, update.To)
	}
	for i := range plan.Create {
		m := p.create(set)
		if len(plan.Places) > 0 {
			setPlace(m, plan.Places[i])
		}
		p.machines[set.UID] = append(p.machines[set.UID], m)
	}
	if plan.Create > 0 {
		w.Create[set.Name] += int32(plan.Create)
	}
	replicas := int32(len(p.machines[set.UID]))
	emptied := (set.Status.Replicas == 0) != (replicas == 0)
	set.Status.Replicas = replicas
	if plan.IsEmpty() {
		return emptied // The next step of a rollout over several versions may begin.
	}
	clear(p.idleSets)
	return true
}

func (p *simulation) replace(set types.UID, m *v1beta1.Machine) {
	for i, old := range p.machines[set] {
		if old.UID == m.UID {
			p.machines[set][i] = m
		}
	}
}

func (p *simulation) create(set *v1beta1.MachineSet) *v1beta1.Machine {
	p.created++
	name := fmt.Sprintf("%s%d", simulatedPrefix, p.created)
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

// simulatedPrefix distinguishes the names of simulated machines from real names, which cannot contain a slash.
const simulatedPrefix = "future/"

func (p *simulation) receiverOf(set *v1beta1.MachineSet) *v1beta1.MachineSet {
	order, ok := handover.OrderOf(set.Annotations)
	for _, to := range p.sets {
		if ok && to.Name == order.Receiver && to.Annotations[v1beta1.AnnotationReceiveFrom] == set.Name {
			return to
		}
	}
	return nil
}

func (p *simulation) isReceiver(set *v1beta1.MachineSet) bool {
	return slices.ContainsFunc(p.sets, func(from *v1beta1.MachineSet) bool {
		to := p.receiverOf(from)
		return to != nil && to.UID == set.UID
	})
}

// maxInFlight returns how many failed machines are replaced at the same time.
func (p *simulation) maxInFlight() int {
	limit := p.deployment.Spec.Remediation.MaxInFlightOrDefault()
	n, err := intstr.GetScaledValueFromIntOrPercent(&limit, int(p.deployment.ReplicasOrDefault()), true)
	if err != nil {
		return 0
	}
	return n
}

// count stores the numbers of machines in a wave, before its decisions are executed.
func (p *simulation) count(w *Wave) {
	for _, machines := range p.machines {
		for _, m := range machines {
			w.Existing++
			if !m.DeletionTimestamp.IsZero() {
				continue
			}
			w.Live++
			if p.isAvailable(m) {
				w.Available++
			}
		}
	}
}

// isAvailable reports whether the machine is up to date, and has been Ready for minReadySeconds.
func (p *simulation) isAvailable(m *v1beta1.Machine) bool {
	ready := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	return m.DeletionTimestamp.IsZero() && !handover.Updating(m) && ready != nil && ready.Status == metav1.ConditionTrue &&
		!ready.LastTransitionTime.After(p.latestReadyTime())
}

// latestReadyTime returns the time minReadySeconds ago. A machine that became Ready before this time is available.
func (p *simulation) latestReadyTime() time.Time {
	return p.now.Add(-time.Duration(p.deployment.Spec.MinReadySeconds) * time.Second)
}

// carryOut completes a wave: deleted machines disappear, and created or changed machines become available. Failed
// machines stay. carryOut reports whether anything changed.
func (p *simulation) carryOut() (acted bool) {
	for uid, machines := range p.machines {
		var rest []*v1beta1.Machine
		for _, m := range machines {
			switch {
			case !m.DeletionTimestamp.IsZero():
				acted = true
				continue
			case m.Status.Phase == v1beta1.MachineFailed, m.Status.Phase == v1beta1.MachineUnhealthy, p.isAvailable(m):
			default:
				m, acted = p.makeRunning(m), true
			}
			rest = append(rest, m)
		}
		p.machines[uid] = rest
	}
	if acted {
		clear(p.idleSets)
	}
	return acted
}

func (p *simulation) makeRunning(m *v1beta1.Machine) *v1beta1.Machine {
	m = m.DeepCopy()
	m.Status.Phase = v1beta1.MachineRunning
	if m.Spec.ProviderID == "" {
		m.Spec.ProviderID = "future://" + m.Name
	}
	for _, kind := range []string{v1beta1.ConditionReady, v1beta1.ConditionUpToDate} {
		meta.RemoveStatusCondition(&m.Status.Conditions, kind)
		meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: "Previewed", LastTransitionTime: metav1.NewTime(p.latestReadyTime()),
			ObservedGeneration: m.Generation})
	}
	return m
}
