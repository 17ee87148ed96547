package machine

import (
	"testing"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/fakecloud"
)

// An instance whose Create was not answered may have become a Node with pods when its Machine is deleted. The Node is
// drained and deleted with the Machine.
//
// Rule: unrecorded-instance-looked-up-twice.
func TestInstanceOfALostCreateIsDeletedWithItsNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", joinsWithToken)
	w.createMachine("m")
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

// If a Machine is deleted while its instance is created, the patch of the provider ID conflicts. The answer of Create
// must not be forgotten: a cloud whose reads lag behind does not show the instance yet, and once it is gone, its Node
// could not be found.
//
// Rule: unrecorded-instance-looked-up-twice.
func TestInstanceCreatedDuringADeletionIsRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", joinsWithToken)
	w.createMachine("m")
	w.cloud.Will("Create", fakecloud.Step{During: func() { w.delete("m") }})
	w.reconcile("m")
	if n, id := len(w.cloud.Live()), w.get("m").Spec.ProviderID; n != 1 || id != "" {
		t.Fatalf("%d instances, recorded: %q", n, id)
	}
	w.node("m", true)
	w.cloud.Fail("Get", provider.Errorf(provider.NotFound, "not shown yet"))
	w.untilGone("m")
	w.wantNothingLeft("m")
}
