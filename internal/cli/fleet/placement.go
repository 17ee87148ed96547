package fleet

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
)

// Option describes an option of a placement, and its machines.
type Option struct {
	// Domain is empty for machines whose class is not an option of the placement, for example because a rollout has not
	// replaced these machines yet.
	Domain string `json:"domain,omitempty"`
	Class  string `json:"class"`
	// Machines is the number of machines that are not being deleted, and Ready the number of those that are Ready.
	Machines int `json:"machines"`
	Ready    int `json:"ready"`
	// ExhaustedSince is the time since which the cloud has had no capacity for the class. RetryTime is the time after
	// which one machine tries again. Both are empty if the cloud has capacity.
	ExhaustedSince *time.Time `json:"exhaustedSince,omitempty"`
	RetryTime      *time.Time `json:"retryTime,omitempty"`

	// isPreferred is true for the first option of a domain.
	isPreferred bool
}

// IsRelevant reports whether a short list shows the option. A fallback class that has capacity and no machines is not
// relevant.
func (o Option) IsRelevant() bool { return o.isPreferred || o.Machines > 0 || o.ExhaustedSince != nil }

// NoCapacity describes how long the cloud has had no capacity for the class, and when a machine tries again. The text
// is empty if the cloud has capacity.
func (o Option) NoCapacity(now time.Time) string {
	if o.ExhaustedSince == nil {
		return ""
	}
	text := "for " + printer.Age(now, *o.ExhaustedSince)
	switch {
	case o.RetryTime == nil:
	case o.RetryTime.After(now):
		text += ", next try in " + duration.HumanDuration(o.RetryTime.Sub(now))
	default:
		text += ", next try now"
	}
	return text
}

// optionsOf returns the options of a placement in its order, and then the classes of machines that are not options. The
// result is empty without a placement. The controller reports the capacity in the status of the deployment. The status
// of a set does not contain it, so it comes from the classes.
func optionsOf(p *v1beta1.Placement, status []v1beta1.PlacementOptionStatus, machines []*v1beta1.Machine,
	classes map[types.NamespacedName]*v1beta1.MachineClass, namespace string) (options []Option) {
	if p == nil {
		return nil
	}
	at := map[string]int{}
	for i := range p.Domains {
		for j, o := range p.Domains[i].Options {
			at[o.ClassName] = len(options)
			options = append(options, Option{Domain: p.Domains[i].Name, Class: o.ClassName, isPreferred: j == 0})
		}
	}
	for _, m := range machines {
		if m.DeletionTimestamp != nil || m.Spec.ClassRef == nil {
			continue
		}
		i, known := at[m.Spec.ClassRef.Name]
		if !known {
			i = len(options)
			at[m.Spec.ClassRef.Name] = i
			options = append(options, Option{Class: m.Spec.ClassRef.Name})
		}
		options[i].Machines++
		if meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionReady) {
			options[i].Ready++
		}
	}
	for i := range options {
		o := &options[i]
		if class := classes[types.NamespacedName{Namespace: namespace, Name: o.Class}]; class != nil {
			c := meta.FindStatusCondition(class.Status.Conditions, v1beta1.ConditionCapacityAvailable)
			if c != nil && c.Status == metav1.ConditionFalse {
				o.ExhaustedSince, o.RetryTime = timeOf(c.LastTransitionTime), optionalTime(class.Status.CapacityRetryTime)
			}
		}
	}
	for _, s := range status {
		if i, known := at[s.ClassName]; known {
			options[i].ExhaustedSince, options[i].RetryTime = optionalTime(s.ExhaustedSince), optionalTime(s.RetryTime)
		}
	}
	return options
}

func optionalTime(t *metav1.Time) *time.Time {
	if t == nil {
		return nil
	}
	return timeOf(*t)
}

// writePlacements writes a table with the options of all placements. Unless all columns are wanted, the table has only
// the relevant options.
func (s Status) writePlacements(w *strings.Builder, style printer.Style) {
	var rows [][]string
	var namespaces []string
	add := func(kind string, all []Scaled) {
		for _, x := range all {
			for _, o := range x.Placement {
				if !style.AllColumns && !o.IsRelevant() {
					continue
				}
				domain := o.Domain
				if domain == "" {
					domain = style.Dim("not an option")
				}
				missing := o.NoCapacity(s.Now)
				if missing != "" {
					missing = style.Warn(missing)
				}
				rows = append(rows, []string{kind + "/" + x.Name, domain, o.Class, fmt.Sprint(o.Machines), fmt.Sprint(o.Ready),
					missing})
				namespaces = append(namespaces, x.Namespace)
			}
		}
	}
	add("md", s.Deployments)
	add("ms", s.Sets)
	s.writeTable(w, []string{"PLACEMENT OF", "DOMAIN", "CLASS", "MACHINES", "READY", "NO CAPACITY"}, rows, namespaces)
}
