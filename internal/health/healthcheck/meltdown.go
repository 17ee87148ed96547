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

// DefaultMeltdownThreshold is the percentage of nodes beyond which it is not machines that are broken.
const DefaultMeltdownThreshold = 55

// leastForMeltdown is how many machines there must be for their share to mean anything.
const leastForMeltdown = 3

// everywhere is the failure domain that has all machines.
const everywhere = ""

// Share is how many machines of a failure domain run as nodes, and how many of these nodes are not well.
type Share struct{ Machines, Unwell int }

// Meltdown has the failure domains in which so many nodes are not well at once that something else must be wrong: a
// network, a zone, a control plane. The domain "" is all of them; a namespace is one as well.
type Meltdown map[string]Share

// Melt returns where the share of nodes that are not Ready is more than threshold percent. Only machines that were
// nodes already, and are neither on their way out nor about to lose their instance as announced, are counted.
//
// A namespace counts by itself where there are several. If without the namespaces that melt the others do not, it is
// those namespaces' own trouble: nobody can stop the remediation of others by machines that fail.
func Melt(subjects []Subject, threshold int) Meltdown {
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
	rest, melting := maps.Clone(all), Meltdown{}
	if len(byNamespace) > 1 {
		for namespace, own := range byNamespace {
			if s := own[everywhere]; s.Machines >= leastForMeltdown && s.over(threshold) {
				melting[domainOfNamespace(namespace)] = s
				for domain, s := range own {
					rest[domain] = rest[domain].plus(-s.Machines, -s.Unwell)
				}
			}
		}
	}
	maps.DeleteFunc(all, func(domain string, s Share) bool {
		others := rest[domain]
		return s.Machines < leastForMeltdown || !s.over(threshold) || others.Machines > 0 && !others.over(threshold)
	})
	if _, everything := all[everywhere]; !everything {
		maps.Copy(all, melting)
	}
	return all
}

func (s Share) plus(machines, unwell int) Share {
	return Share{s.Machines + machines, s.Unwell + unwell}
}

func (s Share) over(threshold int) bool { return s.Unwell*100 > threshold*s.Machines }

// domainOfNamespace is the failure domain of a namespace. No region or zone is called so: their names have no blanks.
func domainOfNamespace(namespace string) string { return "namespace " + namespace }

// domains are the failure domains that a machine is in, beside all of them.
func (s Subject) domains() []string {
	return []string{s.Domain, domainOfNamespace(s.Machine.Namespace)}
}

// In reports whether one of the failure domains melts, or all of them do.
func (d Meltdown) In(domains ...string) bool {
	_, melts := d[everywhere]
	for _, domain := range domains {
		_, there := d[domain]
		melts = melts || there
	}
	return melts
}

// Describe says for people what melts among the domains for which touched says true.
func (d Meltdown) Describe(touched func(domain string) bool) string {
	if s, all := d[everywhere]; all {
		return fmt.Sprintf("The nodes of %d of %d running machines are not well. No machine is remediated until most of them are.", s.Unwell, s.Machines)
	}
	var parts []string
	for _, domain := range slices.Sorted(maps.Keys(d)) {
		if touched(domain) {
			parts = append(parts, fmt.Sprintf("%d of %d in %s", d[domain].Unwell, d[domain].Machines, domain))
		}
	}
	return fmt.Sprintf("The nodes of many running machines are not well: %s. No machine is remediated there until most of them are.", strings.Join(parts, ", "))
}

// domainOf returns the failure domain of a machine, "" where nobody knows it.
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

// Clocks are from when on clocks count, in each failure domain.
type Clocks struct {
	// Stable is since when this process leads and can reach both clusters.
	Stable time.Time
	// Thawed is when the last outage that this process has seen was over; Stable where it is not known whether there was
	// one.
	Thawed time.Time
	// Recovered is when domains ended to melt.
	Recovered map[string]time.Time
	// Observed are when this process observed what is wrong; nil goes by the times of the conditions.
	Observed *Observations
}

// Clock is from when on the clocks of a machine count.
type Clock struct {
	// Since is from when on they count for a process that goes by what it has seen itself.
	Since time.Time
	// Certain is the end of what this process has seen that stops clocks. What was before that never counts.
	Certain time.Time
	// LeaderSince is since when this process sees everything.
	LeaderSince time.Time
	// Observed are when this process observed what is wrong; nil goes by the times of the conditions.
	Observed *Observations
}

// In returns from when on clocks count for what is in all of the domains.
func (c Clocks) In(domains ...string) Clock {
	clock := Clock{Since: c.Stable, Certain: latest(c.Thawed, c.Recovered[everywhere]), LeaderSince: c.Stable,
		Observed: c.Observed}
	for _, d := range domains {
		clock.Certain = latest(clock.Certain, c.Recovered[d])
	}
	clock.Since = latest(clock.Since, clock.Certain)
	return clock
}
