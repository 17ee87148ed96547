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

// Pods of a node that is gone fail and are removed, whatever they tolerate. The real collector takes most of two
// minutes to believe that a node is gone.
func TestPodsOfANodeThatIsGone(t *testing.T) {
	blocked := pod("blocked")
	blocked.Finalizers = []string{protected}
	compare(t, joins("n"), create(static("static")), create(pod("done")), create(blocked), report(static("static"), ready),
		report(pod("done"), ended), remove(node("n")), change(blocked, func(p *corev1.Pod) { p.Finalizers = nil }))
}

// A volume that no pod wants is detached by force six minutes later where its node is gone or is not ready, and never
// where it is ready and has the volume in use. Six minutes are for FULL=1: no flag changes them.
func TestVolumesAreDetachedByForce(t *testing.T) {
	if os.Getenv("FULL") == "" {
		t.Skip("it takes more than six minutes: set FULL=1")
	}
	now := client.GracePeriodSeconds(0)
	gone, silent, healthy := using("gone", "n", "one"), using("silent", "m", "two"), using("healthy", "o", "three")
	compare(t, storyOf(hosts("n"), hosts("m"), hosts("o"), mounts(healthy, "o", "three"), mounts(gone, "n", "one"),
		mounts(silent, "m", "two"), lives("m", false), remove(healthy, now), remove(gone, now), remove(silent, now),
		remove(node("n")), sentence{what: "six minutes pass", takes: 6 * time.Minute,
			do: func(context.Context, *scene) error { return nil }},
		detached("one", "n"), detached("two", "m"))...)
}
