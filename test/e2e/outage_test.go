//go:build e2e

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/test/env"
)

// watchful lets a process notice an outage, and its end, within seconds.
var watchful = []string{"--apiserver-check-period=1s", "--apiserver-check-timeout=3s"}

// The target cluster is unreachable for longer than anything may take: nothing is made or replaced, and what is being
// made or deleted waits. When it is back all of that goes on by itself, and clocks that judge machines begin anew.
// One that joins right after the outage is seen in time, although watches that failed for so long would be silent for
// longer than it has.
//
// Rules: outage-stops-owners, freeze-is-reported, clocks-restart-after-outage, outage-ends-with-caches,
// health-clock-starts-late, no-judgement-in-outage, join-timeout-fails-machine, deletion-waits-for-target.
func TestAnOutageOfTheTargetLongerThanEveryTimeout(t *testing.T) {
	t.Parallel()
	const (
		health = 15 * time.Second
		// creation is less than what client-go waits between two tries after an outage of that length.
		creation = 30 * time.Second
		outage   = 65 * time.Second
	)
	manager, provider := freeAddress(t), freeAddress(t)
	m := start(t, stack.Options{
		SeparateTarget: true,
		ManagerArgs: append([]string{"--health-timeout=" + health.String(), "--health-probe-bind-address=" +
			manager}, watchful...),
		ProviderArgs:               append([]string{"--health-probe-bind-address=" + provider}, watchful...),
		ExtraControllerManagerArgs: []string{"--node-monitor-grace-period=10s", "--node-monitor-period=1s"},
	})
	m.quick()
	withCreation := withTimeouts(v1beta1.MachineTimeouts{Creation: &metav1.Duration{Duration: creation}})
	m.fleet(4, func(o client.Object) {
		withCreation(o)
		// So that the cluster misses a node soon, and sees it soon when it is back.
		if s, ok := o.(*corev1.Secret); ok && s.Name == examples.UserDataSecret {
			const kind = "kind: KubeletConfiguration"
			before, after, _ := strings.Cut(s.StringData[v1beta1.DefaultUserDataKey], kind)
			indent := before[strings.LastIndex(before, "\n"):]
			s.StringData[v1beta1.DefaultUserDataKey] = before + kind + indent + "nodeLeaseDurationSeconds: 8" + indent +
				"nodeStatusUpdateFrequency: 2s" + after
		}
	})
	before := m.running(4)
	silent, deleted := before[0], before[1]
	t.Log("one node is silent before the outage, another machine joins when it begins")
	m.befall(simcloud.FaultSilent, silent)
	m.noticed(silent)
	// Its first request is answered, or one of the next, before its kubelet is weary of asking.
	boot := simcloud.Duration(outage + 2*time.Second)
	m.settings(simcloud.SettingsPatch{BootTime: &boot})
	m.scale(5)
	asked := m.await("a machine whose instance boots", func(machines []v1beta1.Machine) bool {
		return len(machines) == 5 && !slices.ContainsFunc(machines, func(m v1beta1.Machine) bool {
			return m.Spec.ProviderID == ""
		})
	})

	m.do(m.Target.StopAPIServer)
	unreachable := time.Now()
	for _, address := range []string{manager, provider} {
		eventually(t, "the process tells of the outage", func() (bool, string) {
			_, body := get(t, "http://"+address+"/readyz", "")
			return strings.Contains(body, "frozen: The target cluster has been unreachable since "), body
		})
	}
	m.scale(6)
	m.awaitFreeze(metav1.ConditionTrue, v1beta1.ReasonControlPlaneUnreachable)
	m.delete(deleted.Name)
	m.await("a deletion that waits for the target cluster", func(machines []v1beta1.Machine) bool {
		return slices.ContainsFunc(machines, func(m v1beta1.Machine) bool {
			c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionDeleting)
			return m.UID == deleted.UID && c != nil && c.Reason == v1beta1.ReasonTargetUnreachable
		})
	})
	m.throughout(unreachable.Add(outage), func() {
		machines := m.machines()
		if gone := without(uids(asked), uids(machines)); len(gone) > 0 || len(machines) != len(asked) {
			t.Fatalf("the machines are other ones:\n%s\nand before:\n%s", describe(machines), describe(asked))
		}
		mustAskForNone(t, machines, deleted.UID)
		if made, live := len(m.instances()), m.live(); made != 5 || live != 5 {
			t.Fatalf("the cloud made %d instances, of which %d live, want the 5 from before", made, live)
		}
	})
	m.awaitFreeze(metav1.ConditionTrue, v1beta1.ReasonControlPlaneUnreachable)

	m.quick()
	back := time.Now()
	m.do(func() error { return m.Target.StartAPIServer(context.Background()) })
	// It signs the certificates of the nodes that join, and has given up on looking often.
	m.do(func() error { return m.Target.RestartControllerManager(context.Background()) })
	t.Logf("the target cluster was unreachable for %s", time.Since(unreachable).Round(time.Second))
	m.throughout(back.Add(health), func() { mustAskForNone(t, m.machines(), deleted.UID) })
	m.awaitFreeze(metav1.ConditionFalse, v1beta1.ReasonThawed)
	after := m.await("six machines without the deleted and the silent", func(machines []v1beta1.Machine) bool {
		return len(machines) == 6 && !slices.ContainsFunc(machines, func(m v1beta1.Machine) bool {
			return m.UID == deleted.UID || m.UID == silent.UID || m.Status.Phase != v1beta1.MachineRunning ||
				!m.DeletionTimestamp.IsZero()
		})
	})
	mark := m.markOf(silent.UID)
	t.Logf("the silent machine was marked %s after the outage had begun to end, and replaced after %s", mark.at.Sub(back),
		time.Since(back))
	if mark.at.Before(back.Add(health)) {
		t.Errorf("machine %s was marked at %s; the target cluster was unreachable until %s at least", silent.Name,
			mark.at, back)
	}
	if gone := without(uids(asked), append(uids(after), deleted.UID, silent.UID)); len(gone) > 0 {
		t.Errorf("the machines %s were replaced for no reason; left is\n%s", gone, describe(after))
	}
	m.noTwins()
	// Of six machines two have had a predecessor.
	if made, live := len(m.instances()), m.live(); made != 8 || live != 6 {
		t.Errorf("the cloud made %d instances, of which %d live; want 8 and 6", made, live)
	}
}

// The deadline of a drain stands still while nothing can be seen of the pods, in the real processes too.
//
// Rule: outage-extends-drain.
func TestTheDeadlineOfADrainStandsStillInAnOutage(t *testing.T) {
	t.Parallel()
	const (
		drain = 40 * time.Second
		// hold is how long the budget counts: the pod's own grace is longer than the rest.
		hold   = drain / 2
		outage = 22 * time.Second
	)
	m := start(t, stack.Options{SeparateTarget: true, ManagerArgs: watchful, ProviderArgs: watchful})
	m.quick()
	m.fleet(1, withTimeouts(v1beta1.MachineTimeouts{Drain: &metav1.Duration{Duration: drain}}))
	machine := m.running(1)[0]
	pod := m.protectedPod("web", machine.Status.NodeRef.Name)
	m.delete(machine.Name)
	var began time.Time
	m.await("a drain that the budget holds up", func(machines []v1beta1.Machine) bool {
		return slices.ContainsFunc(machines, func(m v1beta1.Machine) bool {
			if m.UID != machine.UID || !blockedBy(&m, pod.Name, "web") {
				return false
			}
			began = meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionDrained).LastTransitionTime.Time
			return true
		})
	})

	m.do(m.Target.StopAPIServer)
	unreachable := time.Now()
	m.throughout(unreachable.Add(outage), func() {
		if in := m.instanceOf(&machine); in.State != simcloud.StateRunning {
			t.Fatalf("the instance is %s", in.State)
		}
	})
	back := time.Now()
	m.do(func() error { return m.Target.StartAPIServer(context.Background()) })
	asked := time.Time{}
	env.Await(t, m.target, &corev1.PodList{}, "the end of the pod", func(l *corev1.PodList) (bool, string) {
		for i := range l.Items {
			if p := &l.Items[i]; p.DeletionTimestamp != nil {
				asked = p.DeletionTimestamp.Add(-time.Duration(*p.DeletionGracePeriodSeconds) * time.Second)
			} else {
				return false, "it runs"
			}
		}
		return true, ""
	}, client.InNamespace(namespace))
	if asked.IsZero() {
		t.Fatal("the pod went without having been asked to")
	}
	// The API keeps whole seconds.
	due := began.Add(hold).Add(back.Sub(unreachable)).Add(-time.Second)
	t.Logf("the drain began at %s, the outage lasted from %s to %s, the pod was asked to end at %s", began, unreachable,
		back, asked)
	if asked.Before(due) {
		t.Errorf("the pod was killed at %s; without the outage its budget holds until %s", asked, due)
	}
	m.await("the end of the drained machine", func(machines []v1beta1.Machine) bool {
		return !slices.ContainsFunc(machines, func(m v1beta1.Machine) bool { return m.UID == machine.UID })
	})
	m.running(1)
	m.noTwins()
}

// API server and database of the control cluster go away in the middle of work. Each process ends once, for its
// lease; and those that follow finish the work, and make nothing twice.
//
// Rules: create-is-idempotent, crash-safe-everywhere, start-waits-for-control-cluster, lease-counts-from-send.
func TestAnOutageOfTheControlClusterUnderLoad(t *testing.T) {
	t.Parallel()
	const (
		small, large = 16, 44
		deleted      = 6
		// outage is longer than a lease can be, and than client-go waits between two tries.
		outage = time.Minute
	)
	m := start(t, stack.Options{
		SeparateTarget: true, ManagerArgs: slices.Concat(watchful, defaultLease),
		ProviderArgs: slices.Concat([]string{"--concurrent-machines=4"}, watchful, defaultLease),
	})
	m.quick()
	m.fleet(small, nil)
	before := m.running(small)
	m.slowCloud()
	processes := m.supervise(m.Manager, m.Provider)

	m.scale(large)
	for i := range deleted {
		m.delete(before[i].Name)
	}
	eventually(t, "both are under way", func() (bool, string) {
		made, live := len(m.instances()), m.live()
		return made >= small+6 && made > live, "few instances were made, or none has gone"
	})
	m.do(m.Control.StopAPIServer)
	m.do(m.Control.StopEtcd)
	unreachable := time.Now()
	if made := len(m.instances()); made >= large+deleted {
		t.Fatalf("all %d instances were made before the outage", made)
	}
	m.throughout(unreachable.Add(outage), m.noTwins)
	m.do(func() error { return m.Control.StartEtcd(context.Background()) })
	m.do(func() error { return m.Control.StartAPIServer(context.Background()) })
	t.Logf("the control cluster was unreachable for %s", time.Since(unreachable).Round(time.Second))

	after := m.running(large)
	if gone := without(uids(before[deleted:]), uids(after)); len(gone) > 0 {
		t.Errorf("the machines %s are gone, and nobody deleted them", gone)
	}
	if back := without(uids(before[:deleted]), uids(after)); len(back) != deleted {
		t.Errorf("of %d deleted machines, %d are gone", deleted, len(back))
	}
	m.noTwins()
	if made, live := len(m.instances()), m.live(); made != large+deleted || live != large {
		t.Errorf("the cloud made %d instances, of which %d live; want %d and %d", made, live, large+deleted, large)
	}
	if nodes := m.nodes(m.target); len(nodes) != large {
		t.Errorf("%d nodes are there, want %d", len(nodes), large)
	}
	for _, p := range []*child.Process{m.Manager, m.Provider} {
		if n := processes.endedForLeases(p); n > 1 {
			t.Errorf("%s ended %d times", p.Name, n)
		}
	}
}

// withTimeouts gives the machines of the example's deployment timeouts.
func withTimeouts(timeouts v1beta1.MachineTimeouts) func(client.Object) {
	return func(o client.Object) {
		if d, ok := o.(*v1beta1.MachineDeployment); ok {
			d.Spec.Template.Spec.Timeouts = timeouts
		}
	}
}

// throughout checks again and again, until a moment.
func (m *machinist) throughout(until time.Time, check func()) {
	m.t.Helper()
	end := time.NewTimer(time.Until(until))
	defer end.Stop()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		check()
		select {
		case <-tick.C:
		case <-end.C:
			check()
			return
		}
	}
}

// awaitFreeze waits until the deployment says whether it is frozen, and why.
func (m *machinist) awaitFreeze(status metav1.ConditionStatus, reason string) {
	m.t.Helper()
	eventually(m.t, "the deployment says Frozen="+string(status)+" "+reason, func() (bool, string) {
		c := meta.FindStatusCondition(m.deployment().Status.Conditions, v1beta1.ConditionFrozen)
		if c == nil {
			return false, "nothing"
		}
		return c.Status == status && c.Reason == reason, c.String()
	})
}

// do fails the test if something that is done to a control plane fails.
func (m *machinist) do(change func() error) {
	m.t.Helper()
	if err := change(); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machinist) machines() []v1beta1.Machine {
	m.t.Helper()
	list := &v1beta1.MachineList{}
	if err := m.control.List(context.Background(), list, client.InNamespace(namespace)); err != nil {
		m.t.Fatalf("list machines: %v", err)
	}
	return list.Items
}

// mustAskForNone fails the test if any machine but one must be replaced, or has Failed.
func mustAskForNone(t *testing.T, machines []v1beta1.Machine, but types.UID) {
	t.Helper()
	for i := range machines {
		m := &machines[i]
		if m.UID != but && (!m.DeletionTimestamp.IsZero() || m.Status.Phase == v1beta1.MachineFailed ||
			meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionRemediationRequested)) {
			t.Fatalf("at %s machine %s must be replaced:\n%s", time.Now(), m.Name, describe(machines))
		}
	}
}

func uids(machines []v1beta1.Machine) []types.UID {
	var out []types.UID
	for i := range machines {
		out = append(out, machines[i].UID)
	}
	return out
}

// without returns what of all is none of others.
func without(all, others []types.UID) []types.UID {
	return slices.DeleteFunc(slices.Clone(all), func(uid types.UID) bool { return slices.Contains(others, uid) })
}
