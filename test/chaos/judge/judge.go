// Package judge checks the changes of a fleet's objects and instances against invariants of Machinist:
//
//   - I1: A Machine and its Node are removed only after the Machine's instance.
//   - I2: A Machine has at most one instance at a time, and keeps it while the Machine is wanted.
//   - I3: No Machine is created beyond the bounds of its set and its deployment. No available Machine is deleted if too
//     few available ones would be left.
//
// A process may base a write on a state that is no longer current at the time of the write. The judge therefore
// considers the period of length Judge.Window before the write. It uses the widest bounds in this period, and counts
// each Machine that was available at some point in this period. The processes' own actions in this period are no
// excuse, because the processes know of these actions.
package judge

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/simcloud"
)

// excuseWindow is the maximum time between the end of a process and the creation of a surplus Machine that the end
// excuses. In this case, the process had sent the request before it ended.
const excuseWindow = 15 * time.Second

// Breach is a breach of an invariant.
type Breach struct {
	At   time.Time
	Rule string
	Text string
}

func (b Breach) String() string {
	return fmt.Sprintf("%s %s: %s", b.At.Format("15:04:05.000"), b.Rule, b.Text)
}

// Judge receives all changes. Only one goroutine may use it at a time.
type Judge struct {
	// Window is the maximum age of the data on which a process bases a decision.
	Window time.Duration

	machines    map[types.UID]*machine
	sets        map[types.UID]*owner
	deployments map[types.UID]*owner
	instances   map[string]*instance
	// expected contains the Machines and instances that something other than the processes is expected to delete.
	expected    map[string]bool
	processEnds []time.Time
	breaches    []Breach
	// excesses contains the surplus Machines that were found. Each is a breach unless the end of a process excuses it.
	excesses []Breach
	// deletions contains the deletions, which are judged at the end, when the judge knows the whole life of each Machine.
	deletions []deletion

	// Machines and Instances are the numbers of all Machines and instances that have ever existed.
	Machines, Instances int
	// Late is the number of instances that were created after the removal of their Machine.
	Late int
}

// deletion is the deletion of an instance by the processes.
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

// ExpectDeletion records that something other than the processes is about to delete a Machine, given by its UID, or an
// instance, given by its ID.
func (j *Judge) ExpectDeletion(id string) { j.expected[id] = true }

// ProcessEnded records the end of a process that creates and deletes Machines.
func (j *Judge) ProcessEnded(at time.Time) { j.processEnds = append(j.processEnds, at) }

// Breaches returns the breaches that were found so far. It also returns the surplus Machines that the end of a process
// excuses.
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

// Certain returns those of the breaches so far that no later change can excuse.
func (j *Judge) Certain() []Breach { return j.breaches }

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

// instance contains what the judge knows about an instance.
type instance struct {
	uid      types.UID
	hostname string
	state    simcloud.InstanceState
}

func (i *instance) live() bool { return i.state != simcloud.StateTerminated }
