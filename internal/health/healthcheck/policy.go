package healthcheck

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
)

// DefaultTimeout is how long a node may be in trouble where nothing else is said.
const DefaultTimeout = 10 * time.Minute

// Policy says when machines are unhealthy and what is done then.
type Policy struct {
	// Reason is what RemediationRequested says of it, and Name what its message calls it.
	Reason, Name string
	// Conditions of a node that make it unhealthy.
	Conditions []v1beta1.UnhealthyNodeCondition
	// Startup is how long a machine may be without a Node; zero leaves that to its own timeouts.creation.
	Startup time.Duration
	// MaxUnhealthy is how many of the machines may be unhealthy for any to be remediated.
	MaxUnhealthy intstr.IntOrString
	// Type of remediation.
	Type v1beta1.RemediationType
	// MaxRetries bounds how often in a row a replacement is replaced; nil is without limit.
	MaxRetries *int32
}

// PolicyOf returns what a check says. What it leaves out, or what cannot be used although the API admitted it, has its
// default.
func PolicyOf(c *v1beta1.MachineHealthCheck) Policy {
	p := Policy{
		Reason: v1beta1.ReasonMachineHealthCheck, Name: "MachineHealthCheck " + c.Name,
		Conditions:   c.Spec.UnhealthyNodeConditions,
		MaxUnhealthy: c.MaxUnhealthyOrDefault(),
		Type:         c.Spec.Remediation.TypeOrDefault(),
		MaxRetries:   c.Spec.Remediation.MaxRetries,
	}
	if p.Type == v1beta1.RemediationExternal {
		p.Reason = v1beta1.ReasonExternalRemediation
	}
	if t := c.Spec.NodeStartupTimeout; t != nil && t.Duration > 0 {
		p.Startup = t.Duration
	}
	return p
}

// limit resolves MaxUnhealthy for a number of machines: a percentage is rounded down, and it is at least 1 unless it is
// written 0.
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

// BuiltIn are the flags of the policy for machines that no check selects, and of what concerns all machines.
type BuiltIn struct {
	// Timeout is how long a node may be in trouble.
	Timeout time.Duration
	// NodeConditions are those that are trouble while they are True.
	NodeConditions []string
	// MaxUnhealthy is how many machines of a namespace may be unhealthy, a number or a percentage.
	MaxUnhealthy string
	// MeltdownThreshold is the percentage of nodes beyond which it is not machines that are broken.
	MeltdownThreshold int
}

// AddFlags adds the flags with their defaults.
func (b *BuiltIn) AddFlags(fs *pflag.FlagSet) {
	fs.DurationVar(&b.Timeout, "health-timeout", DefaultTimeout,
		"how long a node may be not Ready, or have one of --health-node-conditions, until its machine is replaced, where no MachineHealthCheck selects the machine")
	fs.StringSliceVar(&b.NodeConditions, "health-node-conditions", []string{"KernelDeadlock", "ReadonlyFilesystem",
		"DiskPressure", "NetworkUnavailable"},
		"conditions of nodes that are trouble while they are True, for machines that no MachineHealthCheck selects")
	fs.StringVar(&b.MaxUnhealthy, "health-max-unhealthy", v1beta1.DefaultMaxUnhealthy,
		"how many of the machines of a namespace that no MachineHealthCheck selects may be unhealthy, as a number or a percentage; with more of them no machine is replaced")
	fs.IntVar(&b.MeltdownThreshold, "health-meltdown-threshold", DefaultMeltdownThreshold,
		"percentage of running machines, over all, in one zone or in one namespace: if more than that are unhealthy, no machine is replaced there")
}

// Policy returns what the flags say. Its error names those that cannot be used.
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
	if b.MeltdownThreshold < 1 || b.MeltdownThreshold > 100 {
		errs = append(errs, fmt.Errorf("--health-meltdown-threshold is %d; it must be between 1 and 100",
			b.MeltdownThreshold))
	}
	add := func(condition corev1.NodeConditionType, status corev1.ConditionStatus) {
		p.Conditions = append(p.Conditions, v1beta1.UnhealthyNodeCondition{Type: condition, Status: status,
			Timeout: metav1.Duration{Duration: b.Timeout}})
	}
	add(corev1.NodeReady, corev1.ConditionUnknown)
	add(corev1.NodeReady, corev1.ConditionFalse)
	for _, name := range b.NodeConditions {
		switch name = strings.TrimSpace(name); name {
		case "":
		case string(corev1.NodeReady):
			errs = append(errs, errors.New("--health-node-conditions has Ready; True is no trouble there"))
		default:
			add(corev1.NodeConditionType(name), corev1.ConditionTrue)
		}
	}
	return p, errors.Join(errs...)
}
