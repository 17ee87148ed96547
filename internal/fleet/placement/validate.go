package placement

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"machinist.dev/machinist/api/v1beta1"
)

// Limits of the schema.
const (
	maxDomains  = 32
	maxOptions  = 16
	maxWeight   = 1000
	maxReplicas = 100000
)

// Validate finds errors in a placement at the path. It also finds most errors that the schema detects, because a
// controller may read an object that was stored under another schema. A nil placement has no errors.
func Validate(path *field.Path, p *v1beta1.Placement) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := validateModes(path, p)
	domains := path.Child("domains")
	switch {
	case len(p.Domains) == 0:
		return append(errs, field.Required(domains, "a placement needs at least one domain"))
	case len(p.Domains) > maxDomains:
		errs = append(errs, field.TooMany(domains, len(p.Domains), maxDomains))
	}
	names := sets.New[string]()
	firstUse := map[string]*field.Path{}
	weighted := false
	for i := range p.Domains {
		d, at := &p.Domains[i], domains.Index(i)
		errs = append(errs, validateName(at.Child("name"), d.Name, names)...)
		errs = append(errs, validateNumbers(at, d)...)
		errs = append(errs, validateOptions(at.Child("options"), d.Options, firstUse)...)
		weighted = weighted || d.WeightOrDefault() != 0
	}
	if !weighted {
		errs = append(errs, field.Invalid(domains.Index(0).Child("weight"), 0,
			"at least one domain must have a weight above 0: no domain would get new machines"))
	}
	return errs
}

func validateModes(path *field.Path, p *v1beta1.Placement) (errs field.ErrorList) {
	if p.MaxSkew < 0 || p.MaxSkew > maxReplicas {
		errs = append(errs, field.Invalid(path.Child("maxSkew"), p.MaxSkew,
			validation.InclusiveRangeError(1, maxReplicas)))
	}
	switch p.WhenUnsatisfiable {
	case "", v1beta1.PlacementExceed, v1beta1.PlacementWait:
	default:
		errs = append(errs, field.NotSupported(path.Child("whenUnsatisfiable"), p.WhenUnsatisfiable,
			[]v1beta1.PlacementFallback{v1beta1.PlacementExceed, v1beta1.PlacementWait}))
	}
	switch p.Rebalance {
	case "", v1beta1.RebalanceNever, v1beta1.RebalanceWhenIdle:
	default:
		errs = append(errs, field.NotSupported(path.Child("rebalance"), p.Rebalance,
			[]v1beta1.PlacementRebalance{v1beta1.RebalanceNever, v1beta1.RebalanceWhenIdle}))
	}
	return errs
}

// validateName checks the name of a domain and adds it to the names of the preceding domains.
func validateName(path *field.Path, name string, names sets.Set[string]) (errs field.ErrorList) {
	switch {
	case name == "":
		return field.ErrorList{field.Required(path, "a domain needs a name")}
	case names.Has(name):
		return field.ErrorList{field.Duplicate(path, name)}
	}
	names.Insert(name)
	for _, problem := range validation.IsDNS1123Label(name) {
		errs = append(errs, field.Invalid(path, name, problem))
	}
	return errs
}

func validateNumbers(path *field.Path, d *v1beta1.PlacementDomain) (errs field.ErrorList) {
	within := func(name string, value, limit int32) {
		if value < 0 || value > limit {
			errs = append(errs, field.Invalid(path.Child(name), value, validation.InclusiveRangeError(0, int(limit))))
		}
	}
	within("weight", d.WeightOrDefault(), maxWeight)
	within("minReplicas", d.MinReplicas, maxReplicas)
	if d.MaxReplicas != nil {
		within("maxReplicas", *d.MaxReplicas, maxReplicas)
		if d.MinReplicas > *d.MaxReplicas {
			errs = append(errs, field.Invalid(path.Child("minReplicas"), d.MinReplicas,
				fmt.Sprintf("must not be greater than maxReplicas, which is %d", *d.MaxReplicas)))
		}
	}
	if d.WeightOrDefault() == 0 && d.MinReplicas > 0 {
		errs = append(errs, field.Invalid(path.Child("minReplicas"), d.MinReplicas,
			"must be 0 if weight is 0: the domain gets no new machines"))
	}
	return errs
}

// validateOptions checks the options of a domain. firstUse contains the classes of the preceding options.
func validateOptions(path *field.Path, options []v1beta1.PlacementOption,
	firstUse map[string]*field.Path) (errs field.ErrorList) {
	switch {
	case len(options) == 0:
		return field.ErrorList{field.Required(path, "a domain needs at least one option")}
	case len(options) > maxOptions:
		errs = append(errs, field.TooMany(path, len(options), maxOptions))
	}
	for i, o := range options {
		at := path.Index(i).Child("className")
		switch first := firstUse[o.ClassName]; {
		case o.ClassName == "":
			errs = append(errs, field.Required(at, "an option needs the name of a MachineClass"))
		case first != nil:
			duplicate := field.Duplicate(at, o.ClassName)
			duplicate.Detail = fmt.Sprintf("a placement may contain a class only once; %s has the same class", first)
			errs = append(errs, duplicate)
		default:
			firstUse[o.ClassName] = at
		}
	}
	return errs
}
