//go:build e2e

package e2e

import (
	"slices"
	"time"

	"machinist.dev/machinist/devel/controlplane/auditlog"
)

type writes []auditlog.Request

func (d *shardedFixture) requests(match func(auditlog.Request) bool) writes {
	d.t.Helper()
	log, err := auditlog.Open(d.Control.AuditLog())
	if err != nil {
		d.t.Fatal(err)
	}
	found, err := log.Requests(auditlog.Filter{Users: programs, Match: match})
	if err != nil {
		d.t.Fatal(err)
	}
	slices.SortStableFunc(found, func(a, b auditlog.Request) int { return a.ReceivedAt.Compare(b.ReceivedAt) })
	return found
}

func changed(r auditlog.Request) bool {
	return r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" && r.Code >= 200 && r.Code < 300
}

func (d *shardedFixture) writes(program string) writes {
	d.t.Helper()
	return d.requests(func(r auditlog.Request) bool {
		return r.User == program && changed(r) && r.Resource != "events" && slices.Contains(d.namespaces, r.Namespace)
	})
}

// renewals returns the writes of a process to its shard's Lease. With the first of these writes, the process acquired
// the Lease.
func (d *shardedFixture) renewals(m *member) writes {
	d.t.Helper()
	return d.requests(func(r auditlog.Request) bool {
		return changed(r) && r.Resource == "leases" && r.Name == m.shard.LeaseName(m.program) && memberOf(r.Groups) == m.Name
	})
}

func (d *shardedFixture) tries(m *member) writes {
	d.t.Helper()
	return d.requests(func(r auditlog.Request) bool {
		return r.Verb == "get" && r.Resource == "leases" && r.Name == m.shard.LeaseName(m.program) &&
			memberOf(r.Groups) == m.Name
	})
}

func (d *shardedFixture) awaitTry(members ...*member) {
	d.t.Helper()
	for _, m := range members {
		eventually(d.t, m.Name+" has tried to acquire its Lease", func() (bool, string) {
			return len(d.tries(m)) > 0, m.LogTail()
		})
	}
}

func (w writes) ofMembers(members ...*member) writes {
	return slices.DeleteFunc(slices.Clone(w), func(r auditlog.Request) bool {
		return !slices.ContainsFunc(members, func(m *member) bool { return m.Name == memberOf(r.Groups) })
	})
}

func (w writes) inNamespace(namespace string) writes {
	return slices.DeleteFunc(slices.Clone(w), func(r auditlog.Request) bool { return r.Namespace != namespace })
}

func (w writes) receivedBetween(after, before time.Time) writes {
	return slices.DeleteFunc(slices.Clone(w), func(r auditlog.Request) bool {
		return !r.ReceivedAt.After(after) || !r.ReceivedAt.Before(before)
	})
}

func (w writes) first() auditlog.Request { return w[0] }
func (w writes) last() auditlog.Request  { return w[len(w)-1] }

// wantOneOwner fails the test if a process wrote outside of its shard, or after another process had become the owner.
// wantOneOwner checks all writes until the given time.
func (d *shardedFixture) wantOneOwner(until time.Time) {
	d.t.Helper()
	for _, program := range programs {
		all := d.writes(program).receivedBetween(time.Time{}, until)
		for _, namespace := range d.namespaces {
			var owners []string
			for _, r := range all.inNamespace(namespace) {
				name := memberOf(r.Groups)
				if len(owners) > 0 && owners[len(owners)-1] == name {
					continue
				}
				if slices.Contains(owners, name) {
					d.t.Errorf("%s wrote in %s at %s, after another process had taken over: %v", name, namespace, r.ReceivedAt, owners)
					break
				}
				owners = append(owners, name)
				if m := d.members[name]; m == nil || !m.shard.Owns(namespace) {
					d.t.Errorf("%q wrote in %s at %s, which is not in its shard", name, namespace, r.ReceivedAt)
				}
			}
			if len(owners) == 0 {
				d.t.Errorf("no %s wrote in %s", program, namespace)
			}
		}
	}
}
