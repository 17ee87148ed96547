//go:build e2e

package e2e

import (
	"slices"
	"time"

	"machinist.dev/machinist/devel/controlplane/auditlog"
)

// writes are requests that changed something, in the order in which the API server received them.
type writes []auditlog.Request

// requests returns what the processes asked the API server for since it started, by its own clock.
func (d *divided) requests(match func(auditlog.Request) bool) writes {
	d.t.Helper()
	log, err := auditlog.Open(d.Control.AuditLog())
	if err != nil {
		d.t.Fatal(err)
	}
	found, err := log.Requests(auditlog.Filter{Users: programs, Match: match})
	if err != nil {
		d.t.Fatal(err)
	}
	slices.SortStableFunc(found, func(a, b auditlog.Request) int { return a.Received.Compare(b.Received) })
	return found
}

// changed reports whether a request changed something.
func changed(r auditlog.Request) bool {
	return r.Verb != "get" && r.Verb != "list" && r.Verb != "watch" && r.Code >= 200 && r.Code < 300
}

// writes returns what a program's processes changed in the namespaces of the fleets. Events do not count: they say what
// was done.
func (d *divided) writes(program string) writes {
	d.t.Helper()
	return d.requests(func(r auditlog.Request) bool {
		return r.User == program && changed(r) && r.Resource != "events" && slices.Contains(d.namespaces, r.Namespace)
	})
}

// renewals returns the writes of a process to the Lease of its shard: the first one acquired it.
func (d *divided) renewals(m *member) writes {
	d.t.Helper()
	return d.requests(func(r auditlog.Request) bool {
		return changed(r) && r.Resource == "leases" && r.Name == m.shard.LeaseName(m.program) && memberOf(r.Groups) == m.Name
	})
}

// tries returns when a process read the Lease of its shard.
func (d *divided) tries(m *member) writes {
	d.t.Helper()
	return d.requests(func(r auditlog.Request) bool {
		return r.Verb == "get" && r.Resource == "leases" && r.Name == m.shard.LeaseName(m.program) &&
			memberOf(r.Groups) == m.Name
	})
}

// awaitTry returns when each of some processes has tried to get its Lease.
func (d *divided) awaitTry(members ...*member) {
	d.t.Helper()
	for _, m := range members {
		eventually(d.t, m.Name+" tries to get its Lease", func() (bool, string) {
			return len(d.tries(m)) > 0, m.LogTail()
		})
	}
}

// by returns the writes of some processes.
func (w writes) by(members ...*member) writes {
	return slices.DeleteFunc(slices.Clone(w), func(r auditlog.Request) bool {
		return !slices.ContainsFunc(members, func(m *member) bool { return m.Name == memberOf(r.Groups) })
	})
}

// in returns the writes in a namespace.
func (w writes) in(namespace string) writes {
	return slices.DeleteFunc(slices.Clone(w), func(r auditlog.Request) bool { return r.Namespace != namespace })
}

// between returns the writes that the API server received after one time and before another.
func (w writes) between(after, before time.Time) writes {
	return slices.DeleteFunc(slices.Clone(w), func(r auditlog.Request) bool {
		return !r.Received.After(after) || !r.Received.Before(before)
	})
}

func (w writes) first() auditlog.Request { return w[0] }
func (w writes) last() auditlog.Request  { return w[len(w)-1] }

// oneOwner fails the test if a process wrote in a namespace that is not in its shard, or after another process had
// written there in its place, until a time.
func (d *divided) oneOwner(until time.Time) {
	d.t.Helper()
	for _, program := range programs {
		all := d.writes(program).between(time.Time{}, until)
		for _, namespace := range d.namespaces {
			var owners []string
			for _, r := range all.in(namespace) {
				name := memberOf(r.Groups)
				if len(owners) > 0 && owners[len(owners)-1] == name {
					continue
				}
				if slices.Contains(owners, name) {
					d.t.Errorf("%s wrote in %s at %s, after another process had: %v", name, namespace, r.Received, owners)
					break
				}
				owners = append(owners, name)
				if m := d.members[name]; m == nil || !m.shard.Owns(namespace) {
					d.t.Errorf("%q wrote in %s at %s, which is not in its shard", name, namespace, r.Received)
				}
			}
			if len(owners) == 0 {
				d.t.Errorf("no %s wrote in %s", program, namespace)
			}
		}
	}
}
