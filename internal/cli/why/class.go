package why

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// ExplainClass returns findings about a class: why the class is not Ready, and which other problems it has.
func ExplainClass(f ClassFacts) []Finding {
	c := f.Class
	about := "machineclass/" + c.Name
	findings := f.Provider.notRunning(about, "If the process does not run, the class is not checked, and no machine is created from it.")
	add := func(condition metav1.Condition, kind string) {
		m := MeaningOf(kind, condition.Reason)
		findings = append(findings, Finding{Object: about, Condition: condition.Type, Reason: condition.Reason,
			Description: m.Explanation, Message: condition.Message,
			StartTime: inUTC(condition.LastTransitionTime.Time), NextStep: m.NextStep,
			Instructions: m.Instructions})
	}
	ready := meta.FindStatusCondition(c.Status.Conditions, v1beta1.ConditionReady)
	switch {
	case ready == nil || c.Status.ObservedGeneration < c.Generation:
		findings = append(findings, Finding{Object: about, Reason: ReasonUnobserved,
			Description: "The provider process has not checked the class yet.",
			NextStep:    "If the provider process runs, it checks the class within seconds."})
	case ready.Status != metav1.ConditionTrue:
		add(*ready, ClassReady)
	}
	// In all conditions of a class except Ready and CapacityAvailable, True means a problem.
	for _, condition := range c.Status.Conditions {
		switch condition.Type {
		case v1beta1.ConditionReady:
		case v1beta1.ConditionCapacityAvailable:
			if condition.Status == metav1.ConditionFalse {
				add(condition, condition.Type)
				if retry := c.Status.CapacityRetryTime; retry != nil {
					findings[len(findings)-1].NextStepTime = inUTC(retry.Time)
				}
			}
		default:
			if condition.Status == metav1.ConditionTrue {
				add(condition, condition.Type)
			}
		}
	}
	others := slices.DeleteFunc(slices.Clone(c.Finalizers), func(name string) bool {
		return name == v1beta1.InUseFinalizer
	})
	if c.DeletionTimestamp != nil && len(others) > 0 {
		findings = append(findings, Finding{Object: about, Reason: OtherFinalizers,
			StartTime:    inUTC(c.DeletionTimestamp.Time),
			Description:  "Finalizers of other controllers keep the class: " + finalizerNames(c, others) + ".",
			NextStep:     "The class is deleted when the owners of these finalizers have removed them.",
			Instructions: "Find out what each finalizer is for before you remove it yourself."})
	}
	if len(findings) == 0 {
		add(*ready, ClassReady)
		findings[0].Description = "The class waits for nothing: its provider has checked it, and machines can be created from it."
	}
	return findings
}
