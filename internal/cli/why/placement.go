package why

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/placement/places"
	"machinist.dev/machinist/internal/platform/wording"
)

// maxOptions limits the options without capacity that are explained one by one.
const maxOptions = 8

// optionFindings explains each option of a deployment's placement that has no capacity: the time of the next try, and
// where the new machines of its domain are created until then.
func optionFindings(d *v1beta1.MachineDeployment, now time.Time) (findings []Finding) {
	if d == nil || d.Spec.Placement == nil {
		return nil
	}
	exhausted := map[string]v1beta1.PlacementOptionStatus{}
	for _, option := range d.Status.Placement {
		if option.ExhaustedSince != nil {
			exhausted[option.ClassName] = option
		}
	}
	more := 0
	for i := range d.Spec.Placement.Domains {
		domain := &d.Spec.Placement.Domains[i]
		for _, option := range domain.Options {
			status, found := exhausted[option.ClassName]
			if !found {
				continue
			}
			if len(findings) == maxOptions {
				more++
				continue
			}
			findings = append(findings, optionFinding(d.Spec.Placement, domain, status, exhausted, now))
		}
	}
	if more > 0 {
		findings = append(findings, Finding{Object: "machinedeployment/" + d.Name, Reason: v1beta1.ReasonInsufficientResources,
			Description:  fmt.Sprintf("The cloud has no capacity for %s of spec.placement either.", wording.Count(more, "other option")),
			Instructions: "To see all options, run machinist status -o wide"})
	}
	return findings
}

// silentFindings explains the domains of a deployment in which most Nodes are not Ready.
func silentFindings(f FleetFacts) (findings []Finding) {
	if f.Deployment == nil {
		return nil
	}
	about := "machinedeployment/" + f.Deployment.Name
	for _, d := range places.Silent(f.Deployment.Spec.Placement, f.Machines) {
		finding := Finding{Object: about, Reason: SilentDomain,
			Description: fmt.Sprintf("The Nodes of %d of %d machines in domain %s are not Ready. The probable cause is an outage of the zone.",
				d.NotReady, d.Machines, d.Domain),
			NextStep: "While most Nodes of the zone are not Ready, Machinist does not replace its machines. New machines go to the domains that lack machines, as usual.",
			Instructions: fmt.Sprintf("To create new machines only in other domains, set weight of domain %s to 0: kubectl edit %s",
				d.Domain, argument(about, f.Deployment.Namespace)),
		}
		if c := meta.FindStatusCondition(f.Deployment.Status.Conditions, v1beta1.ConditionBalanced); c != nil {
			finding.Message = c.Message
		}
		findings = append(findings, finding)
	}
	return findings
}

func optionFinding(p *v1beta1.Placement, domain *v1beta1.PlacementDomain, status v1beta1.PlacementOptionStatus,
	exhausted map[string]v1beta1.PlacementOptionStatus, now time.Time) Finding {
	f := Finding{
		Object: "machineclass/" + status.ClassName, Condition: v1beta1.ConditionCapacityAvailable,
		Reason:      v1beta1.ReasonInsufficientResources,
		Description: fmt.Sprintf("The cloud has no capacity for this class, an option of domain %s.", domain.Name),
		StartTime:   inUTC(status.ExhaustedSince.Time),
		NextStep:    "One machine tries the class again, as soon as a machine is needed.",
	}
	if status.RetryTime != nil && status.RetryTime.After(now) {
		f.NextStepTime = inUTC(status.RetryTime.Time)
		f.NextStep = "At this time, one machine may try the class again."
	}
	f.NextStep += " " + otherMachines(p, domain, exhausted)
	return f
}

// otherMachines says where all other new machines of a domain are created while one of its options has no capacity.
func otherMachines(p *v1beta1.Placement, domain *v1beta1.PlacementDomain,
	exhausted map[string]v1beta1.PlacementOptionStatus) string {
	for _, option := range domain.Options {
		if _, none := exhausted[option.ClassName]; !none {
			return fmt.Sprintf("All other new machines of domain %s get class %s.", domain.Name, option.ClassName)
		}
	}
	others := 0
	for i := range p.Domains {
		d := &p.Domains[i]
		for _, option := range d.Options {
			if _, none := exhausted[option.ClassName]; !none && d.WeightOrDefault() > 0 {
				others++
				break
			}
		}
	}
	switch {
	case others == 0:
		return "No option of any domain has capacity, so new machines wait."
	case p.WhenUnsatisfiable == v1beta1.PlacementWait:
		return fmt.Sprintf("No option of domain %s has capacity. New machines go to other domains within maxSkew, and otherwise wait.",
			domain.Name)
	}
	return fmt.Sprintf("No option of domain %s has capacity, so new machines go to other domains.", domain.Name)
}
