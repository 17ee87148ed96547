package why

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
)

// placedIn returns a deployment with a placement. Each text has the name of a domain and its classes. A class with an
// exclamation mark has no capacity.
func placedIn(domains []string, conditions ...metav1.Condition) *v1beta1.MachineDeployment {
	d := deployment(conditions...)
	d.Spec.Placement = &v1beta1.Placement{}
	since, retry := ago(5*time.Minute), ago(-2*time.Minute)
	for _, text := range domains {
		fields := strings.Fields(text)
		domain := v1beta1.PlacementDomain{Name: fields[0]}
		for _, class := range fields[1:] {
			name, exhausted := strings.CutSuffix(class, "!")
			domain.Options = append(domain.Options, v1beta1.PlacementOption{ClassName: name})
			option := v1beta1.PlacementOptionStatus{Domain: fields[0], ClassName: name, Replicas: 1, ReadyReplicas: 1}
			if exhausted {
				option.ExhaustedSince, option.RetryTime = &since, &retry
			}
			d.Status.Placement = append(d.Status.Placement, option)
		}
		d.Spec.Placement.Domains = append(d.Spec.Placement.Domains, domain)
	}
	return d
}

func TestExplainPlacement(t *testing.T) {
	off := metav1.ConditionFalse
	waits := placedIn([]string{"zone-a small-a! large-a!", "zone-b small-b"}, newCondition(v1beta1.ConditionBalanced, off,
		v1beta1.ReasonInsufficientResources, "1 machine waits for capacity."))
	waits.Spec.Placement.WhenUnsatisfiable = v1beta1.PlacementWait
	due := placedIn([]string{"zone-a small-a! large-a", "zone-b small-b"})
	past := ago(time.Second)
	due.Status.Placement[0].RetryTime = &past
	silent := placedIn([]string{"zone-a small-a", "zone-b small-b"}, newCondition(v1beta1.ConditionBalanced,
		metav1.ConditionTrue, v1beta1.ReasonWithinMaxSkew, "The distribution is within maxSkew 1: zone-a has 3 machines (share 3), "+
			"zone-b has 3 (share 3). Most Nodes in zone-a are not Ready. The next machine gets class small-a in zone-a."))
	machines := map[string][]*v1beta1.Machine{}
	for i := range 3 {
		machines["silent"] = append(machines["silent"], machine(func(m *v1beta1.Machine) {
			m.Name, m.Spec.ClassRef = fmt.Sprintf("web-%d", i), &v1beta1.LocalRef{Name: "small-a"}
		}, no(v1beta1.ConditionNodeHealthy, v1beta1.ReasonNodeUnresponsive, "", time.Minute)))
	}
	var many []string
	for i := range 10 {
		many = append(many, fmt.Sprintf("zone-%d small-%d!", i, i))
	}
	for name, d := range map[string]*v1beta1.MachineDeployment{
		"skew": placedIn([]string{"zone-a small-a", "zone-b small-b"}, newCondition(v1beta1.ConditionBalanced, off,
			v1beta1.ReasonSkewExceeded, "The distribution exceeds maxSkew 1: zone-a has 5 machines (share 3), zone-b has 1 (share 3).")),
		"bounds": placedIn([]string{"zone-a small-a"}, newCondition(v1beta1.ConditionBalanced, off, v1beta1.ReasonBoundsReached,
			"2 of 7 machines have no place.")),
		"fallback":     placedIn([]string{"zone-a small-a! large-a", "zone-b small-b"}),
		"fallback-due": due,
		"zone-full": placedIn([]string{"zone-a small-a! large-a!", "zone-b small-b"}, newCondition(v1beta1.ConditionBalanced, off,
			v1beta1.ReasonInsufficientResources, "The distribution exceeds maxSkew 1.")),
		"waits":    waits,
		"all-full": placedIn(many),
		"silent":   silent,
	} {
		t.Run(name, func(t *testing.T) {
			view := View{Now: now, Object: "machinedeployment/web", Namespace: "prod",
				Findings: ExplainFleet(FleetFacts{Deployment: d, Machines: machines[name], Now: now})}
			checkGolden(t, "placement-"+name, view, printer.Style{})
		})
	}
}
