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

// Nobody is disturbed here, and somebody does in the processes' name what they must never do: the watchers see each
// of it in a fleet that runs, and nothing but that.
func TestTheWatchersSeeWhatIsPlanted(t *testing.T) {
	ctx := t.Context()
	w := newWorld(options{patience: 3 * time.Minute, binaries: "../../bin", dir: filepath.Join(t.TempDir(), "stack")})
	t.Cleanup(func() {
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	})
	if err := w.start(ctx); err != nil {
		t.Fatal(err)
	}
	if err := w.begin(ctx); err != nil {
		t.Fatal(err)
	}
	if broken := w.found(); len(broken) > 0 {
		t.Fatalf("a fleet that nobody disturbs is said to be broken: %v", broken)
	}
	machines := &v1beta1.MachineList{}
	if err := w.control.List(ctx, machines, client.InNamespace(namespace),
		client.MatchingLabels{"pool": "calm"}); err != nil {
		t.Fatal(err)
	}
	all, err := w.check(ctx)
	if err != nil {
		t.Fatal(err)
	}
	do := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	cloud, err := w.CloudClient()
	do(err)
	id := func(m *v1beta1.Machine) string {
		i := slices.IndexFunc(all.instances, func(r simcloud.Record) bool { return r.ProviderID == m.Spec.ProviderID })
		return all.instances[i].ID
	}

	t.Log("a twin")
	twin := &machines.Items[0]
	_, err = cloud.CreateInstance(ctx, simcloud.CreateInstanceRequest{
		Name: "twin", Region: "sim-1", Type: "small", Image: "sim-os-1",
		Tags: map[string]string{provider.TagMachineUID: string(twin.UID)},
	})
	do(err)
	w.finds(t, "machine "+string(twin.UID)+" has two instances")

	t.Log("the instance of a machine that is wanted is deleted")
	wanted := &machines.Items[1]
	_, err = cloud.DeleteInstance(ctx, id(wanted))
	do(err)
	w.finds(t, "instance "+id(wanted)+" was deleted, and its machine "+wanted.Name)

	t.Log("one machine too many")
	template := &machines.Items[2]
	surplus := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "surplus", Labels: template.Labels, OwnerReferences: template.OwnerReferences,
	}, Spec: *template.Spec.DeepCopy()}
	surplus.Spec.ProviderID = ""
	// The deployment may have two more than it has; its set may not.
	do(w.control.Create(ctx, surplus))
	w.finds(t, "machine surplus was made: set "+template.OwnerReferences[0].Name)

	t.Log("a machine is gone before its instance")
	lost := &machines.Items[3]
	w.watcher.others(string(lost.UID))
	slow := simcloud.Duration(time.Minute)
	_, err = w.cloud.PatchSettings(ctx, simcloud.SettingsPatch{ShutdownTime: &slow})
	do(err)
	do(w.control.Delete(ctx, lost))
	do(w.control.Patch(ctx, lost.DeepCopy(), client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"finalizers":null}}`))))
	w.finds(t, "machine "+lost.Name+" ("+string(lost.UID)+") is gone, its instance "+id(lost)+" is not")

	t.Log("a node is gone before its instance")
	node := machines.Items[4].Status.NodeRef.Name
	for i := range all.nodes {
		if all.nodes[i].Name == node {
			do(w.target.Delete(ctx, &all.nodes[i]))
		}
	}
	w.finds(t, "node "+node+" is gone, its instance "+id(&machines.Items[4])+" is not")

	t.Log("two available ones too many are deleted")
	for _, m := range machines.Items[5:8] {
		do(w.control.Delete(ctx, &m))
	}
	w.finds(t, "available machine "+machines.Items[7].Name+" of set "+template.OwnerReferences[0].Name+" was deleted")

	t.Log("a secret is shown")
	report := &machines.Items[4]
	before := report.DeepCopy()
	report.Annotations = map[string]string{"reported": w.watcher.secrets["user data"]}
	do(w.control.Patch(ctx, report, client.MergeFrom(before)))
	w.finds(t, "I10: user data is in /registry/machinist.dev/machines/"+namespace+"/"+report.Name)
}

// found returns all that was found so far.
func (w *world) found() (texts []string) {
	w.watcher.do(func(j *judge.Judge) {
		// On a machine that is busy enough a process may lose its lease by itself, and what is planted then be excused.
		broken, excused := j.Breaches()
		for _, b := range append(broken, excused...) {
			texts = append(texts, b.Text)
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range w.broken {
		texts = append(texts, b.Text)
	}
	return texts
}

// finds waits until something is found.
func (w *world) finds(t *testing.T, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		found := w.found()
		if slices.ContainsFunc(found, func(text string) bool { return strings.Contains(text, want) }) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("not found: %q, but %q", want, found)
		}
	}
}
