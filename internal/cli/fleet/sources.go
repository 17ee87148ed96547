package fleet

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/why"
)

// notReady is the state of a fleet of which some machines are not Ready: Scaling where all of those are on their way to become
// Nodes and nothing keeps them from it.
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
			if !g.Ordinary(now) {
				return "NotReady"
			}
		}
	}
	return "Scaling"
}

// sourcesOf returns what is wrong with classes and Secrets.
func sourcesOf(f Facts) []Source {
	sources := []Source{}
	for i := range f.Classes {
		class := &f.Classes[i]
		s := Source{Namespace: class.Namespace, Object: "machineclass/" + class.Name}
		ready := meta.FindStatusCondition(class.Status.Conditions, v1beta1.ConditionReady)
		switch {
		case class.DeletionTimestamp != nil:
			s.Reason, s.Says, s.Since = deleting, "No machine is made of it any more. It goes when no machine refers to it.", timeOf(*class.DeletionTimestamp)
		case ready != nil && ready.Status == metav1.ConditionFalse:
			s.Reason, s.Since = ready.Reason, timeOf(ready.LastTransitionTime)
			s.Says = cmp.Or(ready.Message, why.MeaningOf(why.ClassReady, ready.Reason).Says)
		default:
			continue
		}
		sources = append(sources, s)
	}
	for i := range f.Secrets {
		secret := &f.Secrets[i]
		sources = append(sources, Source{
			Namespace: secret.Namespace, Object: "secret/" + secret.Name, Reason: deleting, Since: timeOf(*secret.DeletionTimestamp),
			Says: "It goes when no class and no machine needs it, and cannot be used after that.",
		})
	}
	return sources
}

// deleting is the reason of a source that is being deleted.
const deleting = "Deleting"

// editedOf returns the machines of deployments whose specification is not that of their set's template. The template of a set
// without a deployment may be changed, which concerns new machines only.
func editedOf(fam family) []Edited {
	edited := []Edited{}
	for _, sets := range fam.sets {
		for _, set := range sets {
			edited = append(edited, editedIn(set, fam.machines[set.UID])...)
		}
	}
	return edited
}

func editedIn(set *v1beta1.MachineSet, machines []*v1beta1.Machine) (edited []Edited) {
	want := &set.Spec.Template.Spec
	for _, m := range machines {
		if m.DeletionTimestamp != nil {
			continue
		}
		fields := []Edited{
			{Field: "spec.classRef.name", Is: className(m.Spec.ClassRef), Set: className(want.ClassRef)},
			{Field: "spec.version", Is: m.Spec.Version, Set: want.Version},
			{Field: "spec.provider", Is: m.Spec.Provider, Set: want.Provider},
			{Field: "spec.providerSpec", Is: rawOf(m.Spec.ProviderSpec), Set: rawOf(want.ProviderSpec)},
		}
		if i := slices.IndexFunc(fields, func(e Edited) bool { return e.Is != e.Set }); i >= 0 {
			e := fields[i]
			e.Namespace, e.Name = m.Namespace, m.Name
			edited = append(edited, e)
		}
	}
	return edited
}

func rawOf(spec *runtime.RawExtension) string {
	if spec == nil {
		return ""
	}
	return string(spec.Raw)
}

func className(ref *v1beta1.LocalRef) string {
	if ref == nil {
		return ""
	}
	return ref.Name
}
