package interruption

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"machinist.dev/machinist/api/v1beta1"
)

const (
	conditionsFlag = "interruption-node-conditions"
	taintsFlag     = "interruption-node-taints"
)

// Flags configure signals in addition to the known signals.
type Flags struct {
	// Conditions and Taints contain names. A name may be followed by the length of the notice: "example.com/reclaimed=2m".
	Conditions, Taints []string
}

// AddFlags adds the flags to a flag set.
func (f *Flags) AddFlags(fs *pflag.FlagSet) {
	const rest = "in addition to those of common termination handlers; " +
		"append the length of the notice, such as %s=2m (default 30s)"
	fs.StringSliceVar(&f.Conditions, conditionsFlag, f.Conditions,
		"Node conditions whose status True announces that the cloud is about to reclaim the instance, "+
			fmt.Sprintf(rest, "SpotReclaim"))
	fs.StringSliceVar(&f.Taints, taintsFlag, f.Taints,
		"keys of Node taints that announce that the cloud is about to reclaim the instance, "+
			fmt.Sprintf(rest, "example.com/reclaim"))
}

// Signals returns the known signals and the signals that the flags define. If a flag defines a signal with the name of
// a known signal, it replaces the known signal. The error names the invalid values.
func (f *Flags) Signals() (Signals, error) {
	all := KnownSignals()
	var errs []error
	add := func(flag string, values []string, signal func(name string) Signal) {
		for _, value := range values {
			name, text, timed := strings.Cut(strings.TrimSpace(value), "=")
			if name == "" && !timed {
				continue
			}
			s := signal(name)
			s.Reason, s.LeadTime = v1beta1.ReasonTerminationNotice, DefaultLead
			if problems := validation.IsQualifiedName(name); len(problems) > 0 {
				errs = append(errs, fmt.Errorf("--%s contains %q, but %q is not a valid name: %s", flag, value, name,
					strings.Join(problems, "; ")))
				continue
			}
			if s.Condition == corev1.NodeReady {
				errs = append(errs, fmt.Errorf("--%s contains Ready, which cannot announce an interruption while it is True", flag))
				continue
			}
			if timed {
				lead, err := time.ParseDuration(text)
				if err != nil || lead <= 0 {
					errs = append(errs, fmt.Errorf("--%s contains %q, but the value after = must be a duration longer than 0s, such as 2m",
						flag, value))
					continue
				}
				s.LeadTime = lead
			}
			all = slices.DeleteFunc(all, func(known Signal) bool {
				return known.Condition == s.Condition && known.Taint == s.Taint
			})
			all = append(all, s)
		}
	}
	add(conditionsFlag, f.Conditions, func(name string) Signal {
		return Signal{Condition: corev1.NodeConditionType(name)}
	})
	add(taintsFlag, f.Taints, func(name string) Signal { return Signal{Taint: name} })
	return all, errors.Join(errs...)
}
