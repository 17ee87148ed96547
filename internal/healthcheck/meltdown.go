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
// network, a zone, a control plane. The domain "" is all of them.
type Meltdown map[string]Share

// Melt returns where the share of nodes that are not Ready is more than threshold percent. Only machines that were nodes
// already, and are neither on their way out nor about to lose their instance as announced, are counted.
func Melt(subjects []Subject, threshold int) Meltdown {
	shares := map[string]Share{}
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
		shares[everywhere] = shares[everywhere].plus(unwell)
		if subjects[i].Domain != everywhere {
			shares[subjects[i].Domain] = shares[subjects[i].Domain].plus(unwell)
		}
	}
	maps.DeleteFunc(shares, func(_ string, s Share) bool {
		return s.Machines < leastForMeltdown || s.Unwell*100 <= threshold*s.Machines
	})
	return shares
}

func (s Share) plus(unwell int) Share { return Share{s.Machines + 1, s.Unwell + unwell} }

// In reports whether a failure domain melts, or all of them do.
func (d Meltdown) In(domain string) bool {
	_, all := d[everywhere]
	_, there := d[domain]
	return all || there
}

// Describe says for people what melts among the domains for which touched says true.
func (d Meltdown) Describe(touched func(domain string) bool) string {
	if s, all := d[everywhere]; all {
		return fmt.Sprintf("The nodes of %d of %d running machines are not well. None is remediated until most of them are.", s.Unwell, s.Machines)
	}
	var parts []string
	for _, domain := range slices.Sorted(maps.Keys(d)) {
		if touched(domain) {
			parts = append(parts, fmt.Sprintf("%d of %d in %s", d[domain].Unwell, d[domain].Machines, domain))
		}
	}
	return fmt.Sprintf("The nodes of many running machines are not well: %s. None is remediated there until most of them are.", strings.Join(parts, ", "))
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
	// Thawed is when the last outage that this process has seen was over; Stable where it is not known whether there was one.
	Thawed time.Time
	// Recovered is when domains ended to melt.
	Recovered map[string]time.Time
	// Seen are when this process observed what is wrong; nil goes by the times of the conditions.
	Seen *Observations
}

// Clock is from when on the clocks of a machine count.
type Clock struct {
	// Since is from when on they count for a process that goes by what it has seen itself.
	Since time.Time
	// Certain is the end of what this process has seen that stops clocks. What was before that never counts.
	Certain time.Time
	// Leading is since when this process sees everything.
	Leading time.Time
	// Seen are when this process observed what is wrong; nil goes by the times of the conditions.
	Seen *Observations
}

// In returns from when on clocks count in a domain.
func (c Clocks) In(domain string) Clock {
	clock := Clock{Since: c.Stable, Certain: c.Thawed, Leading: c.Stable, Seen: c.Seen}
	for _, d := range []string{everywhere, domain} {
		if t := c.Recovered[d]; t.After(clock.Certain) {
			clock.Certain = t
		}
	}
	if clock.Certain.After(clock.Since) {
		clock.Since = clock.Certain
	}
	return clock
}
