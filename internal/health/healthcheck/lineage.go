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
	// confirmedAfter is how long a replacement must have worked for a row of replacements to be over.
	confirmedAfter = time.Hour
	// vacancyLasts is how long after a machine was deleted a new one is taken for its replacement. Its set makes that at
	// once, or waits for something else than this.
	vacancyLasts = 10 * time.Minute
)

// Who came after those that is kept on the replacement: annotation retry, with how many were replaced in a row before
// it, and the UID of the last of them. It follows from the machines of the set: the one that is replaced is usually
// still there, being deleted, when the other one is created. Only machines that are gone sooner are kept in memory.

// Vacancy is a machine that is being replaced and whose replacement was not seen yet.
type Vacancy struct {
	UID types.UID
	// Row is how many machines in a row were replaced, it included.
	Row int
	At  time.Time
}

// Succession says that a machine came after another.
type Succession struct {
	Machine *v1beta1.Machine
	Vacancy Vacancy
}

// Succeed finds out who replaces those that among the machines of a set, those being deleted included. known are the
// vacancies found before; left are those that remain.
func Succeed(machines []*v1beta1.Machine, known []Vacancy, now time.Time) (found []Succession, left []Vacancy) {
	filled := map[types.UID]bool{}
	var newcomers []*v1beta1.Machine
	for _, m := range machines {
		if _, of, ok := rowOf(m); ok {
			filled[of] = true
		} else if m.DeletionTimestamp.IsZero() {
			newcomers = append(newcomers, m)
		}
	}
	vacancies := slices.Clone(known)
	for _, m := range machines {
		if !m.DeletionTimestamp.IsZero() && wasReplaced(m) && !hasVacancy(vacancies, m.UID) {
			vacancies = append(vacancies, vacancyOf(m, now))
		}
	}
	vacancies = slices.DeleteFunc(vacancies, func(v Vacancy) bool { return filled[v.UID] || now.Sub(v.At) > vacancyLasts })
	slices.SortFunc(vacancies, func(a, b Vacancy) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.UID, b.UID)) })
	slices.SortFunc(newcomers, func(a, b *v1beta1.Machine) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, v := range vacancies {
		at := slices.IndexFunc(newcomers, func(m *v1beta1.Machine) bool {
			return !m.CreationTimestamp.Time.Before(v.At.Truncate(time.Second))
		})
		if at < 0 {
			left = append(left, v)
			continue
		}
		found = append(found, Succession{newcomers[at], v})
		newcomers = slices.Delete(newcomers, at, at+1)
	}
	return found, left
}

// vacancyOf returns the vacancy that a machine leaves, which was deleted now if it does not say when.
func vacancyOf(m *v1beta1.Machine, now time.Time) Vacancy {
	at := now
	if m.DeletionTimestamp != nil {
		at = m.DeletionTimestamp.Time
	}
	row, _, _ := rowOf(m)
	if confirmed(m, at) <= 0 {
		row = 0
	}
	return Vacancy{UID: m.UID, Row: row + 1, At: at}
}

func hasVacancy(all []Vacancy, uid types.UID) bool {
	return slices.ContainsFunc(all, func(v Vacancy) bool { return v.UID == uid })
}

// wasReplaced reports whether a machine being deleted is so because it failed or was found unhealthy.
func wasReplaced(m *v1beta1.Machine) bool {
	return machinestate.FailureOf(m) != "" ||
		meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
}

// confirmed returns how much longer the machine must work, at a time, to have proven that the row before it is over;
// zero or less if it has.
func confirmed(m *v1beta1.Machine, at time.Time) time.Duration {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	switch {
	case c == nil:
		return confirmedAfter
	case c.Status != metav1.ConditionTrue:
		at = c.LastTransitionTime.Time // It ended to be Ready then, if it ever was.
	}
	return confirmedAfter - at.Sub(m.CreationTimestamp.Time)
}

// rowOf returns how many machines in a row were replaced before this one, and the last of them.
func rowOf(m *v1beta1.Machine) (row int, of types.UID, ok bool) {
	text, uid, found := strings.Cut(m.Annotations[v1beta1.AnnotationRemediationRetry], "/")
	row, err := strconv.Atoi(text)
	if !found || err != nil || row < 1 || row > 1<<20 {
		return 0, "", false
	}
	return row, types.UID(uid), true
}

func (v Vacancy) annotation() string { return fmt.Sprintf("%d/%s", v.Row, v.UID) }
