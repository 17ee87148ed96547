package machine

import (
	"testing"
	"time"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/fakecloud"
)

// The answer of Create was lost, and the instance may already be a Node with pods.
//
// Rule: unrecorded-instance-looked-up-twice.
func TestInstanceOfALostCreateIsDeletedWithItsNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", joinsWithToken)
	w.createMachine("m")
	w.cloud.Script("Create", fakecloud.Step{Err: provider.Errorf(provider.DeadlineExceeded, "no answer"), EffectDelay: time.Nanosecond})
	w.reconcile("m")
	w.step(time.Second)
	if n, id := len(w.cloud.LiveInstances()), w.get("m").Spec.ProviderID; n != 1 || id != "" {
		t.Fatalf("%d instances, recorded: %q", n, id)
	}
	w.node("m", true)
	w.delete("m")
	w.untilGone("m")
	w.wantNothingLeft("m")
}

// The deletion makes the patch of the provider ID fail with a conflict. The answer of Create must be remembered,
// because the cloud may not show the instance yet. The answer also contains the name of the Node, which the controller
// needs to find the Node after the instance is gone.
//
// Rule: unrecorded-instance-looked-up-twice.
func TestInstanceCreatedDuringADeletionIsRecorded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", joinsWithToken)
	w.createMachine("m")
	w.cloud.Script("Create", fakecloud.Step{During: func() { w.delete("m") }})
	w.reconcile("m")
	if n, id := len(w.cloud.LiveInstances()), w.get("m").Spec.ProviderID; n != 1 || id != "" {
		t.Fatalf("%d instances, recorded: %q", n, id)
	}
	w.node("m", true)
	w.cloud.Fail("Get", provider.Errorf(provider.NotFound, "not shown yet"))
	w.untilGone("m")
	w.wantNothingLeft("m")
}
