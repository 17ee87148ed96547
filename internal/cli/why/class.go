package why

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// ExplainClass says why a class is not Ready, and what else is wrong with it.
func ExplainClass(f ClassFacts) []Finding {
	c := f.Class
	about := "machineclass/" + c.Name
	findings := f.Provider.absent(about, "If none runs, the class is not checked, and no machine is created from it.")
	of := func(condition metav1.Condition, where string) {
		m := MeaningOf(where, condition.Reason)
		findings = append(findings, Finding{About: about, Condition: condition.Type, Reason: condition.Reason,
			What: m.Explanation, Message: condition.Message, Since: at(condition.LastTransitionTime.Time), Ends: m.Ends,
			Do: m.Do})
	}
	ready := meta.FindStatusCondition(c.Status.Conditions, v1beta1.ConditionReady)
	switch {
	case ready == nil || c.Status.ObservedGeneration < c.Generation:
		findings = append(findings, Finding{About: about, Reason: Unobserved,
			What: "The process of its provider has not checked it yet.",
			Ends: "It does within seconds if it is running."})
	case ready.Status != metav1.ConditionTrue:
		of(*ready, ClassReady)
	}
	// Each other condition of a class is True while something is wrong.
	for _, condition := range c.Status.Conditions {
		if condition.Type != v1beta1.ConditionReady && condition.Status == metav1.ConditionTrue {
			of(condition, condition.Type)
		}
	}
	others := slices.DeleteFunc(slices.Clone(c.Finalizers), func(name string) bool {
		return name == v1beta1.InUseFinalizer
	})
	if c.DeletionTimestamp != nil && len(others) > 0 {
		findings = append(findings, Finding{About: about, Reason: OtherFinalizers, Since: at(c.DeletionTimestamp.Time),
			What: "Finalizers of other controllers hold the object: " + finalizerNames(c, others) + ".",
			Ends: "The object is deleted when their owners have removed them.",
			Do:   "Find out what each is for before you remove it by hand."})
	}
	if len(findings) == 0 {
		of(*ready, ClassReady)
		findings[0].What = "It waits for nothing: its provider has checked it, and machines can be created from it."
	}
	return findings
}
