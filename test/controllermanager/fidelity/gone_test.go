//go:build e2e

package fidelity

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// Pods of a node that is gone fail and are removed, whatever they tolerate. The real collector takes most of two
// minutes to believe that a node is gone.
func TestPodsOfANodeThatIsGone(t *testing.T) {
	blocked := pod("blocked")
	blocked.Finalizers = []string{protected}
	compare(t, joins("n"), create(static("static")), create(pod("done")), create(blocked), report(static("static"), ready),
		report(pod("done"), ended), sentence{what: "the node is deleted", do: func(ctx context.Context, s *scene) error {
			n := node("n")
			s.qualify(n)
			return s.Delete(ctx, n)
		}}, change(blocked, func(p *corev1.Pod) { p.Finalizers = nil }))
}
