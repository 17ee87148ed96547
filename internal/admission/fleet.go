package admission

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/validation"
	"machinist.dev/machinist/internal/platform/versionskew"
)

// Claim is what an owner of machines selects and makes.
type Claim struct {
	Kind, Name string
	Selector   *metav1.LabelSelector
	Labels     map[string]string // of the template
}

// Surroundings are what an object is judged by beside itself, as far as they are known.
type Surroundings struct {
	// Class returns a class of the object's namespace. Nil asks of no class.
	Class func(name string) (class *v1beta1.MachineClass, found bool)
	// ServerVersion returns the version of the target cluster's API server, empty if it is unknown. Nil asks for none.
	ServerVersion func() string
	// Claims are those of the other owners in the namespace.
	Claims []Claim
}

// Deployment judges a MachineDeployment.
func Deployment(d *v1beta1.MachineDeployment, s Surroundings) (v Result) {
	spec := field.NewPath("spec")
	v.template(spec.Child("template"), &d.Spec.Template)
	v.refuse(validation.Selector(spec.Child("selector"), &d.Spec.Selector)...)
	v.reserved(spec.Child("template", "metadata", "labels"), d.Spec.Template.ObjectMeta.Labels, v1beta1.LabelTemplateHash,
		v1beta1.LabelMachineSet, v1beta1.LabelMachineDeployment, v1beta1.LabelProvider)
	v.classExists(spec.Child("template", "spec"), &d.Spec.Template.Spec, s)
	v.versionSkew(spec.Child("template", "spec", "version"), d, d.Spec.Template.Spec.Version, s)
	v.overlap(spec.Child("selector"), Claim{
		Kind: "MachineDeployment", Name: d.Name, Selector: &d.Spec.Selector, Labels: d.Spec.Template.ObjectMeta.Labels,
	}, s)

	strategy := spec.Child("strategy")
	if u := d.Spec.Strategy.RollingUpdate; u != nil {
		if d.Spec.Strategy.Type != v1beta1.StrategyRollingUpdate && d.Spec.Strategy.Type != "" {
			v.warn(strategy.Child("rollingUpdate"), "the strategy %s does not use it", d.Spec.Strategy.Type)
		} else if all(u.MaxUnavailable) {
			v.warn(strategy.Child("rollingUpdate", "maxUnavailable"), "100%% lets a rollout remove all machines at once")
		}
	}
	if u := d.Spec.Strategy.InPlace; u != nil {
		if d.Spec.Strategy.Type != v1beta1.StrategyInPlace {
			v.warn(strategy.Child("inPlace"), "the strategy %s does not use it", d.Spec.Strategy.Type)
		} else if all(u.MaxUnavailable) {
			v.warn(strategy.Child("inPlace", "maxUnavailable"), "100%% lets a rollout remove all machines at once")
		}
	}
	v.remediation(spec.Child("remediation"), d.Spec.Remediation)
	if limit := d.Spec.RevisionHistoryLimit; limit != nil && *limit == 0 {
		v.warn(spec.Child("revisionHistoryLimit"), "0 keeps nothing that a rollout could be undone to")
	}
	return v
}

// remediation judges what bounds the replacement of machines.
func (v *Result) remediation(path *field.Path, r v1beta1.MachineRemediation) {
	if m := r.MaxInFlight; none(m) {
		v.warn(path.Child("maxInFlight"), "%s replaces no failed or unhealthy machine", m.String())
	} else if all(m) {
		v.warn(path.Child("maxInFlight"), "100%% replaces all failed and unhealthy machines at once")
	}
}

// Set judges a MachineSet.
func Set(m *v1beta1.MachineSet, s Surroundings) (v Result) {
	spec := field.NewPath("spec")
	v.template(spec.Child("template"), &m.Spec.Template)
	labels := spec.Child("template", "metadata", "labels")
	v.reserved(labels, m.Spec.Template.ObjectMeta.Labels, v1beta1.LabelProvider)
	if metav1.GetControllerOf(m) != nil {
		return v
	}
	v.reserved(labels, m.Spec.Template.ObjectMeta.Labels, v1beta1.LabelMachineSet, v1beta1.LabelMachineDeployment)
	v.classExists(spec.Child("template", "spec"), &m.Spec.Template.Spec, s)
	v.versionSkew(spec.Child("template", "spec", "version"), m, m.Spec.Template.Spec.Version, s)
	v.remediation(spec.Child("remediation"), m.Spec.Remediation)
	v.overlap(spec.Child("selector"), Claim{
		Kind: "MachineSet", Name: m.Name, Selector: &m.Spec.Selector, Labels: m.Spec.Template.ObjectMeta.Labels,
	}, s)
	return v
}

// Machine judges a Machine. created says that it is new.
func Machine(m *v1beta1.Machine, created bool, s Surroundings) (v Result) {
	spec := field.NewPath("spec")
	v.spec(spec, &m.Spec)
	class := v.classExists(spec, &m.Spec, s)
	if metav1.GetControllerOf(m) == nil {
		v.versionSkew(spec.Child("version"), m, m.Spec.Version, s)
	}
	// Whether a permission for a former cluster counts is judged when it is used.
	if created && m.Spec.ProviderID != "" && class != nil && class.Spec.Adoption != v1beta1.AdoptionAllow &&
		class.Annotations[v1beta1.AnnotationAdoptFromCluster] == "" {
		v.refuse(field.Forbidden(spec.Child("providerID"), "the MachineClass "+class.Name+
			" does not allow the adoption of existing instances (spec.adoption)"))
	}
	return v
}

// classExists warns of a class that is not there, and returns it if it is.
func (v *Result) classExists(path *field.Path, spec *v1beta1.MachineSpec, s Surroundings) *v1beta1.MachineClass {
	if spec.ClassRef == nil || s.Class == nil {
		return nil
	}
	class, found := s.Class(spec.ClassRef.Name)
	if !found {
		v.warn(path.Child("classRef", "name"), "there is no MachineClass %s in this namespace yet: machines wait for it",
			spec.ClassRef.Name)
		return nil
	}
	return class
}

// versionSkew warns of a version that the target cluster does not support. Machines of that version are created all the
// same, except by the rollout of a MachineDeployment.
func (v *Result) versionSkew(path *field.Path, object metav1.Object, version string, s Surroundings) {
	if _, allowed := object.GetAnnotations()[v1beta1.AnnotationAllowVersionSkew]; allowed || version == "" ||
		s.ServerVersion == nil {
		return
	}
	if violation := versionskew.Violation(version, s.ServerVersion()); violation != "" {
		v.warn(path, "%s", violation)
	}
}

// mostNamed is how many objects a warning names; API servers cut long ones off.
const mostNamed = 3

// overlap warns of owners that would take this one's machines, or it theirs.
func (v *Result) overlap(path *field.Path, own Claim, s Surroundings) {
	var with []string
	for _, other := range s.Claims {
		if own.Kind == other.Kind && own.Name == other.Name {
			continue
		}
		if matches(own.Selector, other.Labels) || matches(other.Selector, own.Labels) {
			with = append(with, other.Kind+" "+other.Name)
		}
	}
	if more := len(with) - mostNamed; more > 0 {
		with = append(with[:mostNamed], fmt.Sprintf("%d more", more))
	}
	if len(with) > 0 {
		v.warn(path, "it also selects machines of others, or they select this one's: %s. Give each a label of its own",
			strings.Join(with, ", "))
	}
}

func matches(selector *metav1.LabelSelector, set map[string]string) bool {
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && !s.Empty() && s.Matches(labels.Set(set))
}

func all(v *intstr.IntOrString) bool {
	return v != nil && v.Type == intstr.String && v.StrVal == "100%"
}

func none(v *intstr.IntOrString) bool {
	return v != nil && (v.String() == "0" || v.String() == "0%")
}
