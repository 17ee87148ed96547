package cli

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/merge"
)

// addDeployment creates another deployment and waits for its machines.
func (f *rolloutFleet) addDeployment(name, class string, replicas int32) {
	f.Helper()
	f.must(f.api.Create(context.Background(), &v1beta1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: name, Annotations: map[string]string{
			v1beta1.AutoscalerMinSizeAnnotation: "1", v1beta1.AutoscalerMaxSizeAnnotation: "5"}},
		Spec: v1beta1.MachineDeploymentSpec{
			Replicas: ptr.To(replicas),
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: v1beta1.MachineTemplateSpec{
				ObjectMeta: v1beta1.TemplateMeta{Labels: map[string]string{"app": name, "tier": "front"}},
				Spec:       v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: class}},
			},
		},
	}))
	f.run("rollout", "status", "md/"+name).succeeds(f)
}

// threeZones returns a fleet with the deployments zone-a, zone-b and zone-c.
func threeZones(t testing.TB) *rolloutFleet {
	f := newRolloutFleet(t, 0)
	f.orphanDependents()
	f.addDeployment("zone-a", "a", 3)
	f.addDeployment("zone-b", "b", 2)
	f.addDeployment("zone-c", "c", 1)
	return f
}

// orphanDependents acts as the garbage collector for deployments that are deleted without their sets.
func (f *rolloutFleet) orphanDependents() {
	ctx := context.Background()
	events, err := f.api.Watch(ctx, &v1beta1.MachineDeploymentList{}, client.InNamespace(f.namespace))
	f.must(err)
	f.Cleanup(events.Stop)
	go func() {
		for event := range events.ResultChan() {
			d, ok := event.Object.(*v1beta1.MachineDeployment)
			if !ok || !slices.Contains(d.Finalizers, metav1.FinalizerOrphanDependents) {
				continue
			}
			var sets v1beta1.MachineSetList
			if err := f.api.List(ctx, &sets, client.InNamespace(f.namespace)); err != nil {
				f.Error(err)
			}
			for i := range sets.Items {
				if set := &sets.Items[i]; metav1.IsControlledBy(set, d) {
					before := set.DeepCopy()
					set.OwnerReferences = nil
					if err := f.api.Patch(ctx, set, client.MergeFrom(before)); err != nil {
						f.Error(err)
					}
				}
			}
			before := d.DeepCopy()
			d.Finalizers = nil
			if err := f.api.Patch(ctx, d, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
				f.Error(err)
			}
		}
	}()
}

// uids returns the UIDs of all machines by class, including those that are being deleted.
func (f *rolloutFleet) uids() map[string][]types.UID {
	f.Helper()
	list := &v1beta1.MachineList{}
	f.must(f.api.List(context.Background(), list, client.InNamespace(f.namespace)))
	uids := map[string][]types.UID{}
	for _, m := range list.Items {
		uids[m.Spec.ClassRef.Name] = append(uids[m.Spec.ClassRef.Name], m.UID)
	}
	for _, of := range uids {
		slices.Sort(of)
	}
	return uids
}

// watchMachines returns a function that stops a watch and returns the names of the machines that were created or
// deleted meanwhile.
func (f *rolloutFleet) watchMachines() (stop func() []string) {
	f.Helper()
	list := &v1beta1.MachineList{}
	f.must(f.api.List(context.Background(), list, client.InNamespace(f.namespace)))
	known := map[types.UID]bool{}
	for _, m := range list.Items {
		known[m.UID] = true
	}
	events, err := f.api.Watch(context.Background(), list, &client.ListOptions{Namespace: f.namespace,
		Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}})
	f.must(err)
	done := make(chan []string)
	go func() {
		changed := map[string]bool{}
		for event := range events.ResultChan() {
			if m, ok := event.Object.(*v1beta1.Machine); ok && (!known[m.UID] || m.DeletionTimestamp != nil) {
				changed[string(event.Type)+" "+m.Name] = true
			}
		}
		done <- slices.Sorted(maps.Keys(changed))
	}()
	return func() []string {
		events.Stop()
		return <-done
	}
}

func (f *rolloutFleet) named(name string) *v1beta1.MachineDeployment {
	f.Helper()
	d := &v1beta1.MachineDeployment{}
	f.must(f.api.Get(context.Background(), client.ObjectKey{Namespace: f.namespace, Name: name}, d))
	return d
}

// checkMerged checks that the merged deployment has exactly the given machines, and that no other deployment is left.
func (f *rolloutFleet) checkMerged(before map[string][]types.UID, changed []string) {
	f.Helper()
	if len(changed) > 0 {
		f.Errorf("machines were created or deleted: %q", changed)
	}
	if after := f.uids(); !maps.EqualFunc(before, after, slices.Equal) {
		f.Errorf("the machines were %v, and now are %v", before, after)
	}
	d := f.named("all")
	if _, frozen := d.Labels[v1beta1.LabelFreeze]; frozen || d.ReplicasOrDefault() != 6 || d.Status.UpdatedReplicas != 6 {
		f.Errorf("labels %v, %d replicas, status %+v", d.Labels, d.ReplicasOrDefault(), d.Status)
	}
	var list v1beta1.MachineDeploymentList
	f.must(f.api.List(context.Background(), &list, client.InNamespace(f.namespace)))
	if len(list.Items) != 2 { // Also the deployment web of the fixture.
		f.Errorf("%d deployments are left", len(list.Items))
	}
	var machines v1beta1.MachineList
	f.must(f.api.List(context.Background(), &machines, client.InNamespace(f.namespace)))
	for _, m := range machines.Items {
		want := "zone-" + m.Spec.ClassRef.Name
		if m.Labels[v1beta1.LabelPlacementDomain] != want || m.Labels[v1beta1.LabelMachineDeployment] != "all" ||
			m.Labels["fleet"] != "all" || m.Labels["tier"] != "front" {
			f.Errorf("machine %s of class %s has the labels %v", m.Name, m.Spec.ClassRef.Name, m.Labels)
		}
	}
}

var mergeArgs = []string{"placement", "merge", "--deployments", "zone-a,zone-b,zone-c", "--name", "all"}

// Rule: placement-merge-replaces-no-machine.
func TestMergeAdoptsAllMachines(t *testing.T) {
	f := threeZones(t)
	plan := f.run(mergeArgs...).succeeds(t)
	for _, want := range []string{"# machinedeployment/zone-a: 3 machines of class a become part of domain zone-a.\n",
		"kind: MachineDeployment\n", "    - name: zone-c\n      options:\n      - className: c\n", "  replicas: 6\n"} {
		if !strings.Contains(plan.out, want) {
			t.Errorf("the plan has no %q:\n%s", want, plan.out)
		}
	}
	before, stop := f.uids(), f.watchMachines()
	f.run(append(mergeArgs, "--yes")...).succeeds(t)
	f.run("rollout", "status", "md/all").succeeds(t)
	f.checkMerged(before, stop())
	if annotations := f.named("all").Annotations; annotations[v1beta1.AutoscalerMinSizeAnnotation] != "3" ||
		annotations[v1beta1.AutoscalerMaxSizeAnnotation] != "15" {
		t.Errorf("the bounds for an autoscaler are not added up: %v", annotations)
	}
	f.run(append(mergeArgs, "--yes")...).fails(t, `machinedeployment "all" already exists`)
}

// The command is interrupted between any two steps, and an autoscaler scales a deployment meanwhile.
//
// Rule: placement-merge-replaces-no-machine.
func TestInterruptedMergeContinues(t *testing.T) {
	f := threeZones(t)
	ctx := context.Background()
	c := &Cluster{WithWatch: f.api, Namespace: f.namespace}
	in := merge.Input{Namespace: f.namespace, Name: "all", LabelKey: "fleet", LabelValue: "all"}
	if _, err := c.readMerge(ctx, &in, []string{"zone-a", "zone-b", "zone-c"}); err != nil {
		t.Fatal(err)
	}
	plan, err := merge.New(in)
	if err != nil {
		t.Fatal(err)
	}
	before, stop := f.uids(), f.watchMachines()
	merged := plan.Deployment.DeepCopy()
	merged.Labels = map[string]string{v1beta1.LabelFreeze: merge.FreezeValue}
	merged.Spec.Replicas = ptr.To[int32](4) // Since then, an autoscaler has scaled up a deployment by 2.
	f.must(f.api.Create(ctx, merged))
	f.run(mergeArgs...).fails(t, "use --yes to continue")
	if err := c.handSetsOver(ctx, in, merged, f.named("zone-a")); err != nil {
		t.Fatal(err)
	}
	f.run(append(mergeArgs, "--yes")...).succeeds(t)
	f.run("rollout", "status", "md/all").succeeds(t)
	f.checkMerged(before, stop())
}
