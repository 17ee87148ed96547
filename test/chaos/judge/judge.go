// Package judge checks the changes of a fleet's objects and instances against invariants of Machinist:
//
//   - I1: A Machine and its Node are removed only after the Machine's instance.
//   - I2: A Machine has at most one instance at a time, and keeps it while the Machine is wanted.
//   - I3: No Machine is created beyond the bounds of its set and its deployment. No available Machine is deleted if too
//     few available ones would be left.
//
// A process may act on a state that is no longer current. So for each write, the judge considers the period of length
// Judge.Window before the write. The judge applies the highest maximum and the lowest minimum of this period, and
// counts each Machine that was available at any time in this period. Machinist's own deletions do not excuse a breach,
// because a process knows its own deletions.
package judge

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/simcloud"
)

// excuseWindow is the time after the end of a process in which a surplus Machine is not a breach. The process may
// have sent the request for this Machine before the process ended.
const excuseWindow = 15 * time.Second

// Breach describes one violation of an invariant.
type Breach struct {
	At   time.Time
	Rule string
	Text string
}

func (b Breach) String() string {
	return fmt.Sprintf("%s %s: %s", b.At.Format("15:04:05.000"), b.Rule, b.Text)
}

// Judge receives all changes. Only one goroutine may use a Judge at a time.
type Judge struct {
	// Window is the maximum age of the data that a process may act on.
	Window time.Duration

	machines    map[types.UID]*machine
	sets        map[types.UID]*owner
	deployments map[types.UID]*owner
	instances   map[string]*instance
	// expected contains the Machines and instances that the test or a user is expected to delete.
	expected    map[string]bool
	processEnds []time.Time
	breaches    []Breach
	// excesses contains an entry for each Machine that was created although the fleet had enough Machines. A surplus
	// Machine is excused if a process had ended within excuseWindow before its creation. Otherwise, the surplus
	// Machine is a breach.
	excesses []Breach
	// deletions contains all deletions. The method Breaches decides at the end which deletions are breaches, because
	// only then the whole life of each Machine is known.
	deletions []deletion

	// Machines and Instances are the numbers of all Machines and instances that have ever existed.
	Machines, Instances int
	// LateInstances counts the instances that were created after the removal of their Machine.
	LateInstances int
}

type deletion struct {
	at  time.Time
	uid types.UID
	id  string
}

// New returns a judge that has not received any changes yet.
func New(window time.Duration) *Judge {
	return &Judge{
		Window:   window,
		machines: map[types.UID]*machine{}, sets: map[types.UID]*owner{}, deployments: map[types.UID]*owner{},
		instances: map[string]*instance{}, expected: map[string]bool{},
	}
}

// ExpectDeletion announces that a user or the test deletes a Machine, given by its UID, or an instance, given by its
// ID.
func (j *Judge) ExpectDeletion(id string) { j.expected[id] = true }

// ProcessEnded records the end of a process that creates and deletes Machines.
func (j *Judge) ProcessEnded(at time.Time) { j.processEnds = append(j.processEnds, at) }

// Breaches returns the invariants that were breached so far. excused contains the surplus Machines that are not
// breaches, because a process had ended shortly before.
func (j *Judge) Breaches() (breaches, excused []Breach) {
	breaches = append(breaches, j.breaches...)
	for _, d := range j.deletions {
		m := j.machines[d.uid]
		if m == nil || !m.unwantedSince.IsZero() && !m.unwantedSince.After(d.at) {
			continue
		}
		breaches = append(breaches, Breach{d.at, "I2",
			fmt.Sprintf("instance %s was deleted, but its machine %s (%s) is wanted", d.id, m.name, d.uid)})
	}
	for _, e := range j.excesses {
		if j.excuses(e.At) {
			excused = append(excused, e)
		} else {
			breaches = append(breaches, e)
		}
	}
	return breaches, excused
}

// CertainBreaches returns the breaches that are final, so that no later change can excuse them.
func (j *Judge) CertainBreaches() []Breach { return j.breaches }

func (j *Judge) excuses(at time.Time) bool {
	for _, end := range j.processEnds {
		if at.Sub(end).Abs() <= excuseWindow {
			return true
		}
	}
	return false
}

func (j *Judge) breach(at time.Time, rule, format string, args ...any) {
	j.breaches = append(j.breaches, Breach{at, rule, fmt.Sprintf(format, args...)})
}

type instance struct {
	uid      types.UID
	hostname string
	state    simcloud.InstanceState
}

func (i *instance) live() bool { return i.state != simcloud.StateTerminated }
