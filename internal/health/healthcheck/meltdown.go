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

// DefaultMeltdownThreshold is the default of MeltdownThreshold, in percent.
const DefaultMeltdownThreshold = 55

// minMeltdownMachines is the minimum size of a meltdown, because a share of few machines proves nothing.
const minMeltdownMachines = 3

const everywhere = ""

// Share counts the machines of a failure domain that have joined the cluster. Unwell is how many of their nodes have
// problems.
type Share struct{ Machines, Unwell int }

// Meltdown holds the failure domains with so many unwell nodes that the probable cause is a network, zone or control
// plane. The domain "" contains all machines. A namespace is a failure domain too.
type Meltdown map[string]Share

// DetectMeltdown returns the failure domains in which more than threshold percent of the nodes are not Ready. Only
// machines that have become nodes count, without those being deleted or interrupted.
//
// If there are several namespaces, each one is a failure domain, also within a zone. A meltdown that spares other
// namespaces is limited to the affected namespaces. Otherwise a user with failing machines could stop remediation
// everywhere, or in a zone.
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
	if len(byNamespace) < 2 {
		byNamespace = nil
	}
	rest := maps.Clone(all)
	for _, own := range byNamespace {
		for domain, s := range own {
			if s.isMeltdown(threshold) || own[everywhere].isMeltdown(threshold) {
				rest[domain] = rest[domain].plus(-s.Machines, -s.Unwell)
			}
		}
	}
	maps.DeleteFunc(all, func(domain string, s Share) bool {
		others := rest[domain]
		return !s.isMeltdown(threshold) || others.Machines > 0 && !others.over(threshold)
	})
	if _, everything := all[everywhere]; everything {
		return all
	}
	for namespace, own := range byNamespace {
		for domain, s := range own {
			_, ofAll := all[domain]
			if s.isMeltdown(threshold) && (domain == everywhere || !ofAll && !own[everywhere].isMeltdown(threshold)) {
				all[domainOfNamespace(namespace, domain)] = s
			}
		}
	}
	return all
}

func (s Share) plus(machines, unwell int) Share {
	return Share{s.Machines + machines, s.Unwell + unwell}
}

func (s Share) isMeltdown(threshold int) bool {
	return s.Machines >= minMeltdownMachines && s.over(threshold)
}

func (s Share) over(threshold int) bool { return s.Unwell*100 > threshold*s.Machines }

// domainOfNamespace returns the failure domain of a namespace, or of its machines in the given failure domain. The
// returned name contains a space, so it differs from the names of all regions and zones.
func domainOfNamespace(namespace, domain string) string {
	if domain == everywhere {
		return "namespace " + namespace
	}
	return domain + " of namespace " + namespace
}

func (s Subject) domains() []string {
	return []string{s.Domain, domainOfNamespace(s.Machine.Namespace, everywhere),
		domainOfNamespace(s.Machine.Namespace, s.Domain)}
}

// Affects reports whether there is a meltdown of the whole fleet or of one of these failure domains.
func (d Meltdown) Affects(domains ...string) bool {
	_, affected := d[everywhere]
	for _, domain := range domains {
		_, there := d[domain]
		affected = affected || there
	}
	return affected
}

// Describe returns a message about the meltdown for users. The message contains only failure domains for which the
// function touched returns true.
func (d Meltdown) Describe(touched func(domain string) bool) string {
	if s, all := d[everywhere]; all {
		return fmt.Sprintf("The nodes of %d of %d running machines have problems. No machine is remediated until more nodes recover.", s.Unwell, s.Machines)
	}
	var parts []string
	for _, domain := range slices.Sorted(maps.Keys(d)) {
		if touched(domain) {
			parts = append(parts, fmt.Sprintf("%d of %d in %s", d[domain].Unwell, d[domain].Machines, domain))
		}
	}
	return fmt.Sprintf("The nodes of many running machines have problems: %s. No machine in these failure domains is remediated until more nodes recover.", strings.Join(parts, ", "))
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

// Clocks contains the times from which timeouts may count, for all failure domains.
type Clocks struct {
	// StableSince is the time at which this process had become the leader and had reached both clusters.
	StableSince time.Time
	// OutageEnded is the end of the last outage, or StableSince if it is unknown whether there was one.
	OutageEnded time.Time
	// RecoveryTimes maps each failure domain to the time at which its last meltdown ended.
	RecoveryTimes map[string]time.Time
	// Observations contains the times at which this process first observed problems. If Observations is nil, timeouts
	// count from the transition times of conditions.
	Observations *Observations
}

// Clock contains the times from which the timeouts of one machine may count.
type Clock struct {
	// EarliestStart is the earliest time from which the timeout of an observed problem may count.
	EarliestStart time.Time
	// LastInterruption is the end of the last outage or meltdown that this process has seen. Timeouts never count
	// from an earlier time.
	LastInterruption time.Time
	// LeaderSince is the time at which this process became the leader.
	LeaderSince time.Time
	// Observations contains the times at which this process first observed problems. If Observations is nil, timeouts
	// count from the transition times of conditions.
	Observations *Observations
}

// ForDomains returns the Clock for a machine in these failure domains.
func (c Clocks) ForDomains(domains ...string) Clock {
	clock := Clock{EarliestStart: c.StableSince, LastInterruption: latest(c.OutageEnded,
		c.RecoveryTimes[everywhere]), LeaderSince: c.StableSince,
		Observations: c.Observations}
	for _, d := range domains {
		clock.LastInterruption = latest(clock.LastInterruption, c.RecoveryTimes[d])
	}
	clock.EarliestStart = latest(clock.EarliestStart, clock.LastInterruption)
	return clock
}
