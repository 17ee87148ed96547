package fence

import (
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// A process may be stopped for longer than its deadline. When the process runs again, it must not renew the Lease, even
// if the timer of the fence has not fired yet. A renewal would make the next leader wait for another lease duration.
//
// Rule: lease-counts-from-send.
func TestALeaderThatIsResumedAfterItsDeadlineDoesNotRenew(t *testing.T) {
	api := &lease{clock: clocktesting.NewFakeClock(time.Now())}
	f := New(deadline, lateClock{api.clock})
	lock := f.Guard(api)
	if err := lock.Create(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	api.clock.Step(deadline)
	written := len(api.writes)
	if err := lock.Update(t.Context(), ours); !errors.Is(err, ErrFenced) {
		t.Errorf("Update() = %v, want ErrFenced", err)
	}
	if len(api.writes) != written {
		t.Errorf("the process wrote after its deadline: %v", api.writes[written:])
	}
	mustBeLost(t, f)
}
