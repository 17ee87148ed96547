package machine

import (
	"testing"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/fakecloud"
)

// An instance whose creation was answered by nothing may have become a Node with pods when its Machine is deleted.
// The Node goes with it, and not before its pods.
//
// Rule: unrecorded-instance-looked-up-twice.
func TestALostInstanceGoesWithItsNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", joinsWithToken)
	w.born("m")
	w.cloud.Will("Create", fakecloud.Step{Err: provider.Errorf(provider.DeadlineExceeded, "no answer"), Late: time.Nanosecond})
	w.reconcile("m")
	w.step(time.Second)
	if n, id := len(w.cloud.Live()), w.get("m").Spec.ProviderID; n != 1 || id != "" {
		t.Fatalf("%d instances, recorded: %q", n, id)
	}
	w.node("m", true)
	w.delete("m")
	w.untilGone("m")
	w.wantNothingLeft("m")
}

// A Machine that is deleted while its instance is made changes before the provider ID is written. The answer is not
// forgotten for that: a cloud whose reads are late does not show the instance yet, and once it is gone nobody could
// tell whose its Node was.
//
// Rule: unrecorded-instance-looked-up-twice.
func TestAnInstanceMadeInADeletionIsRecordedThoughTheCloudDoesNotShowIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", joinsWithToken)
	w.born("m")
	w.cloud.Will("Create", fakecloud.Step{During: func() { w.delete("m") }})
	w.reconcile("m")
	if n, id := len(w.cloud.Live()), w.get("m").Spec.ProviderID; n != 1 || id != "" {
		t.Fatalf("%d instances, recorded: %q", n, id)
	}
	w.node("m", true)
	w.cloud.Fail("Get", provider.Errorf(provider.NotFound, "it does not show yet"))
	w.untilGone("m")
	w.wantNothingLeft("m")
}
