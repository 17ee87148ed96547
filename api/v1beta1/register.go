package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of all kinds in this package.
const GroupName = "machinist.dev"

// Version is the API version of all kinds in this package.
const Version = "v1beta1"

var (
	// GroupVersion is the group and version of all kinds in this package.
	GroupVersion = schema.GroupVersion{Group: GroupName, Version: Version}

	// SchemeBuilder collects the functions that register this package with a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme registers all kinds of this package with a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

// Kind returns the qualified name of a kind of this group.
func Kind(kind string) schema.GroupKind {
	return GroupVersion.WithKind(kind).GroupKind()
}

// Resource returns the qualified name of a resource of this group.
func Resource(resource string) schema.GroupResource {
	return GroupVersion.WithResource(resource).GroupResource()
}

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&MachineClass{}, &MachineClassList{},
		&Machine{}, &MachineList{},
		&MachineSet{}, &MachineSetList{},
		&MachineDeployment{}, &MachineDeploymentList{},
		&MachineHealthCheck{}, &MachineHealthCheckList{},
		&MachineDisruptionBudget{}, &MachineDisruptionBudgetList{},
		&Provider{}, &ProviderList{},
		&Migration{}, &MigrationList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
