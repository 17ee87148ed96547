package healthcheck

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"

	"machinist.dev/machinist/api/v1beta1"
)

// DefaultTimeout is the default of --health-timeout.
const DefaultTimeout = 10 * time.Minute

// Policy defines when machines are unhealthy and how they are remediated.
type Policy struct {
	// Reason is the reason of the condition RemediationRequested. Name is the policy's name in its message.
	Reason, Name string
	// Conditions are the Node conditions that make a machine unhealthy.
	Conditions []v1beta1.UnhealthyNodeCondition
	// MachineConditions are the Machine conditions that make a machine unhealthy.
	MachineConditions []v1beta1.UnhealthyMachineCondition
	// Startup is the time after which a machine without a Node is unhealthy. Zero means that only timeouts.creation of
	// the machine limits this time.
	Startup time.Duration
	// MaxUnhealthy is a number or percentage of machines. If more are unhealthy, none is remediated.
	MaxUnhealthy intstr.IntOrString
	// Range replaces MaxUnhealthy if it is not nil. Machines are remediated only while the number of unhealthy machines
	// is in the range.
	Range *v1beta1.UnhealthyRange
	// Type is the type of remediation.
	Type v1beta1.RemediationType
	// MaxRetries limits how often a machine is replaced if each replacement fails soon after its creation. Nil means no
	// limit.
	MaxRetries *int32
	// External is nil unless another operator remediates the machines from a template.
	External *External
	// Reboots is nil unless the instance of an unhealthy machine is rebooted first.
	Reboots *Reboots
}

// PolicyOf returns the policy of a MachineHealthCheck. Empty and invalid fields get their defaults.
func PolicyOf(c *v1beta1.MachineHealthCheck) Policy {
	p := Policy{
		Reason: v1beta1.ReasonMachineHealthCheck, Name: "MachineHealthCheck " + c.Name,
		Conditions:        c.Spec.UnhealthyNodeConditions,
		MachineConditions: c.Spec.UnhealthyMachineConditions,
		MaxUnhealthy:      c.MaxUnhealthyOrDefault(),
		Type:              c.Spec.Remediation.TypeOrDefault(),
		MaxRetries:        c.Spec.Remediation.MaxRetries,
		External:          externalOf(c.Spec.Remediation),
	}
	p.Reboots = rebootsOf(c.Spec.Remediation)
	if p.Type == v1beta1.RemediationExternal {
		p.Reason = v1beta1.ReasonExternalRemediation
	}
	if t := c.Spec.NodeStartupTimeout; t != nil && t.Duration > 0 {
		p.Startup = t.Duration
	}
	if r, err := v1beta1.ParseUnhealthyRange(c.Spec.UnhealthyRange); err == nil {
		p.Range = &r
	}
	return p
}

// limits returns between which numbers of unhealthy machines a machine is remediated, and the field that defines it.
func (p Policy) limits(machines int) (least, most int, field string) {
	if p.Range != nil {
		return p.Range.Min, p.Range.Max, "unhealthyRange " + p.Range.String()
	}
	return 0, p.limit(machines), "maxUnhealthy " + p.MaxUnhealthy.String()
}

// limit returns MaxUnhealthy as a number. A percentage is rounded down to at least 1, except for 0%.
func (p Policy) limit(machines int) int {
	value := p.MaxUnhealthy
	n, err := intstr.GetScaledValueFromIntOrPercent(&value, machines, false)
	if err != nil || n < 0 {
		value = intstr.FromString(v1beta1.DefaultMaxUnhealthy)
		n, _ = intstr.GetScaledValueFromIntOrPercent(&value, machines, false)
	}
	if n == 0 && value.String() != "0" && value.String() != "0%" {
		return 1
	}
	return n
}

// BuiltIn contains the values of the flags for the built-in policy, which applies to machines that no
// MachineHealthCheck selects. It also contains the meltdown threshold.
type BuiltIn struct {
	// Timeout is how long a Node may be not Ready, or have one of NodeConditions, before its machine is unhealthy.
	Timeout time.Duration
	// NodeConditions are Node conditions that make a machine unhealthy, as TYPE, TYPE=STATUS or TYPE=STATUS:TIMEOUT. The
	// default of STATUS is True, and the default of TIMEOUT is Timeout.
	NodeConditions []string
	// MaxUnhealthy is the number or percentage of the machines of a namespace that may be unhealthy.
	MaxUnhealthy string
	// MeltdownThreshold is a percentage of nodes. If a higher percentage of the nodes is unhealthy, there is a
	// meltdown.
	MeltdownThreshold int
	// Remediation is Replace or Reboot.
	Remediation string
}

// AddFlags adds the flags with their defaults.
func (b *BuiltIn) AddFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&b.Timeout, "health-timeout", DefaultTimeout,
		"how long a Node may be not Ready, or have one of --health-node-conditions, before its machine is replaced. Applies to machines that no MachineHealthCheck selects")
	fs.StringSliceVar(&b.NodeConditions, "health-node-conditions", []string{"KernelDeadlock", "ReadonlyFilesystem",
		"DiskPressure", "NetworkUnavailable"},
		"Node conditions that make a machine unhealthy: TYPE, TYPE=STATUS or TYPE=STATUS:TIMEOUT, such as DiskPressure=True:10m. The default STATUS is True, and the default TIMEOUT is --health-timeout. Entries for Ready=Unknown and Ready=False change only their timeouts. Applies to machines that no MachineHealthCheck selects")
	fs.StringVar(&b.MaxUnhealthy, "health-max-unhealthy", v1beta1.DefaultMaxUnhealthy,
		"number or percentage of the machines of a namespace that may be unhealthy. If more are unhealthy, none of them is replaced. Applies to machines that no MachineHealthCheck selects")
	fs.StringVar(&b.Remediation, "health-remediation", string(v1beta1.RemediationReplace),
		"Replace, or Reboot to reboot the instance of an unhealthy machine once before the machine is replaced. Applies to machines that no MachineHealthCheck selects")
	fs.IntVar(&b.MeltdownThreshold, "health-meltdown-threshold", DefaultMeltdownThreshold,
		"percentage of the running machines in the fleet, a zone or a namespace. If more of these machines are unhealthy, none of them is replaced")
}

// Policy returns the policy that the flags define. The error contains a message for each invalid flag.
func (b *BuiltIn) Policy() (Policy, error) {
	p := Policy{
		Reason: v1beta1.ReasonBuiltInPolicy, Name: "The built-in policy",
		MaxUnhealthy: intstr.Parse(b.MaxUnhealthy), Type: v1beta1.RemediationReplace,
	}
	var errs []error
	if b.Timeout <= 0 {
		errs = append(errs, fmt.Errorf("--health-timeout is %s; it must be longer than 0s", b.Timeout))
	}
	if n, err := intstr.GetScaledValueFromIntOrPercent(&p.MaxUnhealthy, 100, false); err != nil || n < 0 {
		errs = append(errs, fmt.Errorf("--health-max-unhealthy is %q; it must be a number or a percentage", b.MaxUnhealthy))
	}
	switch remediation := v1beta1.RemediationType(b.Remediation); remediation {
	case "", v1beta1.RemediationReplace:
	case v1beta1.RemediationReboot:
		p.Type, p.Reboots = remediation, rebootsOf(v1beta1.HealthCheckRemediation{Type: remediation})
	default:
		errs = append(errs, fmt.Errorf("--health-remediation is %q; it must be Replace or Reboot", b.Remediation))
	}
	if b.MeltdownThreshold < 1 || b.MeltdownThreshold > 100 {
		errs = append(errs, fmt.Errorf("--health-meltdown-threshold is %d; it must be between 1 and 100",
			b.MeltdownThreshold))
	}
	for _, entry := range slices.Concat([]string{"Ready=Unknown", "Ready=False"}, b.NodeConditions) {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		condition, err := parseNodeCondition(entry, b.Timeout)
		if err != nil {
			errs = append(errs, fmt.Errorf("--health-node-conditions contains %q: %w", entry, err))
			continue
		}
		same := slices.IndexFunc(p.Conditions, func(c v1beta1.UnhealthyNodeCondition) bool {
			return c.Type == condition.Type && c.Status == condition.Status
		})
		if same < 0 {
			p.Conditions = append(p.Conditions, condition)
		} else {
			p.Conditions[same] = condition
		}
	}
	return p, errors.Join(errs...)
}

// parseNodeCondition parses an entry of --health-node-conditions.
func parseNodeCondition(entry string, timeout time.Duration) (v1beta1.UnhealthyNodeCondition, error) {
	name, rest, hasStatus := strings.Cut(entry, "=")
	status, duration, hasTimeout := strings.Cut(rest, ":")
	if !hasStatus {
		status = string(corev1.ConditionTrue)
	}
	c := v1beta1.UnhealthyNodeCondition{Type: corev1.NodeConditionType(name), Status: corev1.ConditionStatus(status),
		Timeout: metav1.Duration{Duration: timeout}}
	if problems := validation.IsQualifiedName(name); len(problems) > 0 {
		return c, fmt.Errorf("%q is not the type of a condition: %s", name, problems[0])
	}
	switch c.Status {
	case corev1.ConditionTrue, corev1.ConditionFalse, corev1.ConditionUnknown:
	default:
		return c, fmt.Errorf("the status is %q; it must be True, False or Unknown", status)
	}
	if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
		return c, errors.New("a Node with Ready=True is healthy")
	}
	if !hasTimeout {
		return c, nil
	}
	d, err := time.ParseDuration(duration)
	if err != nil || d <= 0 {
		return c, fmt.Errorf("the timeout is %q; it must be a duration longer than 0s, such as 10m", duration)
	}
	c.Timeout.Duration = d
	return c, nil
}
