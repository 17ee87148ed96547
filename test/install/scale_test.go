//go:build e2e && linux

package install

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane/auditlog"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/test/env"
)

const manyMachines = 1000

// An upgrade must not write to any Machine, even in a large fleet. No instance may be lost or created twice if the
// fleet grows during an upgrade, or if an upgrade is interrupted.
func TestUpgradeOverManyMachines(t *testing.T) {
	if !full() {
		t.Skipf("only with %s=1", fullVariable)
	}
	m := newMachinist(t)
	h := helmOf(t, m.cluster, "4")
	m.installCloud(h)
	m.bootAtOnce()
	m.install(h)
	m.fleet("default")
	m.awaitReady("default", fleetSize)
	begun := time.Now()
	m.scale("default", manyMachines)
	m.readyWithin("default", manyMachines, 20*time.Minute)
	progress(t, "%d machines are Ready after %.0f s", manyMachines, time.Since(begun).Seconds())
	live, created := m.instances()

	m.awaitNoWrites()
	m.upgrade(h, "--set=log.level=debug")
	m.wantUntouched("an upgrade over many machines", live, created)

	m.scale("default", manyMachines+100)
	m.upgradeDuringGrowth(h)
	m.readyWithin("default", manyMachines+100, 10*time.Minute)
	live, created = m.instances()
	if want := manyMachines + 100; len(live) != want || created != want {
		t.Errorf("after an upgrade during growth: got %d live instances, %d created, want %d", len(live), created, want)
	}

	for _, after := range []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second} {
		m.interruptedUpgrade(h, after)
	}
	m.upgrade(h)
	m.wantUntouched("interrupted upgrades", live, created)
	m.scale("default", 0)
	m.readyWithin("default", 0, 10*time.Minute)
	m.cleanUp(h)
}

func (m *machinist) bootAtOnce() {
	m.t.Helper()
	instant := simcloud.Duration(0)
	if _, err := m.cloud.PatchSettings(m.t.Context(), simcloud.SettingsPatch{BootTime: &instant}); err != nil {
		m.t.Fatal(err)
	}
}

// readyWithin waits until the fleet has n ready machines. readyWithin has a timeout parameter, because a large fleet
// takes longer.
func (m *machinist) readyWithin(namespace string, n int, timeout time.Duration) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), timeout)
	defer cancel()
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	printed := int32(-1)
	for {
		d := &v1beta1.MachineDeployment{}
		err := m.api.Get(ctx, client.ObjectKey{Namespace: namespace, Name: examples.Deployment}, d)
		if err == nil && int(d.Status.ReadyReplicas) == n && int(d.Status.Replicas) == n {
			return
		}
		select {
		case <-tick.C:
			if d.Status.ReadyReplicas != printed {
				progress(m.t, "%d of %d machines are Ready", d.Status.ReadyReplicas, n)
				printed = d.Status.ReadyReplicas
			}
		case <-ctx.Done():
			m.t.Fatalf("waited %s for %d ready machines (%v); %s", timeout, n, err, m.describe(namespace))
		}
	}
}

func (m *machinist) awaitNoWrites() {
	m.t.Helper()
	log, err := auditlog.Open(m.cluster.AuditLog())
	if err != nil {
		m.t.Fatal(err)
	}
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for range 60 {
		if err := log.Mark(); err != nil {
			m.t.Fatal(err)
		}
		<-tick.C
		counts, err := log.Count(auditlog.Filter{Match: ofMachines})
		if err != nil {
			m.t.Fatal(err)
		}
		if counts.Writes == 0 {
			return
		}
	}
	m.t.Fatal("the writes to Machines did not stop")
}

func (m *machinist) upgradeDuringGrowth(h *helm) {
	m.t.Helper()
	h.run(m.t, slices.Concat([]string{"upgrade", coreRelease, chart("machinist"), "--wait"}, coreValues(),
		[]string{"--set=log.level=info"})...)
	h.run(m.t, slices.Concat([]string{"upgrade", providerRelease, chart("machinist-provider"), "--wait"}, providerValues(),
		[]string{"--set=log.level=info"})...)
}

// interruptedUpgrade kills Helm during an upgrade. Then interruptedUpgrade rolls the release back, as the
// documentation of Helm recommends.
func (m *machinist) interruptedUpgrade(h *helm, after time.Duration) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), after)
	defer cancel()
	args := slices.Concat([]string{"upgrade", coreRelease, chart("machinist"), "--wait"}, coreValues(),
		[]string{fmt.Sprintf("--set=podAnnotations.attempt=after-%s", after)})
	command := exec.CommandContext(ctx, h.path, args...)
	command.Env = h.environment
	err := command.Run()
	progress(m.t, "helm was killed %s after the start of the upgrade: %v", after, err)
	h.run(m.t, "rollback", coreRelease, "--namespace="+system, "--wait")
	env.Await(m.t, m.api, &corev1.PodList{}, "two ready pods of the manager",
		func(*corev1.PodList) (bool, string) {
			ready := m.readyPods(coreRelease + "-manager")
			return len(ready) == replicas, fmt.Sprint(ready)
		}, client.InNamespace(system))
}
