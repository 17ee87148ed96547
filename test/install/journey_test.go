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

// fleetDeadline is how long it may take from the first helm command until the fleet is Ready.
const fleetDeadline = 120 * time.Second

// fleetSize is the number of machines of the example.
const fleetSize = 3

// From the first command to the removal: a fleet is Ready soon, and neither a pod's death nor an upgrade nor the
// removal of Machinist touches an instance.
func TestInstallUpgradeUninstall(t *testing.T) {
	for _, version := range versions() {
		t.Run("helm"+version, func(t *testing.T) {
			m := newMachinist(t)
			h := helmOf(t, m.cluster, version)
			begun := time.Now()
			m.installCloud(h)
			m.install(h)
			m.fleet("default")
			machines := m.ready("default", fleetSize)
			took := time.Since(begun)
			progress(t, "the fleet of %d machines is Ready %.1f s after the first helm command", len(machines), took.Seconds())
			if took > fleetDeadline {
				t.Errorf("the fleet was Ready after %s, want at most %s", took.Round(time.Second), fleetDeadline)
			}
			live, made := m.instances()
			if len(live) != fleetSize || made != fleetSize {
				t.Fatalf("the cloud has the instances %v and made %d", live, made)
			}

			for _, program := range []string{coreRelease + "-manager", providerRelease} {
				m.killLeader(program)
			}
			m.untouched("killing the leading pods", live, made)

			m.upgrade(h, "--set=log.level=debug")
			m.untouched("an upgrade that restarts the processes", live, made)

			m.uninstall(h)
			m.untouched("uninstalling Machinist", live, made)
			if n := len(m.machines("default")); n != fleetSize {
				t.Errorf("%d Machines are left", n)
			}

			m.install(h)
			m.goesOn("installing Machinist again", live, made)
			m.end(h)
		})
	}
}

// goesOn proves that the fleet is kept as before: one machine more is one instance more, beside the others.
func (m *machinist) goesOn(after string, live []string, made int) {
	m.t.Helper()
	n := len(live) + 1
	m.scale("default", int32(n))
	m.ready("default", n)
	now, nowMade := m.instances()
	lost := slices.DeleteFunc(slices.Clone(live), func(id string) bool { return slices.Contains(now, id) })
	if len(now) != n || nowMade != made+1 || len(lost) > 0 {
		m.t.Errorf("%s, and one machine more: the cloud had %v, %d made, and has %v, %d made", after, live, made, now,
			nowMade)
	}
	progress(m.t, "%s: the fleet grew by one instance, and all others are the same", after)
}

func versions() []string {
	if full() {
		return []string{"4", "3"}
	}
	return []string{"4"}
}

// replicas is how many pods each of the two programs has.
const replicas = 2

// killLeader deletes the pod of a program that leads, at once, and waits until another one leads and all pods are ready
// again.
func (m *machinist) killLeader(program string) {
	m.t.Helper()
	m.eventually("all pods of "+program+" are ready", func() (bool, string) {
		ready := m.readyPods(program)
		return len(ready) == replicas, fmt.Sprint(ready)
	})
	leader := m.leader(program)
	if leader == "" {
		m.t.Fatalf("nobody leads %s", program)
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
	progress(m.t, "pod %s was killed; another one leads and is replaced after %.1f s", leader, time.Since(begun).Seconds())
}

// leader is the pod of a program that leads, by its lease.
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

// readyPods are the names of the ready pods of a program.
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

// upgrade upgrades both releases, waits for their pods, and fails if a Machine was written to.
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
	m.noWrites(log, "the upgrade")
}

// noWrites fails if a Machine was written to since the log was marked.
func (m *machinist) noWrites(log *auditlog.Log, what string) {
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

// uninstall removes both releases and waits for the end of their pods.
func (m *machinist) uninstall(h *helm) {
	m.t.Helper()
	for _, release := range []string{providerRelease, coreRelease} {
		h.run(m.t, "uninstall", release, "--namespace="+system)
	}
	env.Await(m.t, m.api, &corev1.PodList{}, "the end of the pods", func(pods *corev1.PodList) (bool, string) {
		n := len(m.pods(system, "machinist"))
		return n == 0, fmt.Sprintf("%d pods", n)
	}, client.InNamespace(system))
	served, err := m.cluster.Kube().Discovery().ServerResourcesForGroupVersion(v1beta1.GroupVersion.String())
	if err != nil {
		m.t.Fatalf("the kinds of Machinist are gone: %v", err)
	}
	for _, kind := range []string{"Machine", "MachineSet", "MachineDeployment", "MachineClass", "MachineHealthCheck"} {
		if !slices.ContainsFunc(served.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind }) {
			m.t.Errorf("the kind %s is gone", kind)
		}
	}
}

// end deletes the fleet and then everything installed, for the next test.
func (m *machinist) end(h *helm) {
	m.t.Helper()
	m.deleteFleet("default")
	if live, _ := m.instances(); len(live) > 0 {
		m.t.Errorf("deleting the fleet left the instances %v", live)
	}
	m.uninstall(h)
	h.run(m.t, "uninstall", cloudRelease, "--namespace="+system, "--wait")
}

// deleteFleet deletes a deployment, and what it needs when its machines are gone.
func (m *machinist) deleteFleet(namespace string) {
	m.t.Helper()
	ctx := m.t.Context()
	if err := m.api.DeleteAllOf(ctx, &v1beta1.MachineDeployment{}, client.InNamespace(namespace)); err != nil {
		m.t.Fatal(err)
	}
	env.Await(m.t, m.api, &v1beta1.MachineList{}, "the end of the machines",
		func(list *v1beta1.MachineList) (bool, string) { return len(list.Items) == 0, m.describe(namespace) },
		client.InNamespace(namespace))
	if err := m.api.DeleteAllOf(ctx, &v1beta1.MachineClass{}, client.InNamespace(namespace)); err != nil {
		m.t.Fatal(err)
	}
	env.Await(m.t, m.api, &v1beta1.MachineClassList{}, "the end of the classes",
		func(list *v1beta1.MachineClassList) (bool, string) {
			return len(list.Items) == 0, m.describe(namespace)
		},
		client.InNamespace(namespace))
	if err := m.api.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(namespace)); err != nil {
		m.t.Fatal(err)
	}
}
