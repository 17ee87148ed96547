//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/devel/controlplane"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/internal/platform/sharding"
	"machinist.dev/machinist/test/env"
)

var programs = []string{stack.Manager, stack.Provider}

const namespacesPerShard = 4

// shardedFixture is the fixture of the tests with shards: a Machinist installation with fleets in several namespaces.
// The test starts several processes of each program. Each process has its own user group, so the API server's audit
// log shows who sent a write.
type shardedFixture struct {
	*machinist
	namespaces []string
	members    map[string]*member
	// links are the proxies between processes and the control cluster, by process name. If the map is nil, there are no
	// proxies.
	links map[string]*leaseLink
}

type member struct {
	*child.Process
	program string
	shard   sharding.Shard
}

const memberGroup = "member:"

func startSharded(t *testing.T) *shardedFixture {
	t.Helper()
	// Some tests also divide the namespaces into three shards.
	d := &shardedFixture{machinist: start(t, stack.Options{PrepareOnly: true, Shards: 3}), members: map[string]*member{}}
	d.removeDelays()
	d.slowCloud()
	var inShard [2]int
	for i := 0; len(d.namespaces) < len(inShard)*namespacesPerShard; i++ {
		name := fmt.Sprintf("team-%d", i)
		shard := sharding.Index(name, len(inShard))
		if inShard[shard] == namespacesPerShard {
			continue
		}
		inShard[shard]++
		d.namespaces = append(d.namespaces, name)
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if err := d.control.Create(context.Background(), ns); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func (d *shardedFixture) namespacesOf(s sharding.Shard) []string {
	return slices.DeleteFunc(slices.Clone(d.namespaces), func(name string) bool { return !s.Owns(name) })
}

func (d *shardedFixture) startMember(program string, s sharding.Shard, replica string) *member {
	d.t.Helper()
	name := fmt.Sprintf("%s-%d-of-%d-%s", program, s.Index, s.Count, replica)
	config, err := d.Control.UserConfig(program, stack.ProcessGroup, memberGroup+name)
	if err != nil {
		d.t.Fatal(err)
	}
	target := d.kubeconfig(name+".target", config)
	if d.links != nil {
		d.links[name] = &leaseLink{cut: make(chan struct{})}
		config = d.links[name].serve(d.t, config)
	}
	args := []string{"--control-kubeconfig=" + d.kubeconfig(name, config), "--target-kubeconfig=" + target,
		fmt.Sprintf("--shards=%d", s.Count), fmt.Sprintf("--shard=%d", s.Index)}
	prepare := d.NewManager
	if program == stack.Provider {
		prepare, args = d.NewProvider, append(args, fmt.Sprintf("--concurrent-machines=%d", workers))
	}
	p, err := prepare(name, args...)
	if err != nil {
		d.t.Fatal(err)
	}
	if err := p.Start(); err != nil {
		d.t.Fatal(err)
	}
	m := &member{Process: p, program: program, shard: s}
	d.members[name] = m
	d.t.Cleanup(func() {
		if d.t.Failed() {
			d.t.Logf("%s", p.LogTail())
		}
		if p.IsRunning() {
			_ = p.Signal(syscall.SIGCONT)
			_ = p.Stop(15 * time.Second)
		}
	})
	return m
}

func (d *shardedFixture) kubeconfig(name string, config *rest.Config) string {
	d.t.Helper()
	path := filepath.Join(d.Dir(), name+".kubeconfig")
	if err := controlplane.WriteKubeconfig(path, config); err != nil {
		d.t.Fatal(err)
	}
	return path
}

func (d *shardedFixture) startLeader(program string, s sharding.Shard, replica string) *member {
	d.t.Helper()
	m := d.startMember(program, s, replica)
	d.awaitLeads(m)
	return m
}

// awaitLeads waits until the process has acquired the Lease of its shard. No other process may try to acquire it
// meanwhile.
func (d *shardedFixture) awaitLeads(m *member) {
	d.t.Helper()
	name := m.shard.LeaseName(m.program)
	env.Await(d.t, d.control, &coordinationv1.LeaseList{}, m.Name+" to lead", func(l *coordinationv1.LeaseList) (bool,
		string) {
		for _, lease := range l.Items {
			if at := lease.Spec.AcquireTime; lease.Name == name && at != nil {
				return at.After(m.StartTime()), fmt.Sprintf("acquired at %s, started at %s", at, m.StartTime())
			}
		}
		return false, "the Lease does not exist"
	}, client.InNamespace(stack.SystemNamespace))
}

func (d *shardedFixture) lease(m *member) *coordinationv1.Lease {
	d.t.Helper()
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: stack.SystemNamespace, Name: m.shard.LeaseName(m.program)}
	if err := d.control.Get(context.Background(), key, lease); err != nil {
		d.t.Fatal(err)
	}
	return lease
}

func (d *shardedFixture) createFleets(replicas int32) {
	d.t.Helper()
	for _, name := range d.namespaces {
		d.createFleet(replicas, func(o client.Object) { o.SetNamespace(name) })
	}
}

func (d *shardedFixture) scaleAll(replicas int32) {
	d.t.Helper()
	list := &v1beta1.MachineDeploymentList{}
	if err := d.control.List(context.Background(), list); err != nil {
		d.t.Fatal(err)
	}
	for i := range list.Items {
		deployment := &list.Items[i]
		before := deployment.DeepCopy()
		deployment.Spec.Replicas = &replicas
		if err := d.control.Patch(context.Background(), deployment, client.MergeFrom(before)); err != nil {
			d.t.Fatalf("scale the deployment in %s to %d: %v", deployment.Namespace, replicas, err)
		}
	}
}

func (d *shardedFixture) awaitRunningIn(namespaces []string, n int) {
	d.t.Helper()
	env.Await(d.t, d.control, &v1beta1.MachineList{}, fmt.Sprintf("%d running machines in each of %v", n, namespaces),
		func(l *v1beta1.MachineList) (bool, string) {
			all, running := map[string]int{}, map[string]int{}
			for i := range l.Items {
				m := &l.Items[i]
				all[m.Namespace]++
				if m.Status.Phase == v1beta1.MachineRunning && m.DeletionTimestamp.IsZero() {
					running[m.Namespace]++
				}
			}
			done := !slices.ContainsFunc(namespaces, func(name string) bool { return all[name] != n || running[name] != n })
			return done, fmt.Sprintf("machines: %v, running: %v", all, running)
		})
}

// awaitPartialScaleUp waits until a scale-up to n machines has begun but has created only some of the new instances.
func (d *shardedFixture) awaitPartialScaleUp(namespaces []string, before, n int) {
	d.t.Helper()
	env.Await(d.t, d.control, &v1beta1.MachineList{}, "a scale-up that is under way", func(l *v1beta1.MachineList) (bool,
		string) {
		created := map[string]int{}
		for i := range l.Items {
			if l.Items[i].Spec.ProviderID != "" {
				created[l.Items[i].Namespace]++
			}
		}
		added := 0
		for _, name := range namespaces {
			added += created[name] - before*min(1, created[name])
		}
		return added >= len(namespaces)/2 && added < len(namespaces)*(n-before), fmt.Sprintf("instances: %v", created)
	})
}

func (d *shardedFixture) wantInstancesPerNamespace(n int) {
	d.t.Helper()
	d.wantNoTwins()
	if made, want := len(d.instances()), n*len(d.namespaces); made != want {
		d.t.Errorf("the cloud created %d instances for %d machines", made, want)
	}
}

func (d *shardedFixture) scaleToZero() {
	d.t.Helper()
	d.scaleAll(0)
	d.awaitRunningIn(d.namespaces, 0)
	if n := d.countLive(); n != 0 {
		d.t.Errorf("%d instances are left", n)
	}
}

func memberOf(groups []string) string {
	for _, group := range groups {
		if name, ok := strings.CutPrefix(group, memberGroup); ok {
			return name
		}
	}
	return ""
}
