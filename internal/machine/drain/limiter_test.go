package drain

import (
	"fmt"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// line is a limiter and those that it called.
type line struct {
	*Limiter
	called []string
}

func (l *line) ask(machine string) bool {
	return l.acquire(types.NamespacedName{Name: machine}, 0, func(m types.NamespacedName) {
		l.called = append(l.called, m.Name)
	})
}

func (l *line) leave(machine string) { l.withdraw(types.NamespacedName{Name: machine}) }

func (l *line) expectCalls(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(l.called, want) {
		t.Errorf("called %v, want %v", l.called, want)
	}
	l.called = nil
}

func (l *line) expect(t *testing.T, machine string, want bool) {
	t.Helper()
	if got := l.ask(machine); got != want {
		t.Errorf("%s asks for a place: got %t, want %t", machine, got, want)
	}
}

// Rule: drains-have-own-workers.
func TestLimiterIsFairAndBlocksNobody(t *testing.T) {
	l := &line{Limiter: NewLimiter(2)}
	l.expect(t, "a", true)
	l.expect(t, "b", true)
	l.expect(t, "c", false)
	l.expect(t, "d", false)
	l.expect(t, "c", false) // asks again, and keeps its turn
	l.expectCalls(t)

	l.release()
	l.expectCalls(t, "c")
	l.expect(t, "e", false) // there is a place, but not for those who come late
	l.expect(t, "d", false)
	l.expect(t, "c", true)
	l.release()
	l.release()
	l.expectCalls(t, "d", "e")
	l.expect(t, "e", true)
	l.expect(t, "d", true)
	l.expect(t, "f", false)
}

func TestLimiterGoesOnWithoutThoseWhoLeave(t *testing.T) {
	l := &line{Limiter: NewLimiter(1)}
	l.expect(t, "a", true)
	l.expect(t, "b", false)
	l.expect(t, "c", false)
	l.expect(t, "d", false)
	l.leave("c")
	l.release()
	l.expectCalls(t, "b")
	l.leave("b") // called, and not interested any more
	l.expectCalls(t, "d")
	l.leave("nobody")
	l.expectCalls(t)
	l.expect(t, "d", true)
}

func TestLimiterHasAtLeastOneSlot(t *testing.T) {
	for _, n := range []int{-1, 0, 1} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			l := &line{Limiter: NewLimiter(n)}
			l.expect(t, "a", true)
			l.expect(t, "b", false)
		})
	}
}
