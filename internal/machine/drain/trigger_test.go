package drain

import (
	"fmt"
	"testing"
)

func TestABellIsHeardByWhoeverComesLater(t *testing.T) {
	var b trigger
	b.enqueue(key("m2"))
	b.enqueue(key("m1"))
	b.enqueue(key("m2"))
	q := startSource(t, b.source())
	if got := fmt.Sprint(q.take()); got != "[m1 m2]" {
		t.Errorf("got %s from before the start, want [m1 m2]", got)
	}
	b.enqueue(key("m3"))
	if got := fmt.Sprint(q.take()); got != "[m3]" {
		t.Errorf("got %s, want [m3]", got)
	}
}
