//go:build e2e

package e2e

import (
	"context"
	"fmt"
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
)

// fastChecks make a process notice the beginning and the end of an outage within seconds.
var fastChecks = []string{"--apiserver-check-period=1s", "--apiserver-check-timeout=3s"}

// The target cluster is unreachable for longer than every timeout. Meanwhile, no machine is created or replaced.
// Afterwards, creations and deletions continue, and the timeouts of machines start again. The process must also
// notice a machine that joins immediately after the outage. To notice this machine, the process must start new
// watches, because the backoff of the old watches is too long by then.
//
// Rules: outage-stops-owners, freeze-is-reported, clocks-restart-after-outage, outage-ends-with-caches,
// health-clock-starts-late, no-judgement-in-outage, join-timeout-fails-machine, deletion-waits-for-target.
func TestTargetOutageLongerThanTimeouts(t *testing.T) {
	t.Parallel()
	const (
		health = 15 * time.Second
		// This creation timeout is shorter than client-go's retry interval after such an outage.
		creation = 30 * time.Second
		outage   = 65 * time.Second
	)
	manager, provider := freeAddress(t), freeAddress(t)
	m := start(t, stack.Options{
		SeparateTarget: true,
		ManagerArgs: append([]string{"--health-timeout=" + health.String(), "--health-probe-bind-address=" +
			manager}, fastChecks...),
		ProviderArgs:               append([]string{"--health-probe-bind-address=" + provider}, fastChecks...),
		ExtraControllerManagerArgs: []string{"--node-monitor-grace-period=10s", "--node-monitor-period=1s"},
	})
	m.removeDelays()
	withCreation := withTimeouts(v1beta1.MachineTimeouts{Creation: &metav1.Duration{Duration: creation}})
	m.createFleet(4, func(o client.Object) {
		withCreation(o)
		// These settings let the target cluster detect silent and recovered nodes quickly.
		if s, ok := o.(*corev1.Secret); ok && s.Name == examples.UserDataSecret {
			const kind = "kind: KubeletConfiguration"
			before, after, _ := strings.Cut(s.StringData[v1beta1.DefaultUserDataKey], kind)
			indent := before[strings.LastIndex(before, "\n"):]
			s.StringData[v1beta1.DefaultUserDataKey] = before + kind + indent + "nodeLeaseDurationSeconds: 8" + indent +
				"nodeStatusUpdateFrequency: 2s" + after
		}
	})
	before := m.awaitRunning(4)
	silent, deleted := before[0], before[1]
	t.Log("one node becomes silent before the outage, and another machine boots when the outage begins")
	m.injectFault(simcloud.FaultSilent, silent)
	m.awaitSilent(silent)
	// The machine joins right after the outage. If its kubelet started earlier, the kubelet would wait long between
	// its attempts.
	boot := simcloud.Duration(outage + 2*time.Second)
	m.settings(simcloud.SettingsPatch{BootTime: &boot})
	m.scale(5)
	machinesInOutage := m.await("a fifth machine with a booting instance", func(machines []v1beta1.Machine) bool {
		return len(machines) == 5 && !slices.ContainsFunc(machines, func(m v1beta1.Machine) bool {
			return m.Spec.ProviderID == ""
		})
	})

	m.must(m.Target.StopAPIServer)
	unreachable := time.Now()
	for _, address := range []string{manager, provider} {
		eventually(t, "the process reports the outage", func() (bool, string) {
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
	m.checkUntil(unreachable.Add(outage), func() {
		machines := m.machines()
		if gone := missing(uids(machinesInOutage), uids(machines)); len(gone) > 0 || len(machines) != len(machinesInOutage) {
			t.Fatalf("the machines have changed:\n%s\nbefore:\n%s", describe(machines), describe(machinesInOutage))
		}
		wantNoReplacement(t, machines, deleted.UID)
		if made, live := len(m.instances()), m.countLive(); made != 5 || live != 5 {
			t.Fatalf("got %d created and %d live instances, want 5 and 5", made, live)
		}
	})
	m.awaitFreeze(metav1.ConditionTrue, v1beta1.ReasonControlPlaneUnreachable)

	m.removeDelays()
	back := time.Now()
	m.must(func() error { return m.Target.StartAPIServer(context.Background()) })
	// The controller manager signs the certificates of joining nodes. Without a restart, the controller manager would
	// retry too late.
	m.must(func() error { return m.Target.RestartControllerManager(context.Background()) })
	t.Logf("the target cluster was unreachable for %s", time.Since(unreachable).Round(time.Second))
	m.checkUntil(back.Add(health), func() { wantNoReplacement(t, m.machines(), deleted.UID) })
	m.awaitFreeze(metav1.ConditionFalse, v1beta1.ReasonThawed)
	after := m.await("six running machines without the deleted and the silent one", func(machines []v1beta1.Machine) bool {
		return len(machines) == 6 && !slices.ContainsFunc(machines, func(m v1beta1.Machine) bool {
			return m.UID == deleted.UID || m.UID == silent.UID || m.Status.Phase != v1beta1.MachineRunning ||
				!m.DeletionTimestamp.IsZero()
		})
	})
	mark := m.markEvent(silent.UID)
	t.Logf("the silent machine was marked %s after the API server was started, and replaced after %s", mark.at.Sub(back),
		time.Since(back))
	if mark.at.Before(back.Add(health)) {
		t.Errorf("machine %s was marked at %s, too early after the target cluster was unreachable until %s", silent.Name,
			mark.at, back)
	}
	if gone := missing(uids(machinesInOutage), append(uids(after), deleted.UID, silent.UID)); len(gone) > 0 {
		t.Errorf("machines %s were replaced without a reason; the remaining machines are\n%s", gone, describe(after))
	}
	m.wantNoTwins()
	// Eight instances were created for six machines, because two machines were replaced.
	if made, live := len(m.instances()), m.countLive(); made != 8 || live != 6 {
		t.Errorf("got %d created and %d live instances, want 8 and 6", made, live)
	}
}

// The API server and etcd of the control cluster are stopped while machines are being created and deleted. Each process
// may end at most once, when it loses its Lease. The restarted processes must finish the work without creating anything
// twice.
//
// Rules: create-is-idempotent, crash-safe-everywhere, start-waits-for-control-cluster, lease-counts-from-send.
func TestControlClusterOutageUnderLoad(t *testing.T) {
	t.Parallel()
	const (
		small, large = 16, 44
		deleted      = 6
		// outage is longer than the lease duration and longer than client-go's retry interval.
		outage = time.Minute
	)
	m := start(t, stack.Options{
		SeparateTarget: true, ManagerArgs: slices.Concat(fastChecks, defaultLease),
		ProviderArgs: slices.Concat([]string{"--concurrent-machines=4"}, fastChecks, defaultLease),
	})
	m.removeDelays()
	m.createFleet(small, nil)
	before := m.awaitRunning(small)
	m.slowCloud()
	processes := m.supervise(m.Manager, m.Provider)

	m.scale(large)
	for i := range deleted {
		m.delete(before[i].Name)
	}
	eventually(t, "creations and deletions are under way", func() (bool, string) {
		made, live := len(m.instances()), m.countLive()
		return made >= small+6 && made > live, fmt.Sprintf("%d created and %d live instances", made, live)
	})
	m.must(m.Control.StopAPIServer)
	m.must(m.Control.StopEtcd)
	unreachable := time.Now()
	if made := len(m.instances()); made >= large+deleted {
		t.Fatalf("all %d instances were created before the outage", made)
	}
	m.checkUntil(unreachable.Add(outage), m.wantNoTwins)
	m.must(func() error { return m.Control.StartEtcd(context.Background()) })
	m.must(func() error { return m.Control.StartAPIServer(context.Background()) })
	t.Logf("the control cluster was unreachable for %s", time.Since(unreachable).Round(time.Second))

	after := m.awaitRunning(large)
	if gone := missing(uids(before[deleted:]), uids(after)); len(gone) > 0 {
		t.Errorf("machines %s are gone although they were not deleted", gone)
	}
	if gone := missing(uids(before[:deleted]), uids(after)); len(gone) != deleted {
		t.Errorf("got %d gone machines, want the %d deleted ones", len(gone), deleted)
	}
	m.wantNoTwins()
	if made, live := len(m.instances()), m.countLive(); made != large+deleted || live != large {
		t.Errorf("got %d created and %d live instances, want %d and %d", made, live, large+deleted, large)
	}
	if nodes := m.nodes(m.target); len(nodes) != large {
		t.Errorf("got %d nodes, want %d", len(nodes), large)
	}
	for _, p := range []*child.Process{m.Manager, m.Provider} {
		if n := processes.leaseExits(p); n > 1 {
			t.Errorf("%s ended %d times, want at most once", p.Name, n)
		}
	}
}

func withTimeouts(timeouts v1beta1.MachineTimeouts) func(client.Object) {
	return func(o client.Object) {
		if d, ok := o.(*v1beta1.MachineDeployment); ok {
			d.Spec.Template.Spec.Timeouts = timeouts
		}
	}
}

func (m *machinist) checkUntil(until time.Time, check func()) {
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

func (m *machinist) awaitFreeze(status metav1.ConditionStatus, reason string) {
	m.t.Helper()
	eventually(m.t, "the deployment reports Frozen="+string(status)+" "+reason, func() (bool, string) {
		c := meta.FindStatusCondition(m.deployment().Status.Conditions, v1beta1.ConditionFrozen)
		if c == nil {
			return false, "no condition Frozen"
		}
		return c.Status == status && c.Reason == reason, c.String()
	})
}

func (m *machinist) must(change func() error) {
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

// wantNoReplacement fails the test if a machine has failed, is being deleted or is marked for replacement, except the
// given one.
func wantNoReplacement(t *testing.T, machines []v1beta1.Machine, except types.UID) {
	t.Helper()
	for i := range machines {
		m := &machines[i]
		if m.UID != except && (!m.DeletionTimestamp.IsZero() || m.Status.Phase == v1beta1.MachineFailed ||
			meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionRemediationRequested)) {
			t.Fatalf("machine %s is about to be replaced at %s:\n%s", m.Name, time.Now(), describe(machines))
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

func missing(all, others []types.UID) []types.UID {
	return slices.DeleteFunc(slices.Clone(all), func(uid types.UID) bool { return slices.Contains(others, uid) })
}
