//go:build e2e

package e2e

import (
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/internal/platform/sharding"
	"machinist.dev/machinist/test/env"
)

// A successor must acquire an expired Lease within maxTries tries. Before the successor has renewed the Lease
// maxRenewals times, it must write in each namespace. Both limits count requests, so they do not depend on the speed of
// the computer.
const (
	maxTries    = 3
	maxRenewals = 5
)

var first, second = sharding.Shard{Index: 0, Count: 2}, sharding.Shard{Index: 1, Count: 2}

// startPairs starts a leader and a waiting process for each shard of each program, and returns these processes by
// program and shard.
func (d *shardedFixture) startPairs() (leaders, waiting map[string][]*member) {
	d.t.Helper()
	leaders, waiting = map[string][]*member{}, map[string][]*member{}
	for _, program := range programs {
		for _, s := range []sharding.Shard{first, second} {
			leaders[program] = append(leaders[program], d.startLeader(program, s, "a"))
			waiting[program] = append(waiting[program], d.startMember(program, s, "b"))
		}
	}
	for _, program := range programs {
		d.awaitTry(waiting[program]...)
	}
	return leaders, waiting
}

func (d *shardedFixture) awaitHandover(before *coordinationv1.Lease) {
	d.t.Helper()
	env.Await(d.t, d.control, &coordinationv1.LeaseList{}, "another holder of "+before.Name,
		func(l *coordinationv1.LeaseList) (bool, string) {
			for _, lease := range l.Items {
				if holder := lease.Spec.HolderIdentity; lease.Name == before.Name && holder != nil {
					return *holder != "" && *holder != *before.Spec.HolderIdentity, *holder
				}
			}
			return false, "the Lease does not exist"
		}, client.InNamespace(stack.SystemNamespace))
}

// The leaders of one shard are killed during a scale-up. The other shard must continue. Within a lease duration, other
// processes must serve the namespaces of the first shard.
//
// Rules: shard-taken-over-within-a-lease, shard-has-one-owner, crash-safe-everywhere.
func TestKilledShardIsTakenOverWithinLease(t *testing.T) {
	t.Parallel()
	d := startSharded(t)
	leaders, waiting := d.startPairs()
	d.createFleets(2)
	d.awaitRunningIn(d.namespaces, 2)
	d.scaleAll(6)
	d.awaitPartialScaleUp(d.namespacesOf(first), 2, 6)
	var leases []*coordinationv1.Lease
	for _, program := range programs {
		leases = append(leases, d.lease(leaders[program][0]))
		if err := leaders[program][0].Kill(); err != nil {
			t.Fatal(err)
		}
	}
	killed := time.Now()
	// Scale up again, in case the first scale-up is already complete.
	d.scaleAll(8)

	d.awaitRunningIn(d.namespacesOf(second), 8)
	settled := time.Now()
	for _, lease := range leases {
		d.awaitHandover(lease)
	}
	d.awaitRunningIn(d.namespaces, 8)
	t.Logf("the other shard completed the scale-up %s after the kill", settled.Sub(killed))
	for i, program := range programs {
		lease := time.Duration(*leases[i].Spec.LeaseDurationSeconds) * time.Second
		acquired := d.wantTakeover(leaders[program][0], waiting[program][0], lease)
		other := leaders[program][1]
		meanwhile := d.writes(program).ofMembers(other).receivedBetween(killed, acquired)
		for _, namespace := range d.namespacesOf(second) {
			if len(meanwhile.inNamespace(namespace)) == 0 {
				t.Errorf("%s wrote nothing in %s before the Lease of the other shard was taken over", other.Name, namespace)
			}
		}
	}
	d.wantOneOwner(time.Now())
	d.wantInstancesPerNamespace(8)
	d.scaleToZero()
}

// wantTakeover requires that a successor acquired the Lease of a killed process as soon as the Lease expired, and
// then served all namespaces of the shard. wantTakeover returns the time of the acquisition. All times are those of
// the API server.
func (d *shardedFixture) wantTakeover(old, successor *member, lease time.Duration) time.Time {
	d.t.Helper()
	renewed, acquired := d.renewals(old).last().ReceivedAt, d.renewals(successor).first().ReceivedAt
	if acquired.Before(renewed.Add(lease)) {
		d.t.Errorf("%s acquired the Lease at %s, before it had expired: the last renewal at %s was for %s", successor.Name,
			acquired, renewed, lease)
	}
	late := len(d.tries(successor).receivedBetween(renewed.Add(lease), acquired))
	if late > maxTries {
		d.t.Errorf("%s tried %d times to acquire an expired Lease, want at most %d", successor.Name, late, maxTries)
	}
	written := d.writes(successor.program).ofMembers(successor)
	for _, namespace := range d.namespacesOf(successor.shard) {
		if len(written.inNamespace(namespace)) == 0 {
			d.t.Errorf("%s wrote nothing in %s", successor.Name, namespace)
		}
	}
	if len(written) == 0 {
		return acquired
	}
	began := written.first().ReceivedAt
	if n := len(d.renewals(successor).receivedBetween(acquired, began)); n > maxRenewals {
		d.t.Errorf("%s renewed its Lease %d times before its first write, want at most %d", successor.Name, n, maxRenewals)
	}
	d.t.Logf("%s acquired the Lease %s after its last renewal, in try %d, and wrote first after %s", successor.Name,
		acquired.Sub(renewed), late, began.Sub(renewed))
	return acquired
}

// The number of shards changes during a scale-up. As in an update of the Deployment, the new processes start before
// the old processes end. One process of each program is killed.
//
// Rules: shards-agree-on-their-number, shard-has-one-owner.
func TestShardCountChangesWithoutOverlap(t *testing.T) {
	onlyInFull(t, "the hand-overs of package test/handover")
	t.Parallel()
	d := startSharded(t)
	var before, after []*member
	for _, program := range programs {
		for _, s := range []sharding.Shard{first, second} {
			before = append(before, d.startLeader(program, s, "a"))
		}
	}
	d.createFleets(2)
	d.awaitRunningIn(d.namespaces, 2)
	for _, program := range programs {
		for i := range 3 {
			after = append(after, d.startMember(program, sharding.Shard{Index: i, Count: 3}, "a"))
		}
	}
	d.awaitTry(after...)
	d.scaleAll(6)
	d.awaitPartialScaleUp(d.namespaces, 2, 6)
	for i, m := range before {
		if i%2 == 0 {
			if err := m.Kill(); err != nil {
				t.Fatal(err)
			}
		} else if err := m.Stop(15 * time.Second); err != nil {
			t.Fatal(err)
		}
	}
	d.scaleAll(8)
	d.awaitRunningIn(d.namespaces, 8)
	for _, program := range programs {
		otherProgram := func(m *member) bool { return m.program != program }
		all := d.writes(program)
		oldWrites := all.ofMembers(slices.DeleteFunc(slices.Clone(before), otherProgram)...)
		newWrites := all.ofMembers(slices.DeleteFunc(slices.Clone(after), otherProgram)...)
		if len(oldWrites) == 0 || len(newWrites) == 0 {
			t.Errorf("%s: got %d writes of the two old shards and %d of the three new shards, want some of both", program,
				len(oldWrites), len(newWrites))
			continue
		}
		ended, began := oldWrites.last().ReceivedAt, newWrites.first().ReceivedAt
		t.Logf("%s: no shard acted for %s", program, began.Sub(ended))
		if !began.After(ended) {
			t.Errorf("%s: a new shard wrote at %s, before the last write of an old shard at %s", program, began, ended)
		}
	}
	d.wantOneOwner(time.Now())
	d.wantInstancesPerNamespace(8)
	d.scaleToZero()
}
