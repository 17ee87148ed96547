package manifests

import (
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	rendered "machinist.dev/machinist/internal/install/manifests"
)

func wrongTypes() []InvalidObject {
	samples := map[string]string{
		"MachineClass": Class, "Machine": Machine, "MachineSet": Set, "MachineDeployment": Deployment,
		"MachineHealthCheck": HealthCheck, "MachineDisruptionBudget": Budget, "Provider": Provider, "Migration": Migration,
	}
	var all []InvalidObject
	for _, crd := range rendered.CRDs() {
		kind := crd.Spec.Names.Kind
		eachField("spec", crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"], func(path string, value any) {
			field := strings.ReplaceAll(path, "/", ".")
			all = append(all, InvalidObject{
				Name: kind + " with another type of " + field, Sample: samples[kind], Changes: Changes{path: value},
				Reports: reports(field), By: BySchema,
			})
		})
	}
	return all
}

// eachField calls visit for each named field, with its path and a value of a wrong type.
func eachField(path string, s apiextensionsv1.JSONSchemaProps, visit func(path string, invalid any)) {
	switch {
	case s.XIntOrString:
		visit(path, []any{})
	case s.Type == "string":
		visit(path, 7)
	default:
		visit(path, "text")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		eachField(path+"/"+name, s.Properties[name], visit)
	}
}
