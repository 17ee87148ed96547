package tiny

import (
	"testing"
	"time"
)

func TestCheck(t *testing.T) {
	for waited, late := range map[time.Duration]bool{Patience: false, Patience + 1: true} {
		if err := Check(waited, 0); (err != nil) != late {
			t.Errorf("after %s: %v", waited, err)
		}
	}
}

func TestBetween(t *testing.T) {
	for n, want := range map[int]bool{1: false, 2: true, 3: true, 4: false} {
		if got := Between(n, 2, 4); got != want {
			t.Errorf("Between(%d, 2, 4) is %v", n, got)
		}
	}
}

func TestHigher(t *testing.T) {
	if got := Higher(1, 2) + Higher(4, 3); got != 6 {
		t.Errorf("the sum of the higher numbers is %d", got)
	}
}
