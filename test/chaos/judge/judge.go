// Package judge says of what a fleet's API server and cloud tell, change by change, whether the processes that keep the
// fleet broke a promise:
//
//   - I1: a Machine is gone only when its instance is, and so is its Node.
//   - I2: a Machine has at most one instance at a time, and keeps it while it is wanted.
//   - I3: no Machine is made beyond what its set and its deployment may have, and no available one is deleted if too
//     few would be left.
//
// Whoever decided may have seen an older state than the one that his write met: it counts what was asked, and what was
// available, at any time within Judge.Window before. What the processes themselves did within that time does not excuse
// them: they know of it.
package judge

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/simcloud"
)

// Around is how near to the end of a process that made Machines one may come too many: it had been sent already.
const Around = 15 * time.Second

// Breach is a promise that was broken.
type Breach struct {
	At   time.Time
	Rule string
	Text string
}

func (b Breach) String() string {
	return fmt.Sprintf("%s %s: %s", b.At.Format("15:04:05.000"), b.Rule, b.Text)
}

// Judge gets all changes. It is used by one goroutine at a time.
type Judge struct {
	// Window is how old what a process goes by may be.
	Window time.Duration

	machines    map[types.UID]*machine
	sets        map[types.UID]*owner
	deployments map[types.UID]*owner
	instances   map[string]*instance
	// others are the Machines and instances that somebody else deletes.
	others   map[string]bool
	ended    []time.Time
	breaches []Breach
	// excesses are excused where a process ended.
	excesses []Breach
	// removals are judged when all is known of the Machine.
	removals []removal

	// Machines and Instances count those that ever were.
	Machines, Instances int
	// Late counts instances that came after their Machine was gone.
	Late int
}

// removal is the deletion of an instance by the processes.
type removal struct {
	at  time.Time
	uid types.UID
	id  string
}

// New makes a judge that knows of nothing yet.
func New(window time.Duration) *Judge {
	return &Judge{
		Window:   window,
		machines: map[types.UID]*machine{}, sets: map[types.UID]*owner{}, deployments: map[types.UID]*owner{},
		instances: map[string]*instance{}, others: map[string]bool{},
	}
}

// Others says beforehand that somebody else deletes a Machine, by its UID, or an instance, by its ID.
func (j *Judge) Others(id string) { j.others[id] = true }

// Ended says that a process that makes and deletes Machines came to its end.
func (j *Judge) Ended(at time.Time) { j.ended = append(j.ended, at) }

// Breaches returns what was broken, and what is excused by the end of a process, which the next one must have mended.
func (j *Judge) Breaches() (broken, excused []Breach) {
	broken = append(broken, j.breaches...)
	for _, r := range j.removals {
		m := j.machines[r.uid]
		if m == nil || !m.unwantedSince.IsZero() && !m.unwantedSince.After(r.at) {
			continue
		}
		broken = append(broken, Breach{r.at, "I2", fmt.Sprintf("instance %s was deleted, and its machine %s (%s) is wanted",
			r.id, m.name, r.uid)})
	}
	for _, e := range j.excesses {
		if j.excuses(e.At) {
			excused = append(excused, e)
		} else {
			broken = append(broken, e)
		}
	}
	return broken, excused
}

// Found returns what is broken without uncertainty, so far.
func (j *Judge) Found() []Breach { return j.breaches }

func (j *Judge) excuses(at time.Time) bool {
	for _, end := range j.ended {
		if at.Sub(end).Abs() <= Around {
			return true
		}
	}
	return false
}

func (j *Judge) breach(at time.Time, rule, format string, args ...any) {
	j.breaches = append(j.breaches, Breach{at, rule, fmt.Sprintf(format, args...)})
}

// instance is what is known of one.
type instance struct {
	uid      types.UID
	hostname string
	state    simcloud.InstanceState
}

func (i *instance) live() bool { return i.state != simcloud.StateTerminated }
