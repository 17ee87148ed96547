package integration

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

func rollingUpdate(change func(*v1beta1.RollingUpdate)) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) {
		if d.Spec.Strategy.RollingUpdate == nil {
			d.Spec.Strategy.RollingUpdate = &v1beta1.RollingUpdate{}
		}
		change(d.Spec.Strategy.RollingUpdate)
	}
}

func partition(n int32) func(*v1beta1.MachineDeployment) {
	return rollingUpdate(func(u *v1beta1.RollingUpdate) { u.Partition = n })
}

func pauseAfter(machines int32, duration time.Duration) func(*v1beta1.MachineDeployment) {
	return rollingUpdate(func(u *v1beta1.RollingUpdate) {
		u.PauseAfter = &v1beta1.RolloutPause{Machines: machines}
		if duration > 0 {
			u.PauseAfter.Duration = &metav1.Duration{Duration: duration}
		}
	})
}

func promoteRevision(revision string) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) {
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1beta1.AnnotationPromoteRevision, revision)
	}
}

// wantStopped fails unless the rollout is at rest for the given reason, and neither the progress deadline nor another
// pass is due.
func (b *bench) wantStopped(reason string, rolling metav1.ConditionStatus, want map[string]int32) {
	b.Helper()
	b.settle()
	b.wantReplicas(want)
	b.wantCondition(v1beta1.ConditionProgressing, metav1.ConditionUnknown, reason)
	b.wantCondition(v1beta1.ConditionRollingOut, rolling, reason)
	ready := metav1.ConditionTrue
	if rolling == metav1.ConditionTrue {
		ready = metav1.ConditionFalse
	}
	b.wantCondition(v1beta1.ConditionReady, ready, reason)
	b.pass(24 * time.Hour)
	b.took()
	if result := b.reconcile(); result.RequeueAfter != 0 || len(b.took()) > 0 {
		b.Errorf("a day later, the rollout is changed, or the next pass is in %s", result.RequeueAfter)
	}
	b.wantReplicas(want)
}

// Rules: partition-keeps-old, ready-when-rolled-out, settled-deployment-no-write.
func TestPartition(t *testing.T) {
	b := newBench(t)
	b.create(5, class("a"), partition(3))
	b.settle()
	b.wantReplicas(map[string]int32{"a": 5})
	b.wantCondition(v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonRolloutComplete)

	b.change(class("b"))
	b.events.took()
	b.wantStopped(v1beta1.ReasonPartitionReached, metav1.ConditionFalse, map[string]int32{"a": 3, "b": 2})
	if events := b.events.took(); events[len(events)-1] != v1beta1.ReasonPartitionReached {
		t.Errorf("events %v, want the last to be %s", events, v1beta1.ReasonPartitionReached)
	}
	for class, set := range b.sets() {
		if _, outdated := set.Annotations[v1beta1.AnnotationOutdated]; outdated {
			t.Errorf("the nodes of class %s have the taint of outdated nodes, although their machines stay", class)
		}
	}
	b.change(replicas(7))
	b.wantStopped(v1beta1.ReasonPartitionReached, metav1.ConditionFalse, map[string]int32{"a": 3, "b": 4})
	b.change(replicas(2))
	b.wantStopped(v1beta1.ReasonPartitionReached, metav1.ConditionFalse, map[string]int32{"a": 2, "b": 0})
	b.change(replicas(5))
	b.wantStopped(v1beta1.ReasonPartitionReached, metav1.ConditionFalse, map[string]int32{"a": 3, "b": 2})

	b.change(partition(1))
	b.wantStopped(v1beta1.ReasonPartitionReached, metav1.ConditionFalse, map[string]int32{"a": 1, "b": 4})
	b.change(partition(0))
	b.settle()
	b.wantReplicas(map[string]int32{"a": 0, "b": 5})
	b.wantCondition(v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonRolloutComplete)
}

// Rule: partition-not-for-rollback.
func TestRollbackFromAPartitionLeavesNoMachine(t *testing.T) {
	b := newBench(t)
	b.create(5, class("a"), partition(3))
	b.settle()
	b.change(class("b"))
	b.wantStopped(v1beta1.ReasonPartitionReached, metav1.ConditionFalse, map[string]int32{"a": 3, "b": 2})
	b.change(class("a"))
	b.reconcile()
	b.restart()
	b.settle()
	b.wantReplicas(map[string]int32{"a": 5, "b": 0})
	b.wantCondition(v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonRolloutComplete)

	b.change(class("b"))
	b.wantStopped(v1beta1.ReasonPartitionReached, metav1.ConditionFalse, map[string]int32{"a": 3, "b": 2})
	b.change(partition(0))
	b.settle()
	b.change(partition(2))
	b.change(class("a"))
	b.wantStopped(v1beta1.ReasonPartitionReached, metav1.ConditionFalse, map[string]int32{"a": 3, "b": 2})
}

// Rule: pause-after-first-machines.
func TestPauseAfterWaitsForPromotion(t *testing.T) {
	b := newBench(t)
	b.create(4, class("a"), pauseAfter(1, 0))
	b.settle()
	b.wantReplicas(map[string]int32{"a": 4})
	b.change(class("b"))
	b.wantStopped(v1beta1.ReasonWaitingForPromotion, metav1.ConditionTrue, map[string]int32{"a": 3, "b": 1})
	progress := b.wantCondition(v1beta1.ConditionProgressing, metav1.ConditionUnknown, v1beta1.ReasonWaitingForPromotion)
	if !strings.Contains(progress.Message, "machinist rollout promote machinedeployment/") {
		t.Errorf("%q does not contain the command that continues the rollout", progress.Message)
	}
	b.change(promoteRevision("1"))
	b.wantStopped(v1beta1.ReasonWaitingForPromotion, metav1.ConditionTrue, map[string]int32{"a": 3, "b": 1})
	b.change(class("c"))
	b.wantStopped(v1beta1.ReasonWaitingForPromotion, metav1.ConditionTrue, map[string]int32{"a": 3, "b": 0, "c": 1})
	b.change(promoteRevision("2"))
	b.wantStopped(v1beta1.ReasonWaitingForPromotion, metav1.ConditionTrue, map[string]int32{"a": 3, "b": 0, "c": 1})
	b.change(promoteRevision("3"))
	b.reconcile()
	b.wantCondition(v1beta1.ConditionProgressing, metav1.ConditionTrue, v1beta1.ReasonMachineSetUpdated)
	// The set records the promotion.
	b.change(func(d *v1beta1.MachineDeployment) { delete(d.Annotations, v1beta1.AnnotationPromoteRevision) })
	b.restart()
	b.settle()
	b.wantReplicas(map[string]int32{"a": 0, "b": 0, "c": 4})
	b.wantCondition(v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonRolloutComplete)
	b.change(class("d"))
	b.wantStopped(v1beta1.ReasonWaitingForPromotion, metav1.ConditionTrue, map[string]int32{"a": 0, "b": 0, "c": 3, "d": 1})
}

// Rule: pause-after-first-machines.
func TestPauseAfterEndsByTime(t *testing.T) {
	b := newBench(t)
	b.create(4, class("a"), pauseAfter(1, time.Hour))
	b.settle()
	b.change(class("b"))
	b.settle()
	b.wantReplicas(map[string]int32{"a": 3, "b": 1})
	b.wantCondition(v1beta1.ConditionProgressing, metav1.ConditionUnknown, v1beta1.ReasonWaitingForPromotion)
	b.pass(50 * time.Minute)
	b.restart()
	if left := b.reconcile().RequeueAfter; left <= 0 || left > 10*time.Minute {
		t.Errorf("after 50 minutes, the next pass is in %s", left)
	}
	b.wantReplicas(map[string]int32{"a": 3, "b": 1})
	b.pass(11 * time.Minute)
	b.settle()
	b.wantReplicas(map[string]int32{"a": 0, "b": 4})
	b.wantCondition(v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonRolloutComplete)
}
