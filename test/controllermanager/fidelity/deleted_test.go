//go:build e2e

package fidelity

import (
	"context"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The pod collector sets the pods of a deleted node to Failed and deletes them, whatever taints the pods tolerate.
// The real collector needs almost two minutes.
func TestPodsOfDeletedNode(t *testing.T) {
	blocked := pod("blocked")
	blocked.Finalizers = []string{finalizer}
	compare(t, joinNode("n"), create(staticPod("static")), create(pod("done")), create(blocked),
		changeStatus(staticPod("static"), setReady), changeStatus(pod("done"), setSucceeded), remove(node("n")),
		change(blocked, func(p *corev1.Pod) { p.Finalizers = nil }))
}

// After six minutes, the controller detaches an unneeded volume by force if its node is deleted or not ready. The
// controller never detaches a volume of a ready node by force. The test needs FULL=1, because no flag shortens the six
// minutes.
func TestVolumesAreDetachedByForce(t *testing.T) {
	if os.Getenv("FULL") == "" {
		t.Skip("the test takes more than six minutes: set FULL=1")
	}
	now := client.GracePeriodSeconds(0)
	deleted, silent, healthy := podWithVolume("deleted", "n", "one"), podWithVolume("silent", "m", "two"),
		podWithVolume("healthy", "o", "three")
	compare(t, steps(joinNodeWithVolumes("n"), joinNodeWithVolumes("m"), joinNodeWithVolumes("o"),
		runPodWithVolume(healthy, "o", "three"), runPodWithVolume(deleted, "n", "one"), runPodWithVolume(silent, "m", "two"),
		setAlive("m", false), remove(healthy, now), remove(deleted, now), remove(silent, now), remove(node("n")),
		step{name: "wait for six minutes", wait: 6 * time.Minute,
			do: func(context.Context, *cluster) error { return nil }}, detachVolume("one", "n"), detachVolume("two", "m"))...)
}
