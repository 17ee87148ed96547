package process

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/sharding"
)

func namespaceIn(t *testing.T, s sharding.Shard) string {
	t.Helper()
	for range 100 {
		if name := newNamespace(t); s.Owns(name) {
			return name
		}
	}
	t.Fatalf("none of a hundred namespaces is in shard %s", s)
	return ""
}

// startShard starts the process of one of two shards. All processes of a test share one namespace for their Leases.
func startShard(t *testing.T, leases string, shard int) *process {
	t.Helper()
	c, o := testConfig(t), testOptions()
	c.TargetKubeconfig = planes.target.Kubeconfig()
	c.LeaderElectionNamespace, c.Shards, c.ShardIndex = leases, 2, shard
	o.ControlKinds = append(o.ControlKinds, Kind{Object: &v1beta1.Machine{}})
	return start(t, c, o, func(p *Process) error {
		return index.RegisterMachines(t.Context(), p.Control().Cache)
	})
}

func (p *process) classes(namespaces ...string) []string {
	p.t.Helper()
	list := &v1beta1.MachineClassList{}
	if err := p.Control().Client.List(p.t.Context(), list); err != nil {
		p.t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		if slices.Contains(namespaces, list.Items[i].Namespace) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

// Both processes lead at the same time with their own Leases. Each process caches only the objects in namespaces of its
// own shard, both objects created before its start and objects created later.
//
// Rule: shard-caches-its-own.
func TestAShardCachesItsOwnNamespacesOnly(t *testing.T) {
	leases := newNamespace(t)
	var namespaces []string
	for i := range 2 {
		namespaces = append(namespaces, namespaceIn(t, sharding.Shard{Index: i, Count: 2}))
	}
	live := func(p *process, name string) {
		t.Helper()
		for _, namespace := range namespaces {
			if err := p.Control().LiveClient.Create(t.Context(), newClass(namespace, name+"-"+namespace)); err != nil {
				t.Fatal(err)
			}
		}
	}
	first := startShard(t, leases, 0)
	first.elected()
	live(first, "before")
	second := startShard(t, leases, 1)
	second.elected()
	live(second, "later")
	for i, p := range []*process{first, second} {
		own := namespaces[i]
		eventually(t, func() error {
			if got := p.classes(namespaces...); len(got) < 2 {
				return fmt.Errorf("shard %d has cached only %v", i, got)
			}
			return nil
		})
		got := p.classes(namespaces...)
		if slices.Sort(got); !slices.Equal(got, []string{"before-" + own, "later-" + own}) {
			t.Errorf("shard %d has cached %v", i, got)
		}
		for _, namespace := range namespaces {
			list := &v1beta1.MachineClassList{}
			if err := p.AllNamespacesReader().List(t.Context(), list, client.InNamespace(namespace)); err != nil {
				t.Fatal(err)
			}
			if len(list.Items) != 2 {
				t.Errorf("shard %d finds %d classes in %s", i, len(list.Items), namespace)
			}
		}
	}
	for _, name := range []string{"machinist-test", "machinist-test-shard-0", "machinist-test-shard-1"} {
		if _, err := clientset(t, planes.control.Config()).CoordinationV1().Leases(leases).Get(t.Context(), name,
			metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// Rule: shard-caches-its-own.
func TestAShardCachesTheNodesOfItsMachines(t *testing.T) {
	p := startShard(t, newNamespace(t), 0)
	p.elected()
	ours := namespaceIn(t, sharding.Shard{Index: 0, Count: 2})
	theirs := namespaceIn(t, sharding.Shard{Index: 1, Count: 2})
	nodes := clientset(t, planes.target.Config()).CoreV1().Nodes()
	newNode := func(name, namespace string) {
		t.Helper()
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: ours + "-" + name}}
		if namespace != "" {
			node.Annotations = map[string]string{v1beta1.NodeAnnotationClusterNamespace: namespace}
		}
		if _, err := nodes.Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = nodes.Delete(context.Background(), node.Name, metav1.DeleteOptions{}) })
	}
	change := func(name string, to func(*corev1.Node)) {
		t.Helper()
		node, err := nodes.Get(t.Context(), ours+"-"+name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		to(node)
		if _, err := nodes.Update(t.Context(), node, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	cached := func(want ...string) {
		t.Helper()
		eventually(t, func() error {
			var got []string
			for _, name := range []string{"ours", "theirs", "new", "taken-over", "last"} {
				err := p.Target().Client.Get(t.Context(), client.ObjectKey{Name: ours + "-" + name}, &corev1.Node{})
				if err == nil {
					got = append(got, name)
				}
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("the cache contains %v, want %v", got, want)
			}
			return nil
		})
	}
	eventually(t, func() error {
		if !p.Target().IsSynced() {
			return errors.New("the target cluster's cache was not filled")
		}
		return nil
	})
	newNode("ours", ours)
	newNode("theirs", theirs)
	newNode("new", "")
	newNode("taken-over", theirs)
	newNode("last", ours)
	cached("ours", "new", "last")

	change("new", func(n *corev1.Node) {
		n.Annotations = map[string]string{v1beta1.NodeAnnotationClusterNamespace: theirs}
	})
	cached("ours", "last")
	// A Machine of this shard registers under the former Node name of another shard's Machine.
	machine := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: ours, Name: "m"}}
	machine.Spec.Provider, machine.Spec.ProviderID = "sim", "sim:///taken-over"
	machine.Spec.ProviderSpec = newClass(ours, "").Spec.ProviderSpec
	if err := p.Control().Client.Create(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	if err := p.Control().Client.Get(t.Context(), client.ObjectKeyFromObject(machine), machine); err != nil {
		t.Fatal(err)
	}
	change("taken-over", func(n *corev1.Node) { n.Spec.ProviderID = "sim:///taken-over" })
	cached("ours", "taken-over", "last")
	if err := nodes.Delete(t.Context(), ours+"-ours", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	cached("taken-over", "last")
}

// Rule: shards-agree-on-their-number.
func TestAProcessWithoutShardsWaitsUntilTheShardsEnd(t *testing.T) {
	leases := newNamespace(t)
	shard := startShard(t, leases, 1)
	shard.elected()
	c := testConfig(t)
	c.LeaderElectionNamespace = leases
	// The shard renews the common Lease every second. Therefore this process must not become the leader, even with a
	// short lease duration.
	c.LeaseDuration, c.RenewDeadline = 5*time.Second, 3*time.Second
	unsharded := start(t, c, testOptions(), nil)
	unsharded.logs.contain(t, "Attempting to acquire leader lease")
	seen := map[string]bool{}
	eventually(t, func() error {
		common, err := clientset(t, planes.control.Config()).CoordinationV1().Leases(leases).Get(t.Context(), c.Name,
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		if seen[common.ResourceVersion] = true; len(seen) < 3 {
			return errors.New("the common Lease was not renewed")
		}
		return nil
	})
	select {
	case <-unsharded.Manager().Elected():
		t.Error("a process without shards leads at the same time as a shard")
	default:
	}
	if err := shard.stopAndWait(); err != nil {
		t.Error(err)
	}
	unsharded.elected()
}
