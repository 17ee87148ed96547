package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
)

func settledFleet() *inventory {
	d := v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: "pool", Generation: 4}}
	d.Spec.Replicas = new(int32(3))
	d.Status = v1beta1.MachineDeploymentStatus{ObservedGeneration: 4, Replicas: 3, UpdatedReplicas: 3, UpToDateReplicas: 3,
		AvailableReplicas: 3}
	all := &inventory{deployments: []v1beta1.MachineDeployment{d}, sets: make([]v1beta1.MachineSet, 1)}
	for i := range 3 {
		name := fmt.Sprintf("m%d", i)
		m := v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		m.Spec.ProviderID, m.Status.Phase = "sim://"+name, v1beta1.MachineRunning
		all.machines = append(all.machines, m)
		all.instances = append(all.instances, simcloud.Record{Instance: simcloud.Instance{
			ID: "i-" + name, ProviderID: m.Spec.ProviderID, Tags: map[string]string{provider.TagMachineUID: name},
		}})
		n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		n.Spec.ProviderID = m.Spec.ProviderID
		all.nodes = append(all.nodes, n)
	}
	return all
}

func TestInventoryReportsProblems(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*inventory)
		want   []string // parts of the problems, in order
	}{
		"no problem":              {func(*inventory) {}, nil},
		"generation not observed": {func(a *inventory) { a.deployments[0].Generation = 5 }, []string{"generation 4 of 5"}},
		"machine of an old revision": {func(a *inventory) { a.deployments[0].Status.UpdatedReplicas = 2 },
			[]string{"2 updated"}},
		"unavailable machine": {func(a *inventory) { a.deployments[0].Status.AvailableReplicas = 2 },
			[]string{"2 available"}},
		"deployment being deleted": {func(a *inventory) { a.deployments[0].DeletionTimestamp = new(metav1.Now()) },
			[]string{"deployment pool wants 3"}},
		"leaked instance": {func(a *inventory) {
			a.machines, a.nodes = a.machines[:2], a.nodes[:2]
			a.deployments[0].Spec.Replicas = new(int32(2))
		}, []string{"deployment pool wants 2", "instance i-m2"}},
		"twin": {func(a *inventory) { a.instances[2].Tags = a.instances[1].Tags },
			[]string{"instances i-m1 and i-m2 belong to one machine", "machine m1 has no instance", "machine m2 has no instance"}},
		"missing instance": {func(a *inventory) { a.instances = a.instances[:2] },
			[]string{"machine m2 has no instance"}},
		"surplus machine": {func(a *inventory) { a.machines = append(a.machines, v1beta1.Machine{}) },
			[]string{"got 4 machines, want 3", "machine  is "}},
		"machine being deleted": {func(a *inventory) { a.machines[0].DeletionTimestamp = new(metav1.Now()) },
			[]string{"machine m0 is Running, deleted: true"}},
		"missing node": {func(a *inventory) { a.nodes = a.nodes[1:] },
			[]string{"machine m0 has no node", "got 2 nodes, want 3"}},
		"node without a machine": {func(a *inventory) { a.nodes = append(a.nodes, corev1.Node{}) },
			[]string{"got 4 nodes, want 3"}},
		"leftover token": {func(a *inventory) { a.tokens = make([]corev1.Secret, 1) },
			[]string{"1 bootstrap tokens are left"}},
	} {
		t.Run(name, func(t *testing.T) {
			all := settledFleet()
			c.change(all)
			problems := all.problems()
			if len(problems) != len(c.want) {
				t.Fatalf("got problems %q, want %q", problems, c.want)
			}
			for i := range problems {
				if !strings.Contains(problems[i], c.want[i]) {
					t.Errorf("problem %d: got %q, want %q", i, problems[i], c.want[i])
				}
			}
		})
	}
}

func TestListContainsEverything(t *testing.T) {
	if list := new(inventory).list(); len(list) > 0 {
		t.Errorf("empty inventory: got %q, want nothing", list)
	}
	all := settledFleet()
	all.tokens = make([]corev1.Secret, 1)
	if list := all.list(); len(list) != 1+1+3+3+3+1 {
		t.Errorf("got %d entries, want %d: %q", len(list), 1+1+3+3+3+1, list)
	}
}

func TestSecretsInFindsSecretInLog(t *testing.T) {
	clean, dirty := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(clean, "a.log"): "nothing", filepath.Join(dirty, "b.log"): "the token is 12345!",
		filepath.Join(dirty, "c.kubeconfig"): "12345",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read, found, err := secretsIn(map[string]string{"the token": "12345", "another token": "67890"}, clean, dirty)
	if want := []string{"the token is in " + filepath.Join(dirty, "b.log")}; read != 2 || !slices.Equal(found, want) ||
		err != nil {
		t.Errorf("got %d logs, %q, error %v; want 2 logs, %q", read, found, err, want)
	}
}
