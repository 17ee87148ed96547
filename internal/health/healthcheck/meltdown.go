package healthcheck

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// DefaultMeltdownThreshold is the default meltdown threshold, in percent of the nodes. If more nodes than this are
// unwell, there is a meltdown.
const DefaultMeltdownThreshold = 55

// minMeltdownMachines is the minimum number of machines in a meltdown, because the share of unwell machines among fewer
// machines proves nothing.
const minMeltdownMachines = 3

// everywhere is the failure domain of all machines.
const everywhere = ""

// Share counts the machines of a failure domain that run as nodes. Unwell counts the unwell machines among them.
type Share struct{ Machines, Unwell int }

// Meltdown contains the failure domains in which so many nodes are unwell that the probable cause is not the machines,
// but a network, a zone or a control plane. The domain "" contains all machines. A namespace is a failure domain too.
type Meltdown map[string]Share

// DetectMeltdown returns the failure domains in which more than threshold percent of the nodes are not Ready. Only
// machines that have become nodes count. Machines that are being deleted, and machines with an interruption notice, do
// not count.
//
// If there are several namespaces, each one is a failure domain. If the machines outside of the namespaces in a
// meltdown are well, the meltdown is limited to those namespaces. Otherwise, a user could create failing machines to
// stop the remediation in other namespaces.
func DetectMeltdown(subjects []Subject, threshold int) Meltdown {
	all, byNamespace := Meltdown{}, map[string]Meltdown{}
	for i := range subjects {
		m := subjects[i].Machine
		if !m.DeletionTimestamp.IsZero() || m.Status.NodeRef == nil || interrupted(m) ||
			m.Status.Phase != v1beta1.MachineRunning && m.Status.Phase != v1beta1.MachineUnhealthy {
			continue
		}
		unwell := 0
		if !ready(m, subjects[i].Node) {
			unwell = 1
		}
		own := byNamespace[m.Namespace]
		if own == nil {
			own = Meltdown{}
			byNamespace[m.Namespace] = own
		}
		for _, d := range []Meltdown{all, own} {
			d[everywhere] = d[everywhere].plus(1, unwell)
			if subjects[i].Domain != everywhere {
				d[subjects[i].Domain] = d[subjects[i].Domain].plus(1, unwell)
			}
		}
	}
	rest, inMeltdown := maps.Clone(all), Meltdown{}
	if len(byNamespace) > 1 {
		for namespace, own := range byNamespace {
			if s := own[everywhere]; s.Machines >= minMeltdownMachines && s.over(threshold) {
				inMeltdown[domainOfNamespace(namespace)] = s
				for domain, s := range own {
					rest[domain] = rest[domain].plus(-s.Machines, -s.Unwell)
				}
			}
		}
	}
	maps.DeleteFunc(all, func(domain string, s Share) bool {
		others := rest[domain]
		return s.Machines < minMeltdownMachines || !s.over(threshold) || others.Machines > 0 && !others.over(threshold)
	})
	if _, everything := all[everywhere]; !everything {
		maps.Copy(all, inMeltdown)
	}
	return all
}

func (s Share) plus(machines, unwell int) Share {
	return Share{s.Machines + machines, s.Unwell + unwell}
}

func (s Share) over(threshold int) bool { return s.Unwell*100 > threshold*s.Machines }

// domainOfNamespace returns the failure domain of a namespace. The result contains a space, so it is never equal to a
// region or zone.
func domainOfNamespace(namespace string) string { return "namespace " + namespace }

// domains returns the failure domains of a machine, except everywhere.
func (s Subject) domains() []string {
	return []string{s.Domain, domainOfNamespace(s.Machine.Namespace)}
}

// In reports whether one of the failure domains, or the whole fleet, is in a meltdown.
func (d Meltdown) In(domains ...string) bool {
	_, affected := d[everywhere]
	for _, domain := range domains {
		_, there := d[domain]
		affected = affected || there
	}
	return affected
}

// Describe describes the meltdown for users. It includes the domains for which touched returns true.
func (d Meltdown) Describe(touched func(domain string) bool) string {
	if s, all := d[everywhere]; all {
		return fmt.Sprintf("The nodes of %d of %d running machines are not well. No machine is remediated until more of them are well.", s.Unwell, s.Machines)
	}
	var parts []string
	for _, domain := range slices.Sorted(maps.Keys(d)) {
		if touched(domain) {
			parts = append(parts, fmt.Sprintf("%d of %d in %s", d[domain].Unwell, d[domain].Machines, domain))
		}
	}
	return fmt.Sprintf("The nodes of many running machines are not well: %s. No machine is remediated there until more of them are well.", strings.Join(parts, ", "))
}

// domainOf returns the failure domain of a machine, or "" if the failure domain is unknown.
func domainOf(m *v1beta1.Machine, node *corev1.Node) string {
	region, zone := "", ""
	if i := m.Status.Instance; i != nil {
		region, zone = i.Region, i.Zone
	}
	if zone == "" && node != nil {
		region, zone = node.Labels[corev1.LabelTopologyRegion], node.Labels[corev1.LabelTopologyZone]
	}
	switch {
	case zone == "":
		return everywhere
	case region == "":
		return zone
	}
	return region + "/" + zone
}

// Clocks contains the times at which timeouts may start, for all failure domains.
type Clocks struct {
	// Stable is the time since which this process has been the leader and has been able to reach both clusters.
	Stable time.Time
	// OutageEnded is the end of the last outage that this process has seen. If it is unknown whether there was an outage,
	// OutageEnded equals Stable.
	OutageEnded time.Time
	// Recovered contains, for each failure domain, the end of its last meltdown.
	Recovered map[string]time.Time
	// Observed contains the times at which this process observed problems. If it is nil, the transition times of
	// conditions are used.
	Observed *Observations
}

// Clock contains the times at which the timeouts of one machine may start.
type Clock struct {
	// Since is the earliest time at which the timeout of an observed problem may start.
	Since time.Time
	// Earliest is the end of the last outage or meltdown that this process has seen. No timeout starts before that. No
	// timeout counts from before it.
	Earliest time.Time
	// LeaderSince is the time at which this process became the leader.
	LeaderSince time.Time
	// Observed contains the times at which this process observed problems. If it is nil, the transition times of
	// conditions are used.
	Observed *Observations
}

// In returns the clock of a machine that belongs to all of the failure domains.
func (c Clocks) In(domains ...string) Clock {
	clock := Clock{Since: c.Stable, Earliest: latest(c.OutageEnded, c.Recovered[everywhere]), LeaderSince: c.Stable,
		Observed: c.Observed}
	for _, d := range domains {
		clock.Earliest = latest(clock.Earliest, c.Recovered[d])
	}
	clock.Since = latest(clock.Since, clock.Earliest)
	return clock
}
