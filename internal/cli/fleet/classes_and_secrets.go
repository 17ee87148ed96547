package fleet

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/why"
)

// notReady returns Scaling if each machine that is not Ready is starting without a problem, and NotReady otherwise.
func notReady(machines []*v1beta1.Machine, now time.Time) string {
	for _, m := range machines {
		if m.DeletionTimestamp != nil || meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionReady) {
			continue
		}
		switch m.Status.Phase {
		case "", v1beta1.MachinePending, v1beta1.MachineProvisioning, v1beta1.MachineProvisioned:
		default:
			return "NotReady"
		}
		for _, g := range why.Groups([]*v1beta1.Machine{m}, (*v1beta1.Machine).GetName) {
			if !g.IsNormal(now) {
				return "NotReady"
			}
		}
	}
	return "Scaling"
}

func sourcesOf(f Facts) []Source {
	sources := []Source{}
	for i := range f.Classes {
		class := &f.Classes[i]
		if c := meta.FindStatusCondition(class.Status.Conditions, v1beta1.ConditionOrphanRemovalBlocked); c != nil &&
			c.Status == metav1.ConditionTrue {
			sources = append(sources, Source{Namespace: class.Namespace, Object: "machineclass/" + class.Name, Reason: c.Reason,
				Explanation: cmp.Or(c.Message, why.MeaningOf(c.Type, c.Reason).Explanation), Since: timeOf(c.LastTransitionTime)})
		}
		s := Source{Namespace: class.Namespace, Object: "machineclass/" + class.Name}
		ready := meta.FindStatusCondition(class.Status.Conditions, v1beta1.ConditionReady)
		switch {
		case class.DeletionTimestamp != nil:
			s.Reason, s.Since = reasonDeleting, timeOf(*class.DeletionTimestamp)
			s.Explanation = "The provider has not reported yet what the deletion waits for."
			if c := meta.FindStatusCondition(class.Status.Conditions, v1beta1.ConditionDeleting); c != nil {
				s.Explanation = c.Message
			}
		case ready != nil && ready.Status == metav1.ConditionFalse:
			s.Reason, s.Since = ready.Reason, timeOf(ready.LastTransitionTime)
			s.Explanation = cmp.Or(ready.Message, why.MeaningOf(why.ClassReady, ready.Reason).Explanation)
		default:
			continue
		}
		sources = append(sources, s)
	}
	for i := range f.Secrets {
		secret := &f.Secrets[i]
		sources = append(sources, Source{
			Namespace: secret.Namespace, Object: "secret/" + secret.Name, Reason: reasonDeleting,
			Since:       timeOf(*secret.DeletionTimestamp),
			Explanation: "The Secret is deleted when no class and no machine needs it. After that, new machines can no longer use the Secret.",
		})
	}
	return sources
}

const reasonDeleting = "Deleting"
