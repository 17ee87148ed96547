//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/simcloud"
)

// The provider process is killed at random moments. Its successors must create exactly one instance for each Machine,
// and delete all of them in the end.
//
// Rules: create-is-idempotent, crash-safe-everywhere.
func TestKilledProviderLeavesOneInstancePerMachine(t *testing.T) {
	t.Parallel()
	const replicas = 50
	m := start(t, stack.Options{ProviderArgs: append([]string{"--concurrent-machines=4"}, shortLease...)})
	s := m.supervise(m.Provider)
	boot, shutdown := simcloud.Duration(500*time.Millisecond), simcloud.Duration(500*time.Millisecond)
	m.settings(simcloud.SettingsPatch{BootTime: &boot, ShutdownTime: &shutdown})
	seed, kills := uint64(1), 3 // The seed is fixed, so that no run fails by chance.
	if isFull() {
		seed, kills = rand.Uint64(), 6
	}
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	// Slow calls and lost responses make kills during a call likely.
	m.slowCloud()

	m.createFleet(replicas, nil)
	s.crashUntil(m.Provider, random, kills, replicas, func() int { return len(m.instances()) })
	m.awaitRunning(replicas)
	m.wantNoTwins()
	if made := len(m.instances()); made != replicas {
		t.Errorf("the cloud created %d instances for %d machines", made, replicas)
	}

	m.scale(0)
	s.crashUntil(m.Provider, random, kills, replicas, func() int { return replicas - m.countLive() })
	m.awaitNoMachines()
	if n := m.countLive(); n != 0 {
		t.Errorf("%d instances are left", n)
	}
	if made := len(m.instances()); made != replicas {
		t.Errorf("the cloud created %d instances for %d machines", made, replicas)
	}
	nodes := &corev1.NodeList{}
	if err := m.target.List(context.Background(), nodes); err != nil {
		t.Fatal(err)
	}
	if len(nodes.Items) != 0 {
		t.Errorf("%d nodes are left", len(nodes.Items))
	}
	t.Logf("the provider ended %d times because of a lost lease", s.leaseExits(m.Provider))
}

func (m *machinist) slowCloud() {
	m.t.Helper()
	for _, rule := range []simcloud.FaultRule{
		{Operation: simcloud.OperationCreateInstance,
			Effect: simcloud.FaultEffect{Latency: simcloud.Duration(100 * time.Millisecond)}},
		{Operation: simcloud.OperationDeleteInstance,
			Effect: simcloud.FaultEffect{Latency: simcloud.Duration(100 * time.Millisecond)}},
		{Operation: simcloud.OperationCreateInstance, Count: 5, Effect: simcloud.FaultEffect{DropConnection: true,
			AfterEffect: true}},
	} {
		if _, err := m.cloud.AddFault(context.Background(), rule); err != nil {
			m.t.Fatalf("slow down the cloud: %v", err)
		}
	}
}

// crashUntil kills the process n times while it works on a number of machines, each time after random progress. It
// fails the test if the process was never killed before the work was done.
func (s *supervised) crashUntil(p *child.Process, random *rand.Rand, n, all int, done func() int) {
	s.m.t.Helper()
	killed := 0
	for now := 0; killed < n && now < all; {
		next := now + 1 + random.IntN(max(1, (all-now)/n))
		eventually(s.m.t, fmt.Sprintf("progress of %d machines", next), func() (bool, string) {
			n := done()
			return n >= next, fmt.Sprintf("the progress is %d machines", n)
		})
		if now = done(); now < all {
			s.crash(p)
			killed++
		}
	}
	s.m.t.Logf("killed the provider %d times while it worked on %d machines", killed, all)
	if killed == 0 {
		s.m.t.Errorf("the provider was never killed while it worked on %d machines", all)
	}
}
