//go:build e2e && linux

package install

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/controlplane/auditlog"
	"machinist.dev/machinist/test/env"
)

// fleetDeadline limits the time from the first helm command until the fleet is Ready.
const fleetDeadline = 120 * time.Second

const fleetSize = 3

// After the installation, the fleet must become Ready within a deadline. Killed pods, an upgrade and the uninstallation
// must not make the cloud create or delete instances.
func TestInstallUpgradeUninstall(t *testing.T) {
	for _, version := range versions() {
		t.Run("helm"+version, func(t *testing.T) {
			m := newMachinist(t)
			h := helmOf(t, m.cluster, version)
			begun := time.Now()
			m.installCloud(h)
			m.install(h)
			m.fleet("default")
			machines := m.awaitReady("default", fleetSize)
			took := time.Since(begun)
			progress(t, "the fleet of %d machines is Ready %.1f s after the first helm command", len(machines), took.Seconds())
			if took > fleetDeadline {
				t.Errorf("the fleet was Ready after %s, want at most %s", took.Round(time.Second), fleetDeadline)
			}
			live, created := m.instances()
			if len(live) != fleetSize || created != fleetSize {
				t.Fatalf("got instances %v, %d created, want %d", live, created, fleetSize)
			}

			for _, program := range []string{coreRelease + "-manager", providerRelease} {
				m.killLeader(program)
			}
			m.wantUntouched("killing the leading pods", live, created)

			m.upgrade(h, "--set=log.level=debug")
			m.wantUntouched("an upgrade that restarts the processes", live, created)

			m.uninstall(h)
			m.wantUntouched("uninstalling Machinist", live, created)
			if n := len(m.machines("default")); n != fleetSize {
				t.Errorf("got %d Machines after the uninstallation, want %d", n, fleetSize)
			}

			m.install(h)
			m.grow("installing Machinist again", live, created)
			m.cleanUp(h)
		})
	}
}

// grow adds one machine to the fleet. The cloud must create exactly one instance and keep all others.
func (m *machinist) grow(after string, live []string, created int) {
	m.t.Helper()
	n := len(live) + 1
	m.scale("default", int32(n))
	m.awaitReady("default", n)
	now, nowCreated := m.instances()
	lost := slices.DeleteFunc(slices.Clone(live), func(id string) bool { return slices.Contains(now, id) })
	if len(now) != n || nowCreated != created+1 || len(lost) > 0 {
		m.t.Errorf("one more machine after %s: got instances %v, %d created, want one more than %v, %d created", after,
			now, nowCreated, live, created)
	}
	progress(m.t, "%s: the fleet grew by one instance, and all others remain", after)
}

func versions() []string {
	if full() {
		return []string{"4", "3"}
	}
	return []string{"4"}
}

const replicas = 2

// killLeader deletes the leading pod of a program without a grace period. killLeader waits until another pod leads and
// all pods are ready.
func (m *machinist) killLeader(program string) {
	m.t.Helper()
	m.eventually("all pods of "+program+" are ready", func() (bool, string) {
		ready := m.readyPods(program)
		return len(ready) == replicas, fmt.Sprint(ready)
	})
	leader := m.leader(program)
	if leader == "" {
		m.t.Fatalf("no pod of %s leads", program)
	}
	begun := time.Now()
	now := int64(0)
	err := m.cluster.Kube().CoreV1().Pods(system).Delete(m.t.Context(), leader,
		metav1.DeleteOptions{GracePeriodSeconds: &now})
	if err != nil {
		m.t.Fatal(err)
	}
	m.eventually("another pod of "+program+" leads", func() (bool, string) {
		l := m.leader(program)
		return l != "" && l != leader, l
	})
	m.eventually("all pods of "+program+" are ready", func() (bool, string) {
		ready := m.readyPods(program)
		return len(ready) == replicas && !slices.Contains(ready, leader), fmt.Sprint(ready)
	})
	progress(m.t, "pod %s was killed: after %.1f s, another pod leads and all pods are ready", leader,
		time.Since(begun).Seconds())
}

func (m *machinist) leader(program string) string {
	m.t.Helper()
	leases, err := m.cluster.Kube().CoordinationV1().Leases(system).List(m.t.Context(), metav1.ListOptions{})
	if err != nil {
		m.t.Fatal(err)
	}
	for _, lease := range leases.Items {
		if lease.Spec.HolderIdentity == nil {
			continue
		}
		for _, pod := range m.pods(system, program) {
			if pod.DeletionTimestamp == nil && strings.HasPrefix(*lease.Spec.HolderIdentity, pod.Name) {
				return pod.Name
			}
		}
	}
	return ""
}

func (m *machinist) readyPods(program string) []string {
	m.t.Helper()
	var names []string
	for _, pod := range m.pods(system, program) {
		if pod.DeletionTimestamp == nil && podReady(&pod) {
			names = append(names, pod.Name)
		}
	}
	return names
}

func podReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// upgrade upgrades both releases and waits for new leaders. No process may write to a Machine during the upgrade.
func (m *machinist) upgrade(h *helm, flags ...string) {
	m.t.Helper()
	log, err := auditlog.Open(m.cluster.AuditLog())
	if err != nil {
		m.t.Fatal(err)
	}
	if err := log.Mark(); err != nil {
		m.t.Fatal(err)
	}
	h.run(m.t, slices.Concat([]string{"upgrade", coreRelease, chart("machinist"), "--wait"}, coreValues(), flags)...)
	h.run(m.t, slices.Concat([]string{"upgrade", providerRelease, chart("machinist-provider"), "--wait"},
		providerValues(), flags)...)
	for _, program := range []string{coreRelease + "-manager", providerRelease} {
		m.eventually("a pod of "+program+" leads", func() (bool, string) { return m.leader(program) != "", "" })
	}
	m.wantNoWrites(log, "the upgrade")
}

func (m *machinist) wantNoWrites(log *auditlog.Log, what string) {
	m.t.Helper()
	counts, err := log.Count(auditlog.Filter{Match: ofMachines})
	if err != nil {
		m.t.Fatal(err)
	}
	progress(m.t, "%s: writes to Machines: %s", what, counts)
	if counts.Writes != 0 {
		m.t.Errorf("%s wrote to Machines: %s", what, counts)
	}
}

func ofMachines(r auditlog.Request) bool {
	return r.Group == v1beta1.GroupVersion.Group && r.Resource == "machines"
}

func (m *machinist) uninstall(h *helm) {
	m.t.Helper()
	for _, release := range []string{providerRelease, coreRelease} {
		h.run(m.t, "uninstall", release, "--namespace="+system)
	}
	env.Await(m.t, m.api, &corev1.PodList{}, "no pods of Machinist", func(pods *corev1.PodList) (bool, string) {
		n := len(m.pods(system, "machinist"))
		return n == 0, fmt.Sprintf("%d pods", n)
	}, client.InNamespace(system))
	served, err := m.cluster.Kube().Discovery().ServerResourcesForGroupVersion(v1beta1.GroupVersion.String())
	if err != nil {
		m.t.Fatalf("the API group of Machinist is not served: %v", err)
	}
	for _, kind := range []string{"Machine", "MachineSet", "MachineDeployment", "MachineClass", "MachineHealthCheck"} {
		if !slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind }) {
			m.t.Errorf("the kind %s is not served", kind)
		}
	}
}

func (m *machinist) cleanUp(h *helm) {
	m.t.Helper()
	m.deleteFleet("default")
	if live, _ := m.instances(); len(live) > 0 {
		m.t.Errorf("the instances %v still exist after the deletion of the fleet", live)
	}
	m.uninstall(h)
	h.run(m.t, "uninstall", cloudRelease, "--namespace="+system, "--wait")
}

// deleteFleet deletes the MachineDeployment and waits until its machines are gone. Then deleteFleet deletes the class
// and the Secrets.
func (m *machinist) deleteFleet(namespace string) {
	m.t.Helper()
	ctx := m.t.Context()
	if err := m.api.DeleteAllOf(ctx, &v1beta1.MachineDeployment{}, client.InNamespace(namespace)); err != nil {
		m.t.Fatal(err)
	}
	env.Await(m.t, m.api, &v1beta1.MachineList{}, "no machines",
		func(list *v1beta1.MachineList) (bool, string) { return len(list.Items) == 0, m.describe(namespace) },
		client.InNamespace(namespace))
	if err := m.api.DeleteAllOf(ctx, &v1beta1.MachineClass{}, client.InNamespace(namespace)); err != nil {
		m.t.Fatal(err)
	}
	env.Await(m.t, m.api, &v1beta1.MachineClassList{}, "no classes",
		func(list *v1beta1.MachineClassList) (bool, string) {
			return len(list.Items) == 0, m.describe(namespace)
		},
		client.InNamespace(namespace))
	if err := m.api.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(namespace)); err != nil {
		m.t.Fatal(err)
	}
}
