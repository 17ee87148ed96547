// Package merge plans how several MachineDeployments with one class each become one MachineDeployment with a placement.
//
// The merged deployment adopts the MachineSets of the others. The classes of these sets are options of the placement,
// so the sets hand over their machines unchanged. Until the merged deployment has all sets, a label freezes it, so that
// it creates no machines for the sets that are still missing.
package merge

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/change"
	"machinist.dev/machinist/internal/fleet/autoscaling"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
	"machinist.dev/machinist/internal/fleet/placement"
)

// FreezeValue is the value of the freeze label on a merged deployment that does not have all sets yet.
const FreezeValue = "Merge"

// Values of Input.DomainFrom.
const (
	DomainFromZone       = "zone"
	DomainFromDeployment = "deployment"
)

// Input is what the plan depends on.
type Input struct {
	// Namespace and Name are those of the merged deployment.
	Namespace, Name string
	// LabelKey and LabelValue are the label by which the merged deployment selects its sets and machines.
	LabelKey, LabelValue string
	// DomainFrom defines the names of the domains: DomainFromZone or DomainFromDeployment. If it is empty, the zone is
	// the name if all classes have one.
	DomainFrom string
	// Deployments are the deployments to merge, the preferred class first.
	Deployments []*v1beta1.MachineDeployment
	// Classes are the known classes, by name.
	Classes map[string]*v1beta1.MachineClass
	Checks  []v1beta1.MachineHealthCheck
	Budgets []v1beta1.MachineDisruptionBudget
}

// Plan describes a merge.
type Plan struct {
	// Kind is always PlacementMerge.
	Kind string `json:"kind"`
	// Deployment is the merged deployment.
	Deployment *v1beta1.MachineDeployment `json:"deployment"`
	// Sources are the deployments that are merged.
	Sources []Source `json:"sources"`
	// Warnings are differences between the deployments that the merge does not keep.
	Warnings []string `json:"warnings"`
}

// Source is a deployment that is merged.
type Source struct {
	Name     string `json:"name"`
	Class    string `json:"class"`
	Domain   string `json:"domain"`
	Replicas int32  `json:"replicas"`
}

// New returns the plan, or an error if the deployments cannot be merged without a replacement of machines.
func New(in Input) (*Plan, error) {
	if len(in.Deployments) < 2 {
		return nil, fmt.Errorf("at least two deployments are needed")
	}
	names := map[string]bool{in.Name: true}
	for _, d := range in.Deployments {
		if names[d.Name] {
			return nil, fmt.Errorf("machinedeployment %q: the names of the merged deployment and of all deployments must differ", d.Name)
		}
		names[d.Name] = true
		if err := Mergeable(d); err != nil {
			return nil, err
		}
	}
	first := in.Deployments[0]
	for _, d := range in.Deployments[1:] {
		if !machinedeployment.SameRevision(withoutClass(first), withoutClass(d)) {
			return nil, fmt.Errorf("machinedeployments %q and %q differ in a field whose change replaces machines, such as version: "+
				"roll out the same value first", first.Name, d.Name)
		}
	}
	p := &Plan{Kind: "PlacementMerge", Warnings: []string{}}
	by, err := p.domains(in)
	if err != nil {
		return nil, err
	}
	if errs := placement.Validate(field.NewPath("spec", "placement"), by); len(errs) > 0 {
		return nil, errs[0]
	}
	p.Deployment = p.merged(in, by)
	p.compareSpecs(in)
	p.autoscaler(in)
	p.selectors(in)
	return p, nil
}

// Mergeable returns an error if the sets of a deployment cannot be adopted now.
func Mergeable(d *v1beta1.MachineDeployment) error {
	problem := ""
	rolling := meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionRollingOut)
	_, frozen := d.Labels[v1beta1.LabelFreeze]
	switch {
	case d.DeletionTimestamp != nil:
		problem = "it is being deleted"
	case d.Spec.Template.Spec.ClassRef == nil:
		problem = "its template has no classRef"
	case frozen:
		problem = "the label " + v1beta1.LabelFreeze + " freezes it: remove the label first"
	case d.Spec.Paused:
		problem = "it is paused: resume it first"
	case d.Status.ObservedGeneration < d.Generation:
		problem = "the manager has not processed its last change yet"
	case rolling == nil || rolling.Status != metav1.ConditionFalse || rolling.Reason == v1beta1.ReasonPartitionReached:
		problem = "its rollout is not complete: wait for machinist rollout status"
	}
	if problem != "" {
		return fmt.Errorf("machinedeployment %q cannot be merged now: %s", d.Name, problem)
	}
	return nil
}

func withoutClass(d *v1beta1.MachineDeployment) machinedeployment.Template {
	spec := d.Spec.Template.Spec.DeepCopy()
	spec.ClassRef = nil
	return machinedeployment.Template{Spec: spec}
}

// domains returns the placement. Deployments whose classes have the same domain become options of this domain.
func (p *Plan) domains(in Input) (*v1beta1.Placement, error) {
	byZone := in.DomainFrom != DomainFromDeployment
	for _, d := range in.Deployments {
		class := d.Spec.Template.Spec.ClassRef.Name
		if byZone && zoneOf(in.Classes[class]) == "" {
			if in.DomainFrom == DomainFromZone {
				return nil, fmt.Errorf("the zone of class %s is not known: use --domain-from %s", class, DomainFromDeployment)
			}
			byZone = false
		}
	}
	by := &v1beta1.Placement{}
	for _, d := range in.Deployments {
		class, name := d.Spec.Template.Spec.ClassRef.Name, d.Name
		if byZone {
			name = zoneOf(in.Classes[class])
		}
		name = labelOf(name)
		at := slices.IndexFunc(by.Domains, func(known v1beta1.PlacementDomain) bool { return known.Name == name })
		if at < 0 {
			at = len(by.Domains)
			by.Domains = append(by.Domains, v1beta1.PlacementDomain{Name: name})
		}
		by.Domains[at].Options = append(by.Domains[at].Options, v1beta1.PlacementOption{ClassName: class})
		p.Sources = append(p.Sources, Source{Name: d.Name, Class: class, Domain: name, Replicas: d.ReplicasOrDefault()})
	}
	return by, nil
}

func zoneOf(class *v1beta1.MachineClass) string {
	if class == nil {
		return ""
	}
	if stated := class.Spec.Capacity; stated != nil && stated.Zone != "" {
		return stated.Zone
	}
	if info := class.Status.NodeInfo; info != nil {
		return info.Zone
	}
	return ""
}

// labelOf converts a name to a DNS label.
func labelOf(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	return strings.Trim(name[:min(len(name), validation.DNS1123LabelMaxLength)], "-")
}

// merged returns the merged deployment. All fields except for labels, annotations and the class come from the first
// deployment.
func (p *Plan) merged(in Input, by *v1beta1.Placement) *v1beta1.MachineDeployment {
	first := in.Deployments[0]
	d := &v1beta1.MachineDeployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "MachineDeployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: in.Namespace, Name: in.Name}, Spec: *first.Spec.DeepCopy(),
	}
	total := int32(0)
	template := &d.Spec.Template
	for _, other := range in.Deployments {
		total += other.ReplicasOrDefault()
		keepCommon(template.ObjectMeta.Labels, other.Spec.Template.ObjectMeta.Labels)
		keepCommon(template.ObjectMeta.Annotations, other.Spec.Template.ObjectMeta.Annotations)
		keepCommon(template.Spec.Node.Labels, other.Spec.Template.Spec.Node.Labels)
		keepCommon(template.Spec.Node.Annotations, other.Spec.Template.Spec.Node.Annotations)
	}
	if template.ObjectMeta.Labels == nil {
		template.ObjectMeta.Labels = map[string]string{}
	}
	template.ObjectMeta.Labels[in.LabelKey] = in.LabelValue
	template.Spec.ClassRef = nil
	d.Spec.Replicas, d.Spec.Placement, d.Spec.RolloutAfter = &total, by, nil
	d.Spec.Selector = metav1.LabelSelector{MatchLabels: map[string]string{in.LabelKey: in.LabelValue}}
	return d
}

// keepCommon deletes the keys that another map does not have with the same value.
func keepCommon(common, other map[string]string) {
	maps.DeleteFunc(common, func(key, value string) bool { is, found := other[key]; return !found || is != value })
}

// compareSpecs adds a warning for each field of another deployment that the merged deployment has differently.
func (p *Plan) compareSpecs(in Input) {
	for _, d := range in.Deployments {
		other := d.Spec.DeepCopy()
		other.Replicas, other.Placement, other.Selector = p.Deployment.Spec.Replicas, p.Deployment.Spec.Placement, p.Deployment.Spec.Selector
		other.Template.Spec.ClassRef, other.RolloutAfter = nil, nil
		other.Template.ObjectMeta.Labels = maps.Clone(other.Template.ObjectMeta.Labels)
		if other.Template.ObjectMeta.Labels == nil {
			other.Template.ObjectMeta.Labels = map[string]string{}
		}
		other.Template.ObjectMeta.Labels[in.LabelKey] = in.LabelValue
		if equality.Semantic.DeepEqual(*other, p.Deployment.Spec) {
			continue
		}
		changes, err := change.Diff("spec", *other, p.Deployment.Spec)
		if err != nil {
			continue // Both are valid objects, so they can be encoded.
		}
		for _, c := range changes {
			p.Warnings = append(p.Warnings, fmt.Sprintf("The merge changes a field of machinedeployment/%s: %s", d.Name, c))
		}
	}
}

// autoscaler adds up the bounds of node groups. If only some deployments are node groups, the merged deployment is
// none.
func (p *Plan) autoscaler(in Input) {
	groups, smallest, largest := 0, 0, 0
	for _, d := range in.Deployments {
		if !autoscaling.IsNodeGroup(d.Annotations) {
			continue
		}
		groups++
		low, high, err := autoscaling.Bounds(d.Annotations)
		if err != nil {
			p.Warnings = append(p.Warnings, fmt.Sprintf("machinedeployment/%s: the bounds for the autoscaler are ignored: %v", d.Name, err))
		}
		smallest, largest = smallest+low, largest+high
	}
	switch groups {
	case 0:
	case len(in.Deployments):
		p.Deployment.Annotations = map[string]string{v1beta1.AutoscalerMinSizeAnnotation: fmt.Sprint(smallest),
			v1beta1.AutoscalerMaxSizeAnnotation: fmt.Sprint(largest)}
	default:
		p.Warnings = append(p.Warnings, "Only some of the deployments have bounds for an autoscaler, so the merged deployment has none.")
	}
}

// selectors warns about health checks and budgets that select machines by labels that the machines lose.
func (p *Plan) selectors(in Input) {
	after := labels.Set(p.Deployment.Spec.Template.ObjectMeta.Labels)
	lost := func(what string, selector labels.Selector) {
		if selector.Matches(after) {
			return
		}
		for _, d := range in.Deployments {
			before := labels.Merge(d.Spec.Template.ObjectMeta.Labels, labels.Set{v1beta1.LabelMachineDeployment: d.Name})
			if selector.Matches(before) {
				p.Warnings = append(p.Warnings, fmt.Sprintf("%s does not select the machines of machinedeployment/%s any more after the merge: "+
					"change its selector", what, d.Name))
			}
		}
	}
	for i := range in.Checks {
		if selector, err := metav1.LabelSelectorAsSelector(&in.Checks[i].Spec.Selector); err == nil {
			lost("machinehealthcheck/"+in.Checks[i].Name, selector)
		}
	}
	for i := range in.Budgets {
		lost("machinedisruptionbudget/"+in.Budgets[i].Name, disruption.Selector(&in.Budgets[i]))
	}
	slices.SortStableFunc(p.Warnings, cmp.Compare[string])
}
