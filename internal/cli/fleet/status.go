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

// Status is the fleet at a check.
type Status struct {
	// Now is the time at which it was so.
	Now time.Time `json:"now"`
	// Namespace is the one that was checked, empty for all.
	Namespace string `json:"namespace,omitempty"`
	// Deployments, and Sets that have no deployment.
	Deployments []Scaled `json:"deployments"`
	Sets        []Scaled `json:"sets"`
	// Loose are machines that belong to no set, by name.
	Loose []Loose `json:"machinesWithoutSet"`
	// Freezes are what holds back the making and exchange of machines.
	Freezes []Freeze `json:"freezes"`
	// HealthChecks are all of them.
	HealthChecks []HealthCheck `json:"healthChecks"`
	// Budgets are the disruption budgets.
	Budgets []Budget `json:"disruptionBudgets"`
	// Sources are the classes and Secrets of which no machine can be made, or that are being deleted.
	Sources []Source `json:"classesAndSecrets"`
	// Orphans are the instances without a Machine whose tags name a Machine of the namespace.
	Orphans []Orphan `json:"instancesWithoutMachine"`
	// Edited are the machines that are not what their set would make.
	Edited []Edited `json:"editedMachines"`
	// Waiting is what machines that are not settled wait for.
	Waiting []why.Group `json:"waiting"`
	// RecentFailures are machines of the deployments that failed, newest first. They may be repaired or gone.
	RecentFailures []why.Failure `json:"recentFailures"`
	// Machines is how many there are, Settled how many of them run, are up to date and wait for nothing.
	Machines int `json:"machines"`
	Settled  int `json:"settled"`
	// ToReplace is how many of them a person wants to be replaced by others, which may have to wait for a budget.
	ToReplace int `json:"toReplace,omitempty"`
	// Processes are those that serve what is here, as their leases tell.
	Processes []why.Process `json:"processes"`
	// Unread says what could not be read, and why.
	Unread []string `json:"unread,omitempty"`
}

// Scaled is a deployment, or a set without one.
type Scaled struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Desired is replicas. The other numbers are counted from the machines, those being deleted in Deleting only.
	Desired   int32 `json:"desired"`
	Updated   int   `json:"updated"`
	Ready     int   `json:"ready"`
	Available int32 `json:"available"`
	Updating  int   `json:"updating"`
	Failed    int   `json:"failed"`
	Deleting  int   `json:"deleting"`
	// Strategy is that of a deployment.
	Strategy string `json:"strategy,omitempty"`
	// Rollout is a rollout.State, or NotReady. Of a set it is AsDeclared, or Frozen, ReplicaFailure, Scaling or NotReady.
	Rollout string `json:"rollout"`
	// Reason and Message are those of the condition that reports it.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

// asDeclared is the Rollout of a set that needs nothing.
const asDeclared = "AsDeclared"

// Loose is a machine without a set.
type Loose struct {
	Namespace string               `json:"namespace"`
	Name      string               `json:"name"`
	Phase     v1beta1.MachinePhase `json:"phase,omitempty"`
	// PreservedUntil is when it is deleted, if it was preserved.
	PreservedUntil string `json:"preservedUntil,omitempty"`
}

// Freeze is one object that is held back.
type Freeze struct {
	Namespace   string     `json:"namespace"`
	Object      string     `json:"object"`
	Reason      string     `json:"reason"`
	Explanation string     `json:"explanation"`
	Message     string     `json:"message,omitempty"`
	Since       *time.Time `json:"since,omitempty"`
}

// Source is a class, or a Secret, with which something is wrong.
type Source struct {
	Namespace   string     `json:"namespace"`
	Object      string     `json:"object"`
	Reason      string     `json:"reason"`
	Explanation string     `json:"explanation"`
	Since       *time.Time `json:"since,omitempty"`
}

// Edited is a machine whose specification somebody changed within its set.
type Edited struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Field is the first that differs, Is its value and Set that of the set's template.
	Field string `json:"field"`
	Is    string `json:"is"`
	Set   string `json:"set"`
}

// HealthCheck is what a health check tells.
type HealthCheck struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Machines  int32  `json:"machines"`
	Healthy   int32  `json:"healthy"`
	// Unhealthy are the names of the machines that it judged so.
	Unhealthy []string `json:"unhealthy,omitempty"`
	// RemediationsAllowed is how many more may become unhealthy until it has none replaced any more.
	RemediationsAllowed int32 `json:"remediationsAllowed"`
	// Reason, Says and Since tell why nothing is replaced, if that is so.
	Reason      string     `json:"reason,omitempty"`
	Explanation string     `json:"explanation,omitempty"`
	Since       *time.Time `json:"since,omitempty"`
}

// StatusOf makes the view from what was read.
func StatusOf(f Facts) Status {
	fam := familyOf(f)
	s := Status{
		Now: f.Now, Namespace: f.Namespace, Processes: f.Processes, Unread: f.Unread, Machines: len(f.Machines),
		Deployments: []Scaled{}, Sets: []Scaled{}, Loose: []Loose{}, Freezes: []Freeze{}, HealthChecks: []HealthCheck{},
		Budgets: budgetsOf(f), Sources: sourcesOf(f), Orphans: orphansOf(f), Edited: editedOf(fam),
		RecentFailures: []why.Failure{},
	}
	for i := range f.Deployments {
		d := &f.Deployments[i]
		s.Deployments = append(s.Deployments, deploymentOf(d, fam))
		s.frozen(d, "machinedeployment/"+d.Name)
		s.RecentFailures = append(s.RecentFailures, why.FailuresOf(d)...)
	}
	for i := range f.Sets {
		s.frozen(&f.Sets[i], "machineset/"+f.Sets[i].Name)
	}
	for _, set := range fam.LooseSets {
		s.Sets = append(s.Sets, setOf(set, fam))
	}
	for _, m := range fam.LooseMachines {
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
		if machines[i].DeletionTimestamp.IsZero() && machinestate.Exchanged(machines[i]) {
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
	slices.SortFunc(s.Edited, func(a, b Edited) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	slices.SortFunc(s.HealthChecks, func(a, b HealthCheck) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return s
}

// count counts machines.
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

func deploymentOf(d *v1beta1.MachineDeployment, fam family) Scaled {
	s := Scaled{
		Namespace: d.Namespace, Name: d.Name, Desired: d.ReplicasOrDefault(), Available: d.Status.AvailableReplicas,
		Strategy: string(d.Spec.Strategy.TypeOrDefault()),
	}
	current := CurrentSet(d, fam.Sets(d))
	s.count(fam.AllMachines(d), func(m *v1beta1.Machine) bool {
		owner := metav1.GetControllerOf(m)
		return current != nil && owner.UID == current.UID
	})
	progress := rollout.Judge(d, fam.now)
	state := progress.State
	s.Reason, s.Message = progress.Reason, progress.Message
	if live := len(fam.AllMachines(d)) - s.Deleting; state == rollout.Complete || state == rollout.Scaling {
		// There is nothing to roll out; that does not make it what was asked for, which the machines themselves show.
		state = rollout.Complete
		switch {
		case live != int(s.Desired) || s.Deleting > 0:
			state = rollout.Scaling
		case s.Ready < live:
			state = rollout.State(notReady(fam.AllMachines(d), fam.now))
		}
		if d.Spec.Paused {
			state, s.Reason = rollout.Paused, v1beta1.ReasonDeploymentPaused
		}
	}
	s.Rollout = string(state)
	return s
}

// CurrentSet returns the set of the newest revision, nil if there is none: the one whose revision the deployment names.
func CurrentSet(d *v1beta1.MachineDeployment, sets []*v1beta1.MachineSet) *v1beta1.MachineSet {
	for _, set := range sets {
		if revision := set.Annotations[v1beta1.AnnotationRevision]; revision != "" &&
			revision == fmt.Sprint(d.Status.CurrentRevision) {
			return set
		}
	}
	return nil
}

func setOf(set *v1beta1.MachineSet, fam family) Scaled {
	s := Scaled{Namespace: set.Namespace, Name: set.Name, Desired: set.ReplicasOrDefault(),
		Available: set.Status.AvailableReplicas, Rollout: asDeclared}
	s.count(fam.Machines(set), func(m *v1beta1.Machine) bool {
		return meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionUpToDate)
	})
	if s.Ready < len(fam.Machines(set))-s.Deleting {
		s.Rollout = notReady(fam.Machines(set), fam.now)
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

// frozen notes what holds an object back.
func (s *Status) frozen(o interface {
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
		h.Reason, h.Explanation = why.Unobserved, "No process has judged it yet."
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
