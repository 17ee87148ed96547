//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud/driver"
)

// The migration tests rely on the stand-in for the old controller. A restarted stand-in must change nothing in a
// settled fleet. The stand-in must also delete the instance of a deleted machine and create a new instance.
func TestStandInManagesOldFleet(t *testing.T) {
	onlyInFull(t, "the migrations that use the stand-in")
	t.Parallel()
	const machines = 4
	for _, group := range []string{provider.SourceClusterK8s, provider.SourceOpenShift, provider.SourceMachineK8s,
		provider.SourceGardener} {
		left := machines
		if group == provider.SourceMachineK8s {
			left-- // No set replaces the deleted machine.
		}
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			m := start(t, stack.Options{})
			f := m.oldFleet(group, machines)
			f.wantConvertible()

			w := f.watch()
			f.killController()
			f.startController()
			f.awaitSettled(machines)
			if changes := f.changes(); len(changes) > 0 {
				t.Errorf("the restarted controller changed a settled fleet:\n%s", strings.Join(changes, "\n"))
			}
			f.wantUnchanged()
			f.wantOldObjects()
			if seen := w.Disturbances(); len(seen) > 0 {
				t.Errorf("the Nodes were disturbed:\n%s", strings.Join(seen, "\n"))
			}

			w = f.watch()
			machine := f.someMachine()
			if err := m.control.Delete(context.Background(), machine); err != nil {
				t.Fatal(err)
			}
			f.awaitSettled(left)
			after := f.state()
			if n := len(after.instances); n != left {
				t.Errorf("got %d instances, want %d", n, left)
			}
			for id, r := range after.instances {
				if r.Tags[driver.LegacyTagMachineUID] == string(machine.GetUID()) {
					t.Errorf("instance %s of the deleted machine still exists", id)
				}
			}
			// The comparison of fleets must detect everything that has happened to this machine.
			contains(t, strings.Join(w.Disturbances(), "\n"), "Node "+machine.GetName()+" was deleted")
			contains(t, strings.Join(f.differences(), "\n"), "calls that changed instances",
				"Node "+machine.GetName()+" is gone", " of "+machine.GetName()+" is gone")
			contains(t, strings.Join(f.oldDifferences(), "\n"), "Machine "+f.namespace+"/"+machine.GetName()+" is gone")
		})
	}
}

// A migration stops an old controller in two ways: the migrator scales the workload to 0, and acquires the Lease. The
// controller only checks whether the holder renews the Lease, whatever the lease duration is.
func TestStandInStopsWithoutWorkloadOrLease(t *testing.T) {
	onlyInFull(t, "the migrations that use the stand-in")
	t.Parallel()
	m := start(t, stack.Options{})
	f := m.oldFleet(provider.SourceMachineK8s, 3)
	f.scaleWorkload(0)
	f.awaitLog("does not lead")
	machine := f.someMachine()
	if err := m.control.Delete(context.Background(), machine); err != nil {
		t.Fatal(err)
	}
	pods := &corev1.PodList{}
	eventually(t, "the pod of the old controller is gone", func() (bool, string) {
		err := m.target.List(context.Background(), pods)
		return err == nil && !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool {
			return p.Labels["app"] == f.workload.Name
		}), fmt.Sprint(len(pods.Items))
	})
	if n := m.countLive(); n != 3 {
		t.Errorf("got %d instances while the old controller has no pod, want 3", n)
	}
	f.scaleWorkload(1)
	f.awaitSettled(2)
	if n := m.countLive(); n != 2 {
		t.Errorf("got %d instances, want 2", n)
	}

	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: f.workload.Namespace, Name: f.leases[0]}}
	taken := client.RawPatch(types.MergePatchType, []byte(
		`{"spec":{"holderIdentity":"another holder","leaseDurationSeconds":315360000}}`))
	if err := m.control.Patch(context.Background(), lease, taken); err != nil {
		t.Fatal(err)
	}
	f.awaitLog("does not lead")
	f.awaitLog("msg=leads")
}

func (f *oldFleet) wantConvertible() {
	f.t.Helper()
	system := source.Systems()[f.group]
	for _, kind := range system.Kinds() {
		for _, o := range f.list(kind.GroupVersionKind) {
			for _, finding := range system.Convert(kind.Role, &o, nil).Findings {
				if finding.Level == provider.FindingBlocker || finding.Code == source.CodeUnknownField {
					f.t.Errorf("%s %s: %+v", kind.Kind, o.GetName(), finding)
				}
			}
		}
	}
}

// If an old system deletes orphans, its stand-in also deletes instances without a Machine.
func TestStandInDeletesOrphans(t *testing.T) {
	onlyInFull(t, "the scenarios of migrations in the deterministic world")
	t.Parallel()
	m := start(t, stack.Options{})
	f := m.oldFleet(provider.SourceGardener, 3)
	f.killController()
	machine := f.someMachine()
	before := machine.DeepCopy()
	machine.SetFinalizers(nil)
	if err := m.control.Patch(context.Background(), machine, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if err := m.control.Delete(context.Background(), machine); err != nil {
		t.Fatal(err)
	}
	f.startController()
	f.awaitSettled(3)
	after := f.state()
	deleted := 0
	for id := range f.before.instances {
		if _, exists := after.instances[id]; !exists {
			deleted++
		}
	}
	if deleted != 1 || len(after.instances) != 3 {
		t.Errorf("got %d deleted orphans and %d instances, want 1 and 3", deleted, len(after.instances))
	}
}
