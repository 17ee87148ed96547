package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// upgradeTo sets the version and the class, with steps as "VERSION CLASS".
func upgradeTo(target, targetClass string, steps ...string) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) {
		version(target)(d)
		class(targetClass)(d)
		d.Spec.VersionSteps = nil
		for _, text := range steps {
			fields := strings.Fields(text)
			d.Spec.VersionSteps = append(d.Spec.VersionSteps, v1beta1.VersionStep{Version: fields[0], ClassName: fields[1]})
		}
	}
}

// wantStep fails unless the status and the conditions describe the step.
func (b *bench) wantStep(number, total int32, version string) {
	b.Helper()
	d := b.deployment()
	want := v1beta1.VersionStepStatus{Number: number, Total: total, Version: version}
	if d.Status.VersionStep == nil || *d.Status.VersionStep != want {
		b.Errorf("the status has the step %+v, want %+v", d.Status.VersionStep, want)
	}
	for _, kind := range []string{v1beta1.ConditionProgressing, v1beta1.ConditionRollingOut, v1beta1.ConditionReady} {
		text := fmt.Sprintf("Step %d of %d: %s.", number, total, version)
		if c := meta.FindStatusCondition(d.Status.Conditions, kind); c == nil || !strings.HasPrefix(c.Message, text) {
			b.Errorf("the condition %s is %+v, want the message to begin with %q", kind, c, text)
		}
	}
	b.wantCondition(v1beta1.ConditionReady, metav1.ConditionFalse, b.wantAnyReason(v1beta1.ConditionReady))
}

func (b *bench) wantAnyReason(kind string) string {
	return meta.FindStatusCondition(b.deployment().Status.Conditions, kind).Reason
}

// Rules: steps-between-minors, ready-when-rolled-out, settled-deployment-no-write.
func TestARolloutTakesOneMinorVersionAtATime(t *testing.T) {
	b := newBench(t)
	b.create(2, class("a"), version("v1.34.2"))
	b.settle()
	b.events.took()
	b.change(upgradeTo("v1.37.1", "d", "v1.34.9 unused", "v1.35.4 b", "v1.36.3 c"))
	var seen []string
	for range 60 {
		b.restart() // The stored objects alone determine the step.
		b.reconcile()
		if step := b.deployment().Status.VersionStep; step != nil && !slices.Contains(seen, step.Version) {
			seen = append(seen, step.Version)
			b.wantStep(step.Number, 4, step.Version)
		}
		replicas := b.replicas()
		for later, earlier := range map[string]string{"c": "a", "d": "b"} {
			if replicas[later] > 0 && replicas[earlier] > 0 {
				t.Fatalf("class %s has machines while class %s has: %v", later, earlier, replicas)
			}
		}
		b.play()
	}
	b.settle()
	b.wantReplicas(map[string]int32{"a": 0, "b": 0, "c": 0, "d": 2})
	if want := []string{"v1.35.4", "v1.36.3", "v1.37.1"}; !slices.Equal(seen, want) {
		t.Errorf("the steps were %v, want %v", seen, want)
	}
	b.wantCondition(v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonRolloutComplete)
	if d := b.deployment(); d.Status.VersionStep != nil || d.Status.CurrentRevision != 4 {
		t.Errorf("after the last step, the status has step %+v and revision %d", d.Status.VersionStep, d.Status.CurrentRevision)
	}
	b.took()
	if b.reconcile(); slices.ContainsFunc(b.took(), func(call string) bool { return strings.HasPrefix(call, "patch") }) {
		t.Error("a settled deployment with steps is written")
	}
}

// Rule: steps-missing-wait.
func TestARolloutWaitsForAMissingStep(t *testing.T) {
	b := newBench(t)
	b.create(2, class("a"), version("v1.34.2"))
	b.settle()
	b.events.took()
	b.change(upgradeTo("v1.36.3", "c", "v1.33.1 unused"))
	for range 3 {
		b.reconcile()
		b.play()
	}
	b.wantReplicas(map[string]int32{"a": 2})
	for _, kind := range []string{v1beta1.ConditionProgressing, v1beta1.ConditionRollingOut, v1beta1.ConditionReady} {
		c := meta.FindStatusCondition(b.deployment().Status.Conditions, kind)
		if c.Reason != v1beta1.ReasonVersionStepMissing || !strings.Contains(c.Message, "version of v1.35 is missing in spec.versionSteps") {
			t.Errorf("the condition %s is %+v", kind, c)
		}
	}
	if got := b.events.took(); !slices.Equal(got, []string{v1beta1.ReasonVersionStepMissing}) {
		t.Errorf("events %v, want one of %s", got, v1beta1.ReasonVersionStepMissing)
	}
	b.change(replicas(3))
	b.reconcile()
	b.play()
	b.wantReplicas(map[string]int32{"a": 3}) // Scaling continues.
	b.pass(24 * time.Hour)
	if result := b.reconcile(); result.RequeueAfter != 0 {
		t.Errorf("the next pass is in %s, although only a change of the deployment ends the wait", result.RequeueAfter)
	}
	b.wantCondition(v1beta1.ConditionProgressing, metav1.ConditionUnknown, v1beta1.ReasonVersionStepMissing)

	b.change(upgradeTo("v1.36.3", "c", "v1.35.4 b"))
	b.settle()
	b.wantReplicas(map[string]int32{"a": 0, "b": 0, "c": 3})
}

// Rule: steps-between-minors.
func TestPauseAfterPausesInEachStep(t *testing.T) {
	b := newBench(t)
	b.create(3, class("a"), version("v1.34.2"), pauseAfter(1, 0))
	b.settle()
	b.change(upgradeTo("v1.36.3", "c", "v1.35.4 b"))
	b.settle()
	b.wantReplicas(map[string]int32{"a": 2, "b": 1})
	b.wantStep(1, 2, "v1.35.4")
	b.change(promoteRevision("2"))
	b.settle()
	b.wantReplicas(map[string]int32{"a": 0, "b": 2, "c": 1})
	b.wantStep(2, 2, "v1.36.3")
	b.change(promoteRevision("3"))
	b.settle()
	b.wantReplicas(map[string]int32{"a": 0, "b": 0, "c": 3})
}

// Rules: steps-between-minors, steps-and-partition.
func TestPartitionStopsTheFirstStep(t *testing.T) {
	b := newBench(t)
	b.create(3, class("a"), version("v1.34.2"), partition(1))
	b.settle()
	b.change(upgradeTo("v1.36.3", "c", "v1.35.4 b"))
	b.settle()
	b.wantReplicas(map[string]int32{"a": 1, "b": 2})
	b.wantStep(1, 2, "v1.35.4")
	b.wantCondition(v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonPartitionReached)
	b.change(partition(0))
	b.settle()
	b.wantReplicas(map[string]int32{"a": 0, "b": 0, "c": 3})
}

// A step is no reason to wait if the step is older than the API server supports. The last step waits for the API
// server.
//
// Rules: version-skew-waits, steps-never-back.
func TestStepsAndTheVersionOfTheTargetCluster(t *testing.T) {
	b := newBench(t)
	b.create(2, class("a"), version("v1.31.2"))
	b.settle()
	s := b.target("v1.36.0")
	b.change(upgradeTo("v1.37.1", "c", "v1.32.1 b", "v1.33.1 d", "v1.34.1 e", "v1.35.1 f", "v1.36.1 g"))
	b.settle()
	d := b.deployment()
	if reason := b.wantAnyReason(v1beta1.ConditionRollingOut); reason != v1beta1.ReasonVersionSkew ||
		d.Status.Replicas != 2 || d.Status.CurrentRevision != 6 {
		t.Errorf("the rollout is at revision %d with reason %s, want revision 6 and %s", d.Status.CurrentRevision, reason,
			v1beta1.ReasonVersionSkew)
	}
	s.version = "v1.37.0"
	b.settle()
	b.wantCondition(v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonRolloutComplete)
}

// Rules: steps-target-changes, rollback-reuses-set.
func TestAStepIsUndone(t *testing.T) {
	b := newBench(t)
	b.create(3, class("a"), version("v1.34.2"))
	b.settle()
	b.change(upgradeTo("v1.36.3", "c", "v1.35.4 b"))
	b.reconcile()
	b.play()
	b.wantReplicas(map[string]int32{"a": 3, "b": 1})
	b.change(upgradeTo("v1.34.2", "a"))
	b.settle()
	b.wantReplicas(map[string]int32{"a": 3, "b": 0})
}
