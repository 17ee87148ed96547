package integration

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/versionskew"
)

type server struct {
	version string
	asked   int
}

func (b *bench) target(version string) *server {
	s := &server{version: version}
	b.options.ServerVersion = func(context.Context) string { s.asked++; return s.version }
	b.restart()
	return s
}

func version(v string) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) { d.Spec.Template.Spec.Version = v }
}

// wantHeld reconciles and fails unless the rollout waits for the target cluster and requests another pass.
func (b *bench) wantHeld(replicas map[string]int32, both ...string) {
	b.Helper()
	if result := b.reconcile(); result.RequeueAfter <= 0 || result.RequeueAfter > versionskew.Poll {
		b.Errorf("the next pass is in %s, want it within %s", result.RequeueAfter, versionskew.Poll)
	}
	b.wantReplicas(replicas)
	rolling := b.wantCondition(v1beta1.ConditionRollingOut, metav1.ConditionTrue, v1beta1.ReasonVersionSkew)
	for _, text := range append(both, v1beta1.AnnotationAllowVersionSkew) {
		if !strings.Contains(rolling.Message, text) {
			b.Errorf("the condition %q does not name %s", rolling.Message, text)
		}
	}
	b.wantCondition(v1beta1.ConditionProgressing, metav1.ConditionUnknown, v1beta1.ReasonVersionSkew)
	b.wantCondition(v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonVersionSkew)
}

// Rule: version-skew-waits.
func TestARolloutWaitsUntilTheTargetClusterSupportsItsVersion(t *testing.T) {
	b := newBench(t)
	s := b.target("v1.36.3")
	b.create(3, class("a"), version("v1.36.1"))
	b.settle()
	asked := s.asked
	b.reconcile()
	if s.asked != asked {
		t.Error("a settled fleet asks for the version of the API server")
	}
	b.events.took()
	b.change(func(d *v1beta1.MachineDeployment) { class("b")(d); version("v1.37.0")(d) })
	b.wantHeld(map[string]int32{"a": 3}, "v1.37.0", "v1.36.3")
	if got := b.events.took(); len(got) != 1 || got[0] != v1beta1.ReasonVersionSkew {
		t.Errorf("events %v, want one of %s", got, v1beta1.ReasonVersionSkew)
	}
	b.change(replicas(4))
	b.wantHeld(map[string]int32{"a": 4}, "v1.37.0", "v1.36.3")
	b.play()

	s.version = "v1.37.2"
	b.settle()
	b.wantReplicas(map[string]int32{"a": 0, "b": 4})
	b.wantCondition(v1beta1.ConditionRollingOut, metav1.ConditionFalse, v1beta1.ReasonRolloutComplete)
}

// Rule: version-skew-waits.
func TestTheAnnotationRollsOutAnyVersion(t *testing.T) {
	b := newBench(t)
	b.target("v1.36.3")
	b.create(2, class("a"), version("v1.32.0"))
	b.wantHeld(map[string]int32{}, "v1.32.0", "v1.36.3")
	b.change(func(d *v1beta1.MachineDeployment) {
		d.Annotations = map[string]string{v1beta1.AnnotationAllowVersionSkew: ""}
	})
	b.settle()
	b.wantReplicas(map[string]int32{"a": 2})
	b.wantCondition(v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonRolloutComplete)
}

// Rule: version-skew-waits.
func TestARolloutThatBeganStopsAndCanBeTakenBack(t *testing.T) {
	b := newBench(t)
	s := b.target("")
	b.create(3, class("a"), version("v1.36.1"))
	b.settle()
	b.change(func(d *v1beta1.MachineDeployment) { class("b")(d); version("v1.99.0")(d) })
	b.reconcile()
	b.play()
	before := b.replicas()
	if before["b"] == 0 {
		t.Fatalf("replicas %v, want the rollout to have begun", before)
	}
	s.version = "v1.36.3"
	b.wantHeld(before, "v1.99.0", "v1.36.3")
	b.change(func(d *v1beta1.MachineDeployment) { class("a")(d); version("v1.36.1")(d) })
	b.settle()
	b.wantReplicas(map[string]int32{"a": 3, "b": 0})
}

// Rule: version-skew-waits.
func TestAChangeThatKeepsTheVersionIsRolledOut(t *testing.T) {
	b := newBench(t)
	s := b.target("v1.36.3")
	b.create(2, class("a"), version("v1.33.0"))
	b.settle()
	s.version = "v1.37.0" // The control plane was upgraded, and the machines were not.
	b.change(class("b"))
	b.settle()
	b.wantReplicas(map[string]int32{"a": 0, "b": 2})
}

// Rule: version-skew-waits.
func TestAnUnknownVersionIsNeverHeld(t *testing.T) {
	for name, s := range map[string]struct{ server, kubelet string }{
		"of the server":           {"", "v1.99.0"},
		"of a server in no form":  {"unknown", "v1.99.0"},
		"of the kubelet":          {"v1.36.3", ""},
		"of a pre-release server": {"v1.37.0-alpha.1", "v1.37.0"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.target(s.server)
			b.create(1, class("a"), version(s.kubelet))
			b.settle()
			b.wantReplicas(map[string]int32{"a": 1})
		})
	}
}
