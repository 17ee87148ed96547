package admission

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/autoscaling"
	"machinist.dev/machinist/internal/platform/validation"
	"machinist.dev/machinist/internal/platform/versionskew"
)

// Claim is the selector of an owner of machines, together with the labels of its template.
type Claim struct {
	Kind, Name string
	Selector   *metav1.LabelSelector
	Labels     map[string]string // labels of the template
}

// Environment contains the other objects that the validation needs.
type Environment struct {
	// Class looks up a class in the object's namespace. If the function is nil, class references are not checked.
	Class func(name string) (class *v1beta1.MachineClass, found bool)
	// ServerVersion returns the version of the target cluster's API server, or "" if it is unknown. If ServerVersion
	// is nil, versions are not checked.
	ServerVersion func() string
	// Claims contains the selectors of other sets and deployments in the namespace, so that overlapping selectors are
	// detected.
	Claims []Claim
}

// ValidateDeployment validates a MachineDeployment.
func ValidateDeployment(d *v1beta1.MachineDeployment, s Environment) (v Result) {
	spec := field.NewPath("spec")
	v.template(spec.Child("template"), &d.Spec.Template)
	v.refuse(validation.Selector(spec.Child("selector"), &d.Spec.Selector)...)
	v.rejectReserved(spec.Child("template", "metadata", "labels"), d.Spec.Template.ObjectMeta.Labels, v1beta1.LabelTemplateHash,
		v1beta1.LabelMachineSet, v1beta1.LabelMachineDeployment, v1beta1.LabelProvider, v1beta1.LabelPlacementDomain)
	v.classExists(spec.Child("template", "spec"), &d.Spec.Template.Spec, s)
	v.placement(d.Spec.Placement, d.Spec.Replicas, d.Annotations, s)
	v.versionSkew(spec.Child("template", "spec", "version"), d, d.Spec.Template.Spec.Version, s)
	v.versionSteps(spec.Child("versionSteps"), d, s)
	v.warnOverlap(spec.Child("selector"), Claim{
		Kind: "MachineDeployment", Name: d.Name, Selector: &d.Spec.Selector, Labels: d.Spec.Template.ObjectMeta.Labels,
	}, s)

	strategy := spec.Child("strategy")
	if u := d.Spec.Strategy.RollingUpdate; u != nil {
		if d.Spec.Strategy.Type != v1beta1.StrategyRollingUpdate && d.Spec.Strategy.Type != "" {
			v.warn(strategy.Child("rollingUpdate"), "the strategy %s does not use this field", d.Spec.Strategy.Type)
		} else if all(u.MaxUnavailable) {
			v.warn(strategy.Child("rollingUpdate", "maxUnavailable"), "with 100%%, a rollout may remove all machines at once")
		}
	}
	if u := d.Spec.Strategy.InPlace; u != nil {
		if d.Spec.Strategy.Type != v1beta1.StrategyInPlace {
			v.warn(strategy.Child("inPlace"), "the strategy %s does not use this field", d.Spec.Strategy.Type)
		} else if all(u.MaxUnavailable) {
			v.warn(strategy.Child("inPlace", "maxUnavailable"), "with 100%%, a rollout may remove all machines at once")
		}
	}
	v.hibernation(spec.Child("hibernated"), d.Spec.Hibernated, d.Annotations)
	v.rolloutStops(strategy.Child("rollingUpdate"), d)
	v.remediation(spec.Child("remediation"), d.Spec.Remediation)
	if limit := d.Spec.RevisionHistoryLimit; limit != nil && *limit == 0 {
		v.warn(spec.Child("revisionHistoryLimit"), "with 0, no revision is kept to roll back to")
	}
	return v
}

// versionSteps warns about classes of steps that do not exist.
func (v *Result) versionSteps(path *field.Path, d *v1beta1.MachineDeployment, s Environment) {
	for i, step := range d.Spec.VersionSteps {
		if step.ClassName == "" || s.Class == nil {
			continue
		}
		if _, found := s.Class(step.ClassName); !found {
			v.warn(path.Index(i).Child("className"),
				"the MachineClass %s does not exist in this namespace; machines wait until it is created", step.ClassName)
		}
	}
}

// rolloutStops validates partition and pauseAfter. The replicas of a node group come from the autoscaler, which may
// scale below the partition at any time, so too large a partition is only a warning.
func (v *Result) rolloutStops(path *field.Path, d *v1beta1.MachineDeployment) {
	partition, replicas := d.Spec.Strategy.Partition(), d.Spec.Replicas
	if replicas != nil && partition > *replicas {
		detail := fmt.Sprintf("partition must not be above spec.replicas, which is %d", *replicas)
		if autoscaling.IsNodeGroup(d.Annotations) {
			v.warn(path.Child("partition"), "%d is above spec.replicas, which is %d now, so no machine is updated", partition,
				*replicas)
		} else {
			v.refuse(field.Invalid(path.Child("partition"), partition, detail))
		}
	}
	if pause := d.Spec.Strategy.PauseAfter(); pause != nil && replicas != nil && pause.Machines >= *replicas-partition &&
		*replicas > 0 {
		v.warn(path.Child("pauseAfter", "machines"), "a rollout updates at most %d machines (spec.replicas %d − partition %d), so "+
			"it does not pause after %d", max(0, *replicas-partition), *replicas, partition, pause.Machines)
	}
}

// hibernation refuses a hibernated node group. The cluster-autoscaler would create machines for the pods of the stopped
// machines.
func (v *Result) hibernation(path *field.Path, hibernated bool, annotations map[string]string) {
	if hibernated && autoscaling.IsNodeGroup(annotations) {
		v.refuse(field.Forbidden(path, fmt.Sprintf("the cluster-autoscaler scales this object: remove the annotations %s and "+
			"%s first", v1beta1.AutoscalerMinSizeAnnotation, v1beta1.AutoscalerMaxSizeAnnotation)))
	}
}

func (v *Result) remediation(path *field.Path, r v1beta1.MachineRemediation) {
	if m := r.MaxInFlight; none(m) {
		v.warn(path.Child("maxInFlight"), "with %s, no failed or unhealthy machine is replaced", m.String())
	} else if all(m) {
		v.warn(path.Child("maxInFlight"), "with 100%%, all failed and unhealthy machines are replaced at once")
	}
}

// ValidateSet validates a MachineSet.
func ValidateSet(m *v1beta1.MachineSet, s Environment) (v Result) {
	spec := field.NewPath("spec")
	v.template(spec.Child("template"), &m.Spec.Template)
	labels := spec.Child("template", "metadata", "labels")
	v.rejectReserved(labels, m.Spec.Template.ObjectMeta.Labels, v1beta1.LabelProvider, v1beta1.LabelPlacementDomain)
	if metav1.GetControllerOf(m) != nil {
		return v
	}
	v.rejectReserved(labels, m.Spec.Template.ObjectMeta.Labels, v1beta1.LabelMachineSet, v1beta1.LabelMachineDeployment)
	v.classExists(spec.Child("template", "spec"), &m.Spec.Template.Spec, s)
	v.hibernation(spec.Child("hibernated"), m.Spec.Hibernated, m.Annotations)
	v.placement(m.Spec.Placement, m.Spec.Replicas, m.Annotations, s)
	v.versionSkew(spec.Child("template", "spec", "version"), m, m.Spec.Template.Spec.Version, s)
	v.remediation(spec.Child("remediation"), m.Spec.Remediation)
	v.warnOverlap(spec.Child("selector"), Claim{
		Kind: "MachineSet", Name: m.Name, Selector: &m.Spec.Selector, Labels: m.Spec.Template.ObjectMeta.Labels,
	}, s)
	return v
}

// ValidateMachine validates a Machine. The parameter created must be true if the request creates the Machine.
func ValidateMachine(m *v1beta1.Machine, created bool, s Environment) (v Result) {
	spec := field.NewPath("spec")
	v.spec(spec, &m.Spec)
	class := v.classExists(spec, &m.Spec, s)
	if metav1.GetControllerOf(m) == nil {
		v.versionSkew(spec.Child("version"), m, m.Spec.Version, s)
	}
	if created && validation.IsReservedNodeName(m.Name) {
		v.refuse(field.Forbidden(field.NewPath("metadata", "name"),
			"the Node of the machine could take the place of the API server or of a local server: choose another name"))
	}
	// Adoption from another cluster is checked at the time of the adoption.
	if created && m.Spec.ProviderID != "" && class != nil && class.Spec.Adoption != v1beta1.AdoptionAllow &&
		class.Annotations[v1beta1.AnnotationAdoptFromCluster] == "" {
		v.refuse(field.Forbidden(spec.Child("providerID"), "the MachineClass "+class.Name+
			" does not allow the adoption of existing instances (spec.adoption)"))
	}
	return v
}

func (v *Result) classExists(path *field.Path, spec *v1beta1.MachineSpec, s Environment) *v1beta1.MachineClass {
	if spec.ClassRef == nil || s.Class == nil {
		return nil
	}
	class, found := s.Class(spec.ClassRef.Name)
	if !found {
		v.warn(path.Child("classRef", "name"), "the MachineClass %s does not exist in this namespace; machines wait until it is created",
			spec.ClassRef.Name)
		return nil
	}
	return class
}

// versionSkew warns about a version that the target cluster does not support. Such machines are still created, but a
// MachineDeployment does not roll out the version.
func (v *Result) versionSkew(path *field.Path, object metav1.Object, version string, s Environment) {
	if _, allowed := object.GetAnnotations()[v1beta1.AnnotationAllowVersionSkew]; allowed || version == "" ||
		s.ServerVersion == nil {
		return
	}
	if violation := versionskew.Violation(version, s.ServerVersion()); violation != "" {
		v.warn(path, "%s", violation)
	}
}

// maxNamed limits the objects that a warning names, because API servers truncate long warnings.
const maxNamed = 3

// warnOverlap warns if another owner's selector matches the machines of this owner, or the reverse.
func (v *Result) warnOverlap(path *field.Path, own Claim, s Environment) {
	var with []string
	for _, other := range s.Claims {
		if own.Kind == other.Kind && own.Name == other.Name {
			continue
		}
		if matches(own.Selector, other.Labels) || matches(other.Selector, own.Labels) {
			with = append(with, other.Kind+" "+other.Name)
		}
	}
	if more := len(with) - maxNamed; more > 0 {
		with = append(with[:maxNamed], fmt.Sprintf("%d more", more))
	}
	if len(with) > 0 {
		v.warn(path, "the selector overlaps with the machines or selectors of other owners: %s. Give the machines of each owner a label of their own",
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
