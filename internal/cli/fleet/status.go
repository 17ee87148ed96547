package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/rollout"
	"machinist.dev/machinist/internal/cli/why"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// Status is the status of all fleets of a namespace, or of all namespaces.
type Status struct {
	// Now is the time when the objects were read.
	Now time.Time `json:"now"`
	// Namespace is the namespace that was read. Empty means all namespaces.
	Namespace string `json:"namespace,omitempty"`
	// Deployments lists all deployments. Sets lists the MachineSets that no deployment owns.
	Deployments []Scaled `json:"deployments"`
	Sets        []Scaled `json:"sets"`
	// Loose has an entry for each machine without a set, sorted by name.
	Loose []Loose `json:"machinesWithoutSet"`
	// Freezes lists the deployments and sets that are frozen, with the reasons.
	Freezes []Freeze `json:"freezes"`
	// HealthChecks lists the status of each MachineHealthCheck.
	HealthChecks []HealthCheck `json:"healthChecks"`
	// Budgets are the disruption budgets.
	Budgets []Budget `json:"disruptionBudgets"`
	// Sources are the classes and Secrets with a problem.
	Sources []Source `json:"classesAndSecrets"`
	// Orphans are instances without a Machine, whose tags name a Machine in the namespace.
	Orphans []Orphan `json:"instancesWithoutMachine"`
	// Edited lists the machines that differ from the template of their set.
	Edited []EditedMachine `json:"editedMachines"`
	// Waiting has a group of machines for each reason why machines wait.
	Waiting []why.Group `json:"waiting"`
	// RecentFailures are the latest failures of machines with a deployment, newest first. The machines may have
	// recovered since.
	RecentFailures []why.Failure `json:"recentFailures"`
	// Machines is the number of machines. Settled is the number of machines that run, are up to date and do not wait.
	Machines int `json:"machines"`
	Settled  int `json:"settled"`
	// ToReplace is the number of machines marked for replacement. A disruption budget may delay these replacements.
	ToReplace int `json:"toReplace,omitempty"`
	// Processes are the processes that manage the objects, according to their Leases.
	Processes []why.Process `json:"processes"`
	// ReadErrors holds error messages: one sentence for each kind of object that could not be read.
	ReadErrors []string `json:"unread,omitempty"`
}

// Scaled describes a deployment, or a set without a deployment: its numbers of machines and its rollout.
type Scaled struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Desired is spec.replicas. The other fields are actual numbers of machines. Machines that are being deleted do not
	// count in Updated, Ready, Updating and Failed.
	Desired   int32 `json:"desired"`
	Updated   int   `json:"updated"`
	Ready     int   `json:"ready"`
	Available int32 `json:"available"`
	Updating  int   `json:"updating"`
	Failed    int   `json:"failed"`
	Deleting  int   `json:"deleting"`
	// Strategy is the rollout strategy of a deployment.
	Strategy string `json:"strategy,omitempty"`
	// Rollout is the state. For a deployment, it is a rollout.State or NotReady. For a set, it is AsDeclared, Frozen,
	// ReplicaFailure, Scaling or NotReady.
	Rollout string `json:"rollout"`
	// Reason and Message come from the condition that determines Rollout.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// Placement lists the options of spec.placement.
	Placement []Option `json:"placement,omitempty"`
}

const asDeclared = "AsDeclared"

// Loose describes a machine that belongs to no MachineSet.
type Loose struct {
	Namespace string               `json:"namespace"`
	Name      string               `json:"name"`
	Phase     v1beta1.MachinePhase `json:"phase,omitempty"`
	// PreservedUntil is the time when a preserved machine is deleted.
	PreservedUntil string `json:"preservedUntil,omitempty"`
}

// Freeze describes a frozen deployment or set, and the reason for the freeze.
type Freeze struct {
	Namespace   string     `json:"namespace"`
	Object      string     `json:"object"`
	Reason      string     `json:"reason"`
	Explanation string     `json:"explanation"`
	Message     string     `json:"message,omitempty"`
	Since       *time.Time `json:"since,omitempty"`
}

// Source is a class or Secret with a problem.
type Source struct {
	Namespace   string     `json:"namespace"`
	Object      string     `json:"object"`
	Reason      string     `json:"reason"`
	Explanation string     `json:"explanation"`
	Since       *time.Time `json:"since,omitempty"`
}

// EditedMachine describes a machine that differs from the template of its set.
type EditedMachine struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Field is the path of the first field that differs. The field "is" holds the value in the machine, and the field
	// "set" holds the value in the template.
	Field string `json:"field"`
	Is    string `json:"is"`
	Set   string `json:"set"`
}

// HealthCheck is the status of a MachineHealthCheck.
type HealthCheck struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Machines  int32  `json:"machines"`
	Healthy   int32  `json:"healthy"`
	// Unhealthy are the names of the unhealthy machines.
	Unhealthy []string `json:"unhealthy,omitempty"`
	// RemediationsAllowed is the number of additional machines that may become unhealthy. If more machines become
	// unhealthy, the health check stops requesting replacements.
	RemediationsAllowed int32 `json:"remediationsAllowed"`
	// Reason and Explanation are set while the health check requests no replacements. Since is the time when the health
	// check stopped requesting replacements.
	Reason      string     `json:"reason,omitempty"`
	Explanation string     `json:"explanation,omitempty"`
	Since       *time.Time `json:"since,omitempty"`
}

// StatusOf computes the status from the facts.
func StatusOf(f Facts) Status {
	inv := inventoryOf(f)
	s := Status{
		Now: f.Now, Namespace: f.Namespace, Processes: f.Processes, ReadErrors: f.ReadErrors, Machines: len(f.Machines),
		Deployments: []Scaled{}, Sets: []Scaled{}, Loose: []Loose{}, Freezes: []Freeze{}, HealthChecks: []HealthCheck{},
		Budgets: budgetsOf(f), Sources: sourcesOf(f), Orphans: orphansOf(f), Edited: editedOf(inv),
		RecentFailures: []why.Failure{},
	}
	for i := range f.Deployments {
		d := &f.Deployments[i]
		s.Deployments = append(s.Deployments, deploymentOf(d, inv))
		s.addFreeze(d, "machinedeployment/"+d.Name)
		s.RecentFailures = append(s.RecentFailures, why.FailuresOf(d)...)
	}
	for i := range f.Sets {
		s.addFreeze(&f.Sets[i], "machineset/"+f.Sets[i].Name)
	}
	for _, set := range inv.LooseSets {
		s.Sets = append(s.Sets, setOf(set, inv))
	}
	for _, m := range inv.LooseMachines {
		s.Loose = append(s.Loose, Loose{m.Namespace, m.Name, m.Status.Phase, m.Annotations[v1beta1.AnnotationPreservedUntil]})
	}
	for i := range f.Checks {
		s.HealthChecks = append(s.HealthChecks, checkOf(&f.Checks[i]))
	}
	machines := make([]*v1beta1.Machine, len(f.Machines))
	for i := range f.Machines {
		machines[i] = &f.Machines[i]
		if why.Blocking(machines[i]) == nil {
			s.Settled++
		}
		if machines[i].DeletionTimestamp.IsZero() && machinestate.HasReplaceAnnotation(machines[i]) {
			s.ToReplace++
		}
	}
	s.Waiting = why.Groups(machines, func(m *v1beta1.Machine) string {
		if f.Namespace == "" {
			return m.Namespace + "/" + m.Name
		}
		return m.Name
	})
	why.SortFailures(s.RecentFailures)
	byName := func(a, b Scaled) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}
	slices.SortFunc(s.Deployments, byName)
	slices.SortFunc(s.Freezes, func(a, b Freeze) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Object, b.Object))
	})
	slices.SortFunc(s.Sources, func(a, b Source) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Object, b.Object))
	})
	slices.SortFunc(s.Edited, func(a, b EditedMachine) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(s.HealthChecks, func(a, b HealthCheck) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return s
}

// count increases the counters in s for each of the machines. The function updated reports whether a machine is up to
// date.
func (s *Scaled) count(machines []*v1beta1.Machine, updated func(*v1beta1.Machine) bool) {
	for _, m := range machines {
		if m.DeletionTimestamp != nil {
			s.Deleting++
			continue
		}
		if updated(m) {
			s.Updated++
		}
		if meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionReady) {
			s.Ready++
		}
		switch m.Status.Phase {
		case v1beta1.MachineUpdating:
			s.Updating++
		case v1beta1.MachineFailed:
			s.Failed++
		}
	}
}

func deploymentOf(d *v1beta1.MachineDeployment, inv inventoryAt) Scaled {
	s := Scaled{
		Namespace: d.Namespace, Name: d.Name, Desired: d.ReplicasOrDefault(), Available: d.Status.AvailableReplicas,
		Strategy:  string(d.Spec.Strategy.TypeOrDefault()),
		Placement: optionsOf(d.Spec.Placement, d.Status.Placement, inv.AllMachines(d), inv.classes, d.Namespace),
	}
	current := CurrentSet(d, inv.Sets(d))
	s.count(inv.AllMachines(d), func(m *v1beta1.Machine) bool {
		owner := metav1.GetControllerOf(m)
		return current != nil && owner.UID == current.UID
	})
	progress := rollout.Judge(d, inv.now)
	state := progress.State
	s.Reason, s.Message = progress.Reason, progress.Message
	if live := len(inv.AllMachines(d)) - s.Deleting; state == rollout.StateComplete || state == rollout.StateScaling {
		// The rollout is complete, but the number of machines may be wrong, or some may not be Ready.
		state = rollout.StateComplete
		switch {
		case live != int(s.Desired) || s.Deleting > 0:
			state = rollout.StateScaling
		case s.Ready < live:
			state = rollout.State(notReady(inv.AllMachines(d), inv.now))
		}
		if d.Spec.Paused {
			state, s.Reason = rollout.StatePaused, v1beta1.ReasonDeploymentPaused
		}
	}
	s.Rollout = string(state)
	return s
}

// CurrentSet returns the set of the deployment's current revision, or nil.
func CurrentSet(d *v1beta1.MachineDeployment, sets []*v1beta1.MachineSet) *v1beta1.MachineSet {
	for _, set := range sets {
		if revision := set.Annotations[v1beta1.AnnotationRevision]; revision != "" &&
			revision == fmt.Sprint(d.Status.CurrentRevision) {
			return set
		}
	}
	return nil
}

func setOf(set *v1beta1.MachineSet, inv inventoryAt) Scaled {
	s := Scaled{Namespace: set.Namespace, Name: set.Name, Desired: set.ReplicasOrDefault(),
		Available: set.Status.AvailableReplicas, Rollout: asDeclared,
		Placement: optionsOf(set.Spec.Placement, nil, inv.Machines(set), inv.classes, set.Namespace)}
	s.count(inv.Machines(set), func(m *v1beta1.Machine) bool {
		return meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionUpToDate)
	})
	if s.Ready < len(inv.Machines(set))-s.Deleting {
		s.Rollout = notReady(inv.Machines(set), inv.now)
	}
	for _, kind := range []string{v1beta1.ConditionFrozen, v1beta1.ConditionReplicaFailure, v1beta1.ConditionScalingUp,
		v1beta1.ConditionScalingDown} {
		c := meta.FindStatusCondition(set.Status.Conditions, kind)
		if c == nil || c.Status != metav1.ConditionTrue && c.Reason != v1beta1.ReasonBackingOff {
			continue
		}
		s.Rollout, s.Reason, s.Message = strings.TrimSuffix(strings.TrimSuffix(kind, "Up"), "Down"), c.Reason, c.Message
		break
	}
	return s
}

func (s *Status) addFreeze(o interface {
	metav1.Object
	GetConditions() []metav1.Condition
}, object string) {
	c := meta.FindStatusCondition(o.GetConditions(), v1beta1.ConditionFrozen)
	if c == nil || c.Status != metav1.ConditionTrue {
		return
	}
	s.Freezes = append(s.Freezes, Freeze{o.GetNamespace(), object, c.Reason, why.MeaningOf(c.Type, c.Reason).Explanation,
		c.Message, timeOf(c.LastTransitionTime)})
}

func checkOf(c *v1beta1.MachineHealthCheck) HealthCheck {
	h := HealthCheck{
		Namespace: c.Namespace, Name: c.Name, Machines: c.Status.ExpectedMachines, Healthy: c.Status.CurrentHealthy,
		Unhealthy: c.Status.Targets, RemediationsAllowed: c.Status.RemediationsAllowed,
	}
	allowed := meta.FindStatusCondition(c.Status.Conditions, v1beta1.ConditionRemediationAllowed)
	switch {
	case allowed == nil:
		h.Reason, h.Explanation = why.ReasonUnobserved, "The manager has not processed the health check yet."
	case allowed.Status == metav1.ConditionFalse:
		h.Reason, h.Explanation = allowed.Reason, why.MeaningOf(allowed.Type, allowed.Reason).Explanation
		h.Since = timeOf(allowed.LastTransitionTime)
	}
	return h
}

func timeOf(t metav1.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	utc := t.UTC()
	return &utc
}
