package healthcheck

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

const (
	// retriesResetAfter is how long a replacement must work before its retries are forgotten.
	retriesResetAfter = time.Hour
	// replacementWindow is how long after a deletion a new machine counts as the replacement. Sets usually create the
	// replacement at once.
	replacementWindow = 10 * time.Minute
)

// The annotation remediation-retry of a replacement holds the number of replaced machines in a row, and the UID of
// the last replaced machine. A predecessor that is being deleted usually still exists when its replacement is
// created. If the predecessor is removed earlier, this process remembers it in memory.

// Predecessor describes a machine that was deleted in order to be replaced, and whose replacement was not found yet.
type Predecessor struct {
	UID types.UID
	// Retries is how many machines in a row were replaced, including this one.
	Retries int
	At      time.Time
}

// Replacement is a machine that replaces another machine.
type Replacement struct {
	Machine     *v1beta1.Machine
	Predecessor Predecessor
}

// MatchReplacements finds the machines of a set that replace others. The input includes machines being deleted.
func MatchReplacements(machines []*v1beta1.Machine, known []Predecessor,
	now time.Time) (found []Replacement, left []Predecessor) {
	replaced := map[types.UID]bool{}
	var newMachines []*v1beta1.Machine
	for _, m := range machines {
		if _, of, ok := retriesOf(m); ok {
			replaced[of] = true
		} else if m.DeletionTimestamp.IsZero() {
			newMachines = append(newMachines, m)
		}
	}
	predecessors := slices.Clone(known)
	for _, m := range machines {
		if !m.DeletionTimestamp.IsZero() && wasReplaced(m) && !hasPredecessor(predecessors, m.UID) {
			predecessors = append(predecessors, predecessorOf(m, now))
		}
	}
	predecessors = slices.DeleteFunc(predecessors, func(v Predecessor) bool {
		return replaced[v.UID] || now.Sub(v.At) > replacementWindow
	})
	slices.SortFunc(predecessors, func(a, b Predecessor) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.UID, b.UID))
	})
	slices.SortFunc(newMachines, func(a, b *v1beta1.Machine) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, v := range predecessors {
		at := slices.IndexFunc(newMachines, func(m *v1beta1.Machine) bool {
			return !m.CreationTimestamp.Time.Before(v.At.Truncate(time.Second))
		})
		if at < 0 {
			left = append(left, v)
			continue
		}
		found = append(found, Replacement{newMachines[at], v})
		newMachines = slices.Delete(newMachines, at, at+1)
	}
	return found, left
}

// predecessorOf describes a machine that is being replaced. If the machine has no deletion timestamp, its deletion time
// is now.
func predecessorOf(m *v1beta1.Machine, now time.Time) Predecessor {
	at := now
	if m.DeletionTimestamp != nil {
		at = m.DeletionTimestamp.Time
	}
	retries, _, _ := retriesOf(m)
	if untilRetriesReset(m, at) <= 0 {
		retries = 0
	}
	return Predecessor{UID: m.UID, Retries: retries + 1, At: at}
}

func hasPredecessor(all []Predecessor, uid types.UID) bool {
	return slices.ContainsFunc(all, func(v Predecessor) bool { return v.UID == uid })
}

func wasReplaced(m *v1beta1.Machine) bool {
	return machinestate.FailureOf(m) != "" ||
		meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
}

// untilRetriesReset returns how much longer, counted from the time at, the machine must work until its retries are
// forgotten. The result may be negative.
func untilRetriesReset(m *v1beta1.Machine, at time.Time) time.Duration {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	switch {
	case c == nil:
		return retriesResetAfter
	case c.Status != metav1.ConditionTrue:
		at = c.LastTransitionTime.Time // The machine stopped being Ready at this time.
	}
	return retriesResetAfter - at.Sub(m.CreationTimestamp.Time)
}

// retriesOf returns how many machines in a row were replaced before this machine, and the UID of the last replaced
// machine.
func retriesOf(m *v1beta1.Machine) (retries int, of types.UID, ok bool) {
	text, uid, found := strings.Cut(m.Annotations[v1beta1.AnnotationRemediationRetry], "/")
	retries, err := strconv.Atoi(text)
	if !found || err != nil || retries < 1 || retries > 1<<20 {
		return 0, "", false
	}
	return retries, types.UID(uid), true
}

func (v Predecessor) annotation() string { return fmt.Sprintf("%d/%s", v.Retries, v.UID) }
