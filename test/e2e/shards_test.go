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

// lastTry is how many times a successor may try to get a Lease that has run out, and firstWrite is how many times it
// may renew it before it writes in one of the namespaces. Both count its own requests, so that they are the same on a
// slow machine.
const (
	lastTry    = 3
	firstWrite = 5
)

var first, second = sharding.Shard{Index: 0, Count: 2}, sharding.Shard{Index: 1, Count: 2}

// pairs starts two processes for each shard of each program. It returns the leaders and those that wait, by the program
// and the shard.
func (d *divided) pairs() (leaders, waiting map[string][]*member) {
	d.t.Helper()
	leaders, waiting = map[string][]*member{}, map[string][]*member{}
	for _, program := range programs {
		for _, s := range []sharding.Shard{first, second} {
			leaders[program] = append(leaders[program], d.startLeader(program, s, "a"))
			waiting[program] = append(waiting[program], d.start(program, s, "b"))
		}
	}
	for _, program := range programs {
		d.awaitTry(waiting[program]...)
	}
	return leaders, waiting
}

// awaitHandover returns when another process than before holds the Lease of a shard.
func (d *divided) awaitHandover(before *coordinationv1.Lease) {
	d.t.Helper()
	env.Await(d.t, d.control, &coordinationv1.LeaseList{}, "another holder of "+before.Name,
		func(l *coordinationv1.LeaseList) (bool, string) {
			for _, lease := range l.Items {
				if holder := lease.Spec.HolderIdentity; lease.Name == before.Name && holder != nil {
					return *holder != "" && *holder != *before.Spec.HolderIdentity, *holder
				}
			}
			return false, "there is no Lease"
		}, client.InNamespace(stack.SystemNamespace))
}

// The leaders of one shard are killed in the midst of a scale-up. The other shard goes on, and the namespaces of the
// first are served within a lease.
//
// Rules: shard-taken-over-within-a-lease, shard-has-one-owner, crash-safe-everywhere.
func TestTheMachinesOfAKilledShardAreServedWithinALease(t *testing.T) {
	t.Parallel()
	d := startDivided(t)
	leaders, waiting := d.pairs()
	d.fleets(2)
	d.settled(d.namespaces, 2)
	d.scaleAll(6)
	d.midst(d.of(first), 2, 6)
	var leases []*coordinationv1.Lease
	for _, program := range programs {
		leases = append(leases, d.lease(leaders[program][0]))
		if err := leaders[program][0].Kill(); err != nil {
			t.Fatal(err)
		}
	}
	killed := time.Now()
	// There is something to do for everybody, whatever was done before.
	d.scaleAll(8)

	d.settled(d.of(second), 8)
	settled := time.Now()
	for _, lease := range leases {
		d.awaitHandover(lease)
	}
	d.settled(d.namespaces, 8)
	t.Logf("the other shard settled %s after the kill", settled.Sub(killed))
	for i, program := range programs {
		lease := time.Duration(*leases[i].Spec.LeaseDurationSeconds) * time.Second
		acquired := d.takenOver(leaders[program][0], waiting[program][0], lease)
		other := leaders[program][1]
		meanwhile := d.writes(program).by(other).between(killed, acquired)
		for _, namespace := range d.of(second) {
			if len(meanwhile.in(namespace)) == 0 {
				t.Errorf("%s wrote nothing in %s while the lease of the other shard ran out", other.Name, namespace)
			}
		}
	}
	d.oneOwner(time.Now())
	d.exact(8)
	d.empty()
}

// takenOver fails the test unless a process acquired the Lease of a killed one as soon as it had run out, and served
// all of its namespaces. All times are the API server's. It returns when the Lease was acquired.
func (d *divided) takenOver(old, successor *member, lease time.Duration) time.Time {
	d.t.Helper()
	renewed, acquired := d.renewals(old).last().Received, d.renewals(successor).first().Received
	if acquired.Before(renewed.Add(lease)) {
		d.t.Errorf("%s acquired the lease at %s, before it had run out: it was renewed at %s for %s", successor.Name,
			acquired, renewed, lease)
	}
	late := len(d.tries(successor).between(renewed.Add(lease), acquired))
	if late > lastTry {
		d.t.Errorf("%s tried %d times to get a lease that had run out, want at most %d", successor.Name, late, lastTry)
	}
	written := d.writes(successor.program).by(successor)
	for _, namespace := range d.of(successor.shard) {
		if len(written.in(namespace)) == 0 {
			d.t.Errorf("%s wrote nothing in %s", successor.Name, namespace)
		}
	}
	if len(written) == 0 {
		return acquired
	}
	began := written.first().Received
	if n := len(d.renewals(successor).between(acquired, began)); n > firstWrite {
		d.t.Errorf("%s renewed its lease %d times before it wrote anything, want at most %d", successor.Name, n, firstWrite)
	}
	d.t.Logf("%s acquired the lease %s after its last renewal, by try %d, and wrote first after %s", successor.Name,
		acquired.Sub(renewed), late, began.Sub(renewed))
	return acquired
}

// The number of shards changes in the midst of a scale-up, as by a new Deployment: the new processes start beside the
// old ones, which then end, one of each program by a kill.
//
// Rules: shards-agree-on-their-number, shard-has-one-owner.
func TestNobodyActsTwiceWhenTheNumberOfShardsChanges(t *testing.T) {
	onlyInFull(t, "the hand-overs of package test/handover")
	t.Parallel()
	d := startDivided(t)
	var before, after []*member
	for _, program := range programs {
		for _, s := range []sharding.Shard{first, second} {
			before = append(before, d.startLeader(program, s, "a"))
		}
	}
	d.fleets(2)
	d.settled(d.namespaces, 2)
	for _, program := range programs {
		for i := range 3 {
			after = append(after, d.start(program, sharding.Shard{Index: i, Count: 3}, "a"))
		}
	}
	d.awaitTry(after...)
	d.scaleAll(6)
	d.midst(d.namespaces, 2, 6)
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
	d.settled(d.namespaces, 8)
	for _, program := range programs {
		ours := func(m *member) bool { return m.program != program }
		all := d.writes(program)
		old := all.by(slices.DeleteFunc(slices.Clone(before), ours)...)
		others := all.by(slices.DeleteFunc(slices.Clone(after), ours)...)
		if len(old) == 0 || len(others) == 0 {
			t.Errorf("%s: two shards wrote %d times, and three %d times", program, len(old), len(others))
			continue
		}
		ended, began := old.last().Received, others.first().Received
		t.Logf("%s: nobody acted for %s", program, began.Sub(ended))
		if !began.After(ended) {
			t.Errorf("%s: the first of three shards wrote at %s, and the last of two at %s", program, began, ended)
		}
	}
	d.oneOwner(time.Now())
	d.exact(8)
	d.empty()
}
