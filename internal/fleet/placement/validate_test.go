package placement

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"machinist.dev/machinist/api/v1beta1"
)

func TestValidate(t *testing.T) {
	long := placementOf()
	for i := range 33 {
		long.Domains = append(long.Domains, domainOf(fmt.Sprint("d", i), fmt.Sprint("c", i)))
	}
	manyOptions := placementOf(domainOf("a"))
	for i := range 17 {
		manyOptions.Domains[0].Options = append(manyOptions.Domains[0].Options,
			v1beta1.PlacementOption{ClassName: fmt.Sprint("c", i)})
	}
	with := func(change func(p *v1beta1.Placement)) *v1beta1.Placement {
		p := zones()
		change(p)
		return p
	}
	for _, test := range []struct {
		name      string
		placement *v1beta1.Placement
		want      string
	}{
		{"no placement", nil, ""},
		{"valid", zones(), ""},
		{"all fields", modes(placementOf(domainOf("a", 1000, "a1", "min=2", "max=2"), domainOf("b", 0, "b1", "max=0")), v1beta1.PlacementWait, v1beta1.RebalanceWhenIdle), ""},
		{"no domains", placementOf(), "spec.placement.domains: Required value: a placement needs at least one domain"},
		{"too many domains", long, "spec.placement.domains: Too many: 33: must have at most 32 items"},
		{"no options", placementOf(domainOf("a")), "spec.placement.domains[0].options: Required value: a domain needs at least one option"},
		{"too many options", manyOptions, "spec.placement.domains[0].options: Too many: 17: must have at most 16 items"},
		{"no class", placementOf(domainOf("a", "")), "spec.placement.domains[0].options[0].className: Required value: an option needs the name of a MachineClass"},
		{"duplicate class in a domain", placementOf(domainOf("a", "x", "x")), `spec.placement.domains[0].options[1].className: Duplicate value: "x": a placement may contain a class only once; spec.placement.domains[0].options[0].className has the same class`},
		{"duplicate class across domains", placementOf(domainOf("a", "x"), domainOf("b", "y", "x")), `spec.placement.domains[1].options[1].className: Duplicate value: "x": a placement may contain a class only once; spec.placement.domains[0].options[0].className has the same class`},
		{"duplicate name", placementOf(domainOf("a", "x"), domainOf("a", "y")), `spec.placement.domains[1].name: Duplicate value: "a"`},
		{"no name", placementOf(domainOf("", "x")), "spec.placement.domains[0].name: Required value: a domain needs a name"},
		{"malformed name", placementOf(domainOf("Zone_A", "x")), `spec.placement.domains[0].name: Invalid value: "Zone_A": a lowercase RFC 1123 label must`},
		{"all weights 0", placementOf(domainOf("a", 0, "x"), domainOf("b", 0, "y")), "spec.placement.domains[0].weight: Invalid value: 0: at least one domain must have a weight above 0: no domain would get new machines"},
		{"weight too large", placementOf(domainOf("a", 1001, "x")), "spec.placement.domains[0].weight: Invalid value: 1001: must be between 0 and 1000, inclusive"},
		{"negative weight", placementOf(domainOf("a", "y"), domainOf("b", -1, "x")), "spec.placement.domains[1].weight: Invalid value: -1: must be between 0 and 1000, inclusive"},
		{"negative minimum", placementOf(domainOf("a", "x", "min=-1")), "spec.placement.domains[0].minReplicas: Invalid value: -1: must be between 0 and 100000, inclusive"},
		{"negative maximum", placementOf(domainOf("a", "x", "max=-1", "min=-1")), "spec.placement.domains[0].minReplicas: Invalid value: -1: must be between 0 and 100000, inclusive | spec.placement.domains[0].maxReplicas: Invalid value: -1: must be between 0 and 100000, inclusive"},
		{"minimum above maximum", placementOf(domainOf("a", "x", "min=3", "max=2")), "spec.placement.domains[0].minReplicas: Invalid value: 3: must not be greater than maxReplicas, which is 2"},
		{"minimum with weight 0", placementOf(domainOf("a", "y"), domainOf("b", 0, "x", "min=3")), "spec.placement.domains[1].minReplicas: Invalid value: 3: must be 0 if weight is 0: the domain gets no new machines"},
		{"negative maxSkew", with(func(p *v1beta1.Placement) { p.MaxSkew = -1 }), "spec.placement.maxSkew: Invalid value: -1: must be between 1 and 100000, inclusive"},
		{"unknown fallback", with(func(p *v1beta1.Placement) { p.WhenUnsatisfiable = "Maybe" }), `spec.placement.whenUnsatisfiable: Unsupported value: "Maybe": supported values: "Exceed", "Wait"`},
		{"unknown rebalance", with(func(p *v1beta1.Placement) { p.Rebalance = "Always" }), `spec.placement.rebalance: Unsupported value: "Always": supported values: "Never", "WhenIdle"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got []string
			for _, err := range Validate(field.NewPath("spec", "placement"), test.placement) {
				got = append(got, err.Error())
			}
			switch text := strings.Join(got, " | "); {
			case test.want == "" && text != "", !strings.HasPrefix(text, test.want):
				t.Errorf("Validate() = %s, want %s", text, test.want)
			}
		})
	}
}
