package fleet

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/api/v1beta1"
)

// editedOf finds machines whose specification differs from the template of their set. Machines of standalone sets are
// skipped, because a changed template of such a set applies only to new machines.
func editedOf(inv inventoryAt) []EditedMachine {
	edited := []EditedMachine{}
	for _, set := range inv.OwnedSets() {
		edited = append(edited, editedIn(set, inv.Machines(set))...)
	}
	return edited
}

func editedIn(set *v1beta1.MachineSet, machines []*v1beta1.Machine) (edited []EditedMachine) {
	want := &set.Spec.Template.Spec
	for _, m := range machines {
		if m.DeletionTimestamp != nil {
			continue
		}
		class := className(want.ClassRef)
		switch own := className(m.Spec.ClassRef); {
		case set.Spec.Placement == nil:
		case set.Spec.Placement.DomainOf(own) != "":
			class = own
		default:
			class = "an option of spec.placement"
		}
		fields := []EditedMachine{
			{Field: "spec.classRef.name", Is: className(m.Spec.ClassRef), Set: class},
			{Field: "spec.version", Is: m.Spec.Version, Set: want.Version},
			{Field: "spec.provider", Is: m.Spec.Provider, Set: want.Provider},
			{Field: "spec.providerSpec", Is: rawOf(m.Spec.ProviderSpec), Set: rawOf(want.ProviderSpec)},
		}
		if i := slices.IndexFunc(fields, func(e EditedMachine) bool { return e.Is != e.Set }); i >= 0 {
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
