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

// The tests of migrations are worth what the stand-in for the old controller is: revived, it leaves a fleet alone that
// is as it should be, and it does delete and make instances where one is asked of it.
func TestAStandInKeepsTheFleetOfAnOldSystem(t *testing.T) {
	onlyInFull(t, "the migrations in which it plays")
	t.Parallel()
	const machines = 4
	for _, group := range []string{provider.SourceClusterK8s, provider.SourceOpenShift, provider.SourceMachineK8s,
		provider.SourceGardener} {
		left := machines
		if group == provider.SourceMachineK8s {
			left-- // Nothing makes another machine for one that was deleted.
		}
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			m := start(t, stack.Options{})
			f := m.oldFleet(group, machines)
			f.wantConvertible()

			w := f.watch()
			f.kill()
			f.revive()
			f.settles(machines)
			if changes := f.changes(); len(changes) > 0 {
				t.Errorf("the revived controller changed a settled fleet:\n%s", strings.Join(changes, "\n"))
			}
			f.wantUnchanged()
			f.wantOldObjects()
			if seen := w.disturbances(); len(seen) > 0 {
				t.Errorf("the Nodes were disturbed:\n%s", strings.Join(seen, "\n"))
			}

			w = f.watch()
			machine := f.someMachine()
			if err := m.control.Delete(context.Background(), machine); err != nil {
				t.Fatal(err)
			}
			f.settles(left)
			after := f.state()
			if n := len(after.instances); n != left {
				t.Errorf("there are %d instances, want %d", n, left)
			}
			for id, r := range after.instances {
				if r.Tags[driver.LegacyTagMachineUID] == string(machine.GetUID()) {
					t.Errorf("instance %s of the deleted machine is there", id)
				}
			}
			// Whoever compares a fleet must see what has happened to this one.
			contains(t, strings.Join(w.disturbances(), "\n"), "Node "+machine.GetName()+" was deleted")
			contains(t, strings.Join(f.differences(), "\n"), "the cloud was asked", "Node "+machine.GetName()+" is gone",
				" of "+machine.GetName()+" is gone")
			contains(t, strings.Join(f.oldDifferences(), "\n"), "Machine "+f.namespace+"/"+machine.GetName()+" is gone")
		})
	}
}

// The replicas of its workload and its Lease are what a migration stops an old controller by. Of a Lease it heeds the
// renewals only, not how long it is said to be valid.
func TestAStandInStopsWithItsWorkloadAndItsLease(t *testing.T) {
	onlyInFull(t, "the migrations in which it plays")
	t.Parallel()
	m := start(t, stack.Options{})
	f := m.oldFleet(provider.SourceMachineK8s, 3)
	f.scaleWorkload(0)
	f.logs("does not lead")
	machine := f.someMachine()
	if err := m.control.Delete(context.Background(), machine); err != nil {
		t.Fatal(err)
	}
	pods := &corev1.PodList{}
	eventually(t, "its pod is gone", func() (bool, string) {
		err := m.target.List(context.Background(), pods)
		return err == nil && !slices.ContainsFunc(pods.Items, func(p corev1.Pod) bool {
			return p.Labels["app"] == f.workload.Name
		}), fmt.Sprint(len(pods.Items))
	})
	if n := m.live(); n != 3 {
		t.Errorf("%d instances are left of 3 while the old controller has no pod", n)
	}
	f.scaleWorkload(1)
	f.settles(2)
	if n := m.live(); n != 2 {
		t.Errorf("there are %d instances, want 2", n)
	}

	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: f.workload.Namespace, Name: f.leases[0]}}
	taken := client.RawPatch(types.MergePatchType, []byte(
		`{"spec":{"holderIdentity":"somebody","leaseDurationSeconds":315360000}}`))
	if err := m.control.Patch(context.Background(), lease, taken); err != nil {
		t.Fatal(err)
	}
	f.logs("does not lead")
	f.logs("msg=leads")
}

// wantConvertible fails the test where an object of the fleet cannot be taken over, whatever the controller does.
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

// An instance that loses its Machine is an orphan of the system that collects them.
func TestAStandInCollectsOrphans(t *testing.T) {
	onlyInFull(t, "the scenarios of migrations in the deterministic world")
	t.Parallel()
	m := start(t, stack.Options{})
	f := m.oldFleet(provider.SourceGardener, 3)
	f.kill()
	machine := f.someMachine()
	before := machine.DeepCopy()
	machine.SetFinalizers(nil)
	if err := m.control.Patch(context.Background(), machine, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	if err := m.control.Delete(context.Background(), machine); err != nil {
		t.Fatal(err)
	}
	f.revive()
	f.settles(3)
	after := f.state()
	deleted := 0
	for id := range f.before.instances {
		if _, there := after.instances[id]; !there {
			deleted++
		}
	}
	if deleted != 1 || len(after.instances) != 3 {
		t.Errorf("%d of the instances were collected, want 1; there are %d, want 3", deleted, len(after.instances))
	}
}
