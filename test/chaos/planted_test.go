//go:build e2e

package main

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/test/chaos/judge"
)

// This test injects no disturbances. Instead, the test itself writes changes that breach the invariants, and
// impersonates the processes. The watcher must find each of these breaches in a running fleet, and no others.
func TestWatcherFindsPlantedBreaches(t *testing.T) {
	ctx := t.Context()
	e := newExperiment(options{patience: 3 * time.Minute, binaries: "../../bin", dir: filepath.Join(t.TempDir(), "stack")})
	t.Cleanup(func() {
		if err := e.stop(); err != nil {
			t.Error(err)
		}
	})
	if err := e.start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := e.createFleet(ctx); err != nil {
		t.Fatal(err)
	}
	if found := e.breachTexts(); len(found) > 0 {
		t.Fatalf("breaches were found in an undisturbed fleet: %v", found)
	}
	machines := &v1beta1.MachineList{}
	if err := e.control.List(ctx, machines, client.InNamespace(namespace),
		client.MatchingLabels{"pool": "calm"}); err != nil {
		t.Fatal(err)
	}
	all, err := e.takeInventory(ctx)
	if err != nil {
		t.Fatal(err)
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	cloud, err := e.CloudClient()
	do(err)
	id := func(m *v1beta1.Machine) string {
		i := slices.IndexFunc(all.instances, func(r simcloud.Record) bool { return r.ProviderID == m.Spec.ProviderID })
		return all.instances[i].ID
	}

	t.Log("create a twin")
	twin := &machines.Items[0]
	_, err = cloud.CreateInstance(ctx, simcloud.CreateInstanceRequest{
		Name: "twin", Region: "sim-1", Type: "small", Image: "sim-os-1",
		Tags: map[string]string{provider.TagMachineUID: string(twin.UID)},
	})
	do(err)
	e.requireBreach(t, "machine "+string(twin.UID)+" has two instances")

	t.Log("delete the instance of a wanted machine")
	wanted := &machines.Items[1]
	_, err = cloud.DeleteInstance(ctx, id(wanted))
	do(err)
	e.requireBreach(t, "instance "+id(wanted)+" was deleted, but its machine "+wanted.Name)

	t.Log("create a surplus machine")
	template := &machines.Items[2]
	surplus := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "surplus", Labels: template.Labels, OwnerReferences: template.OwnerReferences,
	}, Spec: *template.Spec.DeepCopy()}
	surplus.Spec.ProviderID = ""
	// At this moment, the deployment may have two more machines, but the set may have none.
	do(e.control.Create(ctx, surplus))
	e.requireBreach(t, "machine surplus was created: set "+template.OwnerReferences[0].Name)

	t.Log("remove a machine before its instance")
	lost := &machines.Items[3]
	e.watcher.expectDeletion(string(lost.UID))
	slow := simcloud.Duration(time.Minute)
	_, err = e.cloud.PatchSettings(ctx, simcloud.SettingsPatch{ShutdownTime: &slow})
	do(err)
	do(e.control.Delete(ctx, lost))
	do(e.control.Patch(ctx, lost.DeepCopy(), client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"finalizers":null}}`))))
	e.requireBreach(t, "machine "+lost.Name+" ("+string(lost.UID)+") is gone, but its instance "+id(lost)+" exists")

	t.Log("delete a node before its instance")
	node := machines.Items[4].Status.NodeRef.Name
	for i := range all.nodes {
		if all.nodes[i].Name == node {
			do(e.target.Delete(ctx, &all.nodes[i]))
		}
	}
	e.requireBreach(t, "node "+node+" is gone, but its instance "+id(&machines.Items[4])+" exists")

	t.Log("delete two available machines more than allowed")
	for _, m := range machines.Items[5:8] {
		do(e.control.Delete(ctx, &m))
	}
	e.requireBreach(t, "available machine "+machines.Items[7].Name+" of set "+template.OwnerReferences[0].Name+" was deleted")

	t.Log("write a secret into an object")
	report := &machines.Items[4]
	before := report.DeepCopy()
	report.Annotations = map[string]string{"reported": e.watcher.secrets["user data"]}
	do(e.control.Patch(ctx, report, client.MergeFrom(before)))
	e.requireBreach(t, "I10: user data is in /registry/machinist.dev/machines/"+namespace+"/"+report.Name)
}

func (e *experiment) breachTexts() (texts []string) {
	e.watcher.withJudge(func(j *judge.Judge) {
		// On a busy computer, a process may lose its Lease and end. The judge may then excuse the breaches that the
		// test has caused.
		breaches, excused := j.Breaches()
		for _, b := range append(breaches, excused...) {
			texts = append(texts, b.Text)
		}
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range e.breaches {
		texts = append(texts, b.Text)
	}
	return texts
}

func (e *experiment) requireBreach(t *testing.T, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		found := e.breachTexts()
		if slices.ContainsFunc(found, func(text string) bool { return strings.Contains(text, want) }) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("got breaches %q, want %q", found, want)
		}
	}
}
