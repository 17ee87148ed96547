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

// DefaultMeltdownThreshold is the default percentage of unwell nodes above which there is a meltdown.
const DefaultMeltdownThreshold = 55

// minMeltdownMachines is the minimum size of a meltdown, because a share of few machines proves nothing.
const minMeltdownMachines = 3

const everywhere = ""

// Share counts the machines of a failure domain that are nodes, and the unwell ones among them.
type Share struct{ Machines, Unwell int }

// Meltdown holds the failure domains with so many unwell nodes that the probable cause is a network, zone or control
// plane. The domain "" contains all machines. A namespace is a failure domain too.
type Meltdown map[string]Share

// DetectMeltdown returns the failure domains in which more than threshold percent of the nodes are not Ready. Only
// machines that have become nodes count, without those being deleted or interrupted.
//
// If there are several namespaces, each one is a failure domain. A meltdown that spares other namespaces is limited to
// the affected ones. Otherwise a user with failing machines could stop remediation everywhere.
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

// domainOfNamespace returns the failure domain of a namespace. Its space prevents a conflict with a region or zone.
func domainOfNamespace(namespace string) string { return "namespace " + namespace }

func (s Subject) domains() []string {
	return []string{s.Domain, domainOfNamespace(s.Machine.Namespace)}
}

// In reports whether a failure domain or the whole fleet is in a meltdown.
func (d Meltdown) In(domains ...string) bool {
	_, affected := d[everywhere]
	for _, domain := range domains {
		_, there := d[domain]
		affected = affected || there
	}
	return affected
}

// Describe describes the meltdown for users, limited to domains for which touched returns true.
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

// Clocks holds when timeouts may start, for all failure domains.
type Clocks struct {
	// Stable is since when this process has been the leader and has reached both clusters.
	Stable time.Time
	// OutageEnded is the end of the last outage, or Stable if it is unknown whether there was one.
	OutageEnded time.Time
	// Recovered holds the end of the last meltdown of each failure domain.
	Recovered map[string]time.Time
	// Observed holds when this process observed problems. If it is nil, transition times count.
	Observed *Observations
}

// Clock holds when the timeouts of one machine may start.
type Clock struct {
	// Since is the earliest start of the timeout of an observed problem.
	Since time.Time
	// Earliest is the end of the last outage or meltdown that this process has seen. No timeout counts from before it.
	Earliest time.Time
	// LeaderSince is when this process became the leader.
	LeaderSince time.Time
	// Observed holds when this process observed problems. If it is nil, transition times count.
	Observed *Observations
}

// In returns the clock of a machine in these failure domains.
func (c Clocks) In(domains ...string) Clock {
	clock := Clock{Since: c.Stable, Earliest: latest(c.OutageEnded, c.Recovered[everywhere]), LeaderSince: c.Stable,
		Observed: c.Observed}
	for _, d := range domains {
		clock.Earliest = latest(clock.Earliest, c.Recovered[d])
	}
	clock.Since = latest(clock.Since, clock.Earliest)
	return clock
}
