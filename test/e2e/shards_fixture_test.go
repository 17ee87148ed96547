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

// programs are those of which there are shards.
var programs = []string{stack.Manager, stack.Provider}

// namespacesPerShard is how many namespaces each of two shards has in these tests.
const namespacesPerShard = 4

// divided is a Machinist whose processes are started by the test: several of each program, for fleets in several
// namespaces. Each process is in a group of its own at the API server, so that its audit log says which one wrote what.
type divided struct {
	*machinist
	namespaces []string
	members    map[string]*member
	// links, unless nil, are what each process is connected to the control cluster by, by its name.
	links map[string]*leaseLink
}

// member is one process of a shard.
type member struct {
	*child.Process
	program string
	shard   sharding.Shard
}

// memberGroup is what the name of a member's group begins with; the rest is the member's name.
const memberGroup = "member:"

// startDivided brings up all but the processes, and makes the namespaces.
func startDivided(t *testing.T) *divided {
	t.Helper()
	// The shards of three are another division of the same namespaces.
	d := &divided{machinist: start(t, stack.Options{Bare: true, Shards: 3}), members: map[string]*member{}}
	d.quick()
	d.slowCloud()
	var inShard [2]int
	for i := 0; len(d.namespaces) < len(inShard)*namespacesPerShard; i++ {
		name := fmt.Sprintf("team-%d", i)
		shard := sharding.Of(name, len(inShard))
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

// of returns the namespaces of a shard.
func (d *divided) of(s sharding.Shard) []string {
	return slices.DeleteFunc(slices.Clone(d.namespaces), func(name string) bool { return !s.Owns(name) })
}

// start starts a process of a shard. replica tells several of one shard apart.
func (d *divided) start(program string, s sharding.Shard, replica string) *member {
	d.t.Helper()
	name := fmt.Sprintf("%s-%d-of-%d-%s", program, s.Index, s.Count, replica)
	config, err := d.Control.UserConfig(program, stack.ProcessGroup, memberGroup+name)
	if err != nil {
		d.t.Fatal(err)
	}
	target := d.kubeconfig(name+".target", config)
	if d.links != nil {
		d.links[name] = &leaseLink{cut: make(chan struct{})}
		config = d.links[name].stand(d.t, config)
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
		if p.Running() {
			_ = p.Signal(syscall.SIGCONT)
			_ = p.Stop(15 * time.Second)
		}
	})
	return m
}

// kubeconfig writes a kubeconfig and returns its path.
func (d *divided) kubeconfig(name string, config *rest.Config) string {
	d.t.Helper()
	path := filepath.Join(d.Dir(), name+".kubeconfig")
	if err := controlplane.WriteKubeconfig(path, config); err != nil {
		d.t.Fatal(err)
	}
	return path
}

// startLeader starts a process and returns when it leads its shard.
func (d *divided) startLeader(program string, s sharding.Shard, replica string) *member {
	d.t.Helper()
	m := d.start(program, s, replica)
	d.awaitLeads(m)
	return m
}

// awaitLeads returns when the Lease of a process's shard was acquired after the process had started. No other one may
// try to get it.
func (d *divided) awaitLeads(m *member) {
	d.t.Helper()
	name := m.shard.LeaseName(m.program)
	env.Await(d.t, d.control, &coordinationv1.LeaseList{}, m.Name+" to lead", func(l *coordinationv1.LeaseList) (bool,
		string) {
		for _, lease := range l.Items {
			if at := lease.Spec.AcquireTime; lease.Name == name && at != nil {
				return at.After(m.Started()), fmt.Sprintf("acquired at %s, and it started at %s", at, m.Started())
			}
		}
		return false, "there is no Lease"
	}, client.InNamespace(stack.SystemNamespace))
}

// lease reads the Lease of a process's shard.
func (d *divided) lease(m *member) *coordinationv1.Lease {
	d.t.Helper()
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: stack.SystemNamespace, Name: m.shard.LeaseName(m.program)}
	if err := d.control.Get(context.Background(), key, lease); err != nil {
		d.t.Fatal(err)
	}
	return lease
}

// fleets creates a fleet in each namespace.
func (d *divided) fleets(replicas int32) {
	d.t.Helper()
	for _, name := range d.namespaces {
		d.fleet(replicas, func(o client.Object) { o.SetNamespace(name) })
	}
}

// scaleAll sets the replicas of all deployments.
func (d *divided) scaleAll(replicas int32) {
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

// settled waits until each of the namespaces has n machines, all Running.
func (d *divided) settled(namespaces []string, n int) {
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
			return done, fmt.Sprintf("machines: %v, of which are running: %v", all, running)
		})
}

// midst waits until a scale-up to n is under way in all of the namespaces: each has a new instance and not all of them.
func (d *divided) midst(namespaces []string, before, n int) {
	d.t.Helper()
	env.Await(d.t, d.control, &v1beta1.MachineList{}, "a scale-up that is under way", func(l *v1beta1.MachineList) (bool,
		string) {
		made := map[string]int{}
		for i := range l.Items {
			if l.Items[i].Spec.ProviderID != "" {
				made[l.Items[i].Namespace]++
			}
		}
		begun := 0
		for _, name := range namespaces {
			begun += made[name] - before*min(1, made[name])
		}
		return begun >= len(namespaces)/2 && begun < len(namespaces)*(n-before), fmt.Sprintf("instances: %v", made)
	})
}

// exact fails the test unless the cloud made one instance for each of n machines in every namespace.
func (d *divided) exact(n int) {
	d.t.Helper()
	d.noTwins()
	if made, want := len(d.instances()), n*len(d.namespaces); made != want {
		d.t.Errorf("the cloud made %d instances for %d machines", made, want)
	}
}

// empty scales to 0 and fails the test if an instance is left.
func (d *divided) empty() {
	d.t.Helper()
	d.scaleAll(0)
	d.settled(d.namespaces, 0)
	if n := d.live(); n != 0 {
		d.t.Errorf("%d instances are left", n)
	}
}

// memberOf returns the name of the process that is in such groups, "" if it is none of ours.
func memberOf(groups []string) string {
	for _, group := range groups {
		if name, ok := strings.CutPrefix(group, memberGroup); ok {
			return name
		}
	}
	return ""
}
