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

// many is how large a fleet is upgraded under.
const many = 1000

// An upgrade of the processes over a large fleet writes to no Machine. One while the fleet grows, and one that is
// broken off, lose and double nothing.
func TestUpgradeOverManyMachines(t *testing.T) {
	if !full() {
		t.Skipf("only with %s=1", fullVariable)
	}
	m := newMachinist(t)
	h := helmOf(t, m.cluster, "4")
	m.installCloud(h)
	m.quickCloud()
	m.install(h)
	m.fleet("default")
	m.ready("default", fleetSize)
	begun := time.Now()
	m.scale("default", many)
	m.readyWithin("default", many, 20*time.Minute)
	progress(t, "%d machines are Ready after %.0f s", many, time.Since(begun).Seconds())
	live, made := m.instances()

	m.settled()
	m.upgrade(h, "--set=log.level=debug")
	m.untouched("an upgrade over many machines", live, made)

	m.scale("default", many+100)
	m.upgradeMeanwhile(h)
	m.readyWithin("default", many+100, 10*time.Minute)
	live, made = m.instances()
	if len(live) != many+100 || made != many+100 {
		t.Errorf("an upgrade while the fleet grew: %d instances live and %d were made, want %d", len(live), made, many+100)
	}

	for _, after := range []time.Duration{200 * time.Millisecond, time.Second, 3 * time.Second} {
		m.interruptedUpgrade(h, after)
	}
	m.upgrade(h)
	m.untouched("interrupted upgrades", live, made)
	m.scale("default", 0)
	m.readyWithin("default", 0, 10*time.Minute)
	m.end(h)
}

// quickCloud makes instances boot at once.
func (m *machinist) quickCloud() {
	m.t.Helper()
	instant := simcloud.Duration(0)
	if _, err := m.cloud.PatchSettings(m.t.Context(), simcloud.SettingsPatch{BootTime: &instant}); err != nil {
		m.t.Fatal(err)
	}
}

// readyWithin is ready for fleets that take longer.
func (m *machinist) readyWithin(namespace string, n int, patience time.Duration) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), patience)
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
			m.t.Fatalf("waited %s for %d ready machines (%v); %s", patience, n, err, m.describe(namespace))
		}
	}
}

// settled waits until nothing was written to a Machine for some seconds.
func (m *machinist) settled() {
	m.t.Helper()
	log, err := auditlog.Open(m.cluster.AuditLog())
	if err != nil {
		m.t.Fatal(err)
	}
	quiet := time.NewTicker(5 * time.Second)
	defer quiet.Stop()
	for range 60 {
		if err := log.Mark(); err != nil {
			m.t.Fatal(err)
		}
		<-quiet.C
		counts, err := log.Count(auditlog.Filter{Match: ofMachines})
		if err != nil {
			m.t.Fatal(err)
		}
		if counts.Writes == 0 {
			return
		}
	}
	m.t.Fatal("Machines are written to without an end")
}

// upgradeMeanwhile upgrades both releases while machines are being made.
func (m *machinist) upgradeMeanwhile(h *helm) {
	m.t.Helper()
	h.run(m.t, slices.Concat([]string{"upgrade", coreRelease, chart("machinist"), "--wait"}, coreValues(),
		[]string{"--set=log.level=info"})...)
	h.run(m.t, slices.Concat([]string{"upgrade", providerRelease, chart("machinist-provider"), "--wait"}, providerValues(),
		[]string{"--set=log.level=info"})...)
}

// interruptedUpgrade kills Helm some time after the upgrade of the first chart began, and rolls back what it left, as
// its documents say.
func (m *machinist) interruptedUpgrade(h *helm, after time.Duration) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), after)
	defer cancel()
	args := slices.Concat([]string{"upgrade", coreRelease, chart("machinist"), "--wait"}, coreValues(),
		[]string{fmt.Sprintf("--set=manager.podAnnotations.attempt=after-%s", after)})
	command := exec.CommandContext(ctx, h.path, args...)
	command.Env = h.environment
	err := command.Run()
	progress(m.t, "helm was killed %s after the upgrade began: %v", after, err)
	h.run(m.t, "rollback", coreRelease, "--namespace="+system, "--wait")
	env.Await(m.t, m.api, &corev1.PodList{}, "two ready pods of the manager", func(*corev1.PodList) (bool, string) {
		ready := m.readyPods(coreRelease + "-manager")
		return len(ready) == replicas, fmt.Sprint(ready)
	}, client.InNamespace(system))
}
