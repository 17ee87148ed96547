package migration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
)

// plan contains the new objects for the fleet. Plans are not stored: each pass computes its plan again.
type plan struct {
	classes     []*class
	deployments []*deployment
	sets        []*set // sets without a deployment
	machines    []*machine
	checks      []*v1beta1.MachineHealthCheck
	// instances are the instances without an old system that the migration adopts.
	instances []*provider.FoundInstance
	findings  findings
	hash      string
	// oldNames maps new objects to the old objects that they come from, such as Machine/worker-1.
	oldNames map[client.Object]string
	// oldMachines is the number of machines of the old system that the migration converts, with or without an
	// instance.
	oldMachines int
}

type deployment struct {
	object *v1beta1.MachineDeployment
	sets   []*set
}

// set describes a MachineSet that the migration creates. Several old sets may become the same new set.
type set struct {
	object *v1beta1.MachineSet
	class  *class
	// replicas is the size of the set after the migration. During the migration, spec.replicas of the set is at least
	// the number of copied Machines.
	replicas int32
	machines int32
}

type machine struct {
	candidate
	instance locatedInstance
}

type planner struct {
	migration *v1beta1.Migration
	system    source.System
	flags     source.Flags
	cloud     Cloud
	secrets   *secretReader
	redactor  *redactor
	own       *ownObjects
	nodes     nodes
	// resolve returns a class with its credentials.
	resolve func(context.Context, *v1beta1.MachineClass) (provider.Class, error)

	plan *plan

	classes map[string]*class           // by classKey
	sets    map[types.UID]*set          // new sets, by the UID of the old set
	setOf   map[types.UID]*source.Class // old descriptions, by the UID of the old set
	byOwner map[types.UID]*deployment   // new deployments, by the UID of the old deployment
	seen    map[string]bool             // provider IDs of all instances in the cloud

	usedClasses, excludedClasses map[string]bool // classes that objects name, by name
	stayingMachines              []candidate     // machines that stay with the old system
}

func (p *planner) blockf(code, object, path, format string, args ...any) {
	p.plan.findings.addf(provider.FindingBlocker, code, object, path, format, args...)
}

// oldObjects calls visit for each old object in the order of system.Kinds.
type oldObjects func(visit func(source.Role, *unstructured.Unstructured)) error

// isEmpty reports whether the plan converts no fleet, although nothing blocks the conversion.
func (p *plan) isEmpty() bool {
	isBlocker := func(f objectFinding) bool { return f.Level == provider.FindingBlocker }
	return len(p.deployments)+len(p.sets)+p.oldMachines == 0 && !slices.ContainsFunc(p.findings, isBlocker)
}

// build computes the plan. The method keeps the results of the conversion, but not the old objects.
func (p *planner) build(ctx context.Context, old oldObjects) (*plan, error) {
	p.plan = &plan{oldNames: map[client.Object]string{}}
	p.classes, p.sets = map[string]*class{}, map[types.UID]*set{}
	p.setOf, p.byOwner = map[types.UID]*source.Class{}, map[types.UID]*deployment{}
	p.seen, p.flags = map[string]bool{}, source.Flags{}
	for name, value := range p.migration.Spec.ProcessFlags {
		p.flags[strings.TrimLeft(name, "-")] = string(value)
	}
	p.usedClasses, p.excludedClasses, p.stayingMachines = map[string]bool{}, map[string]bool{}, nil
	p.checkFlags()
	if p.migration.Spec.Instances != nil {
		if err := p.planInstances(ctx); err != nil {
			return nil, err
		}
		p.finish()
		return p.plan, nil
	}
	excluded := newExclusion(p.migration)
	var machines []candidate
	err := old(func(role source.Role, object *unstructured.Unstructured) {
		if excluded.covers(object) {
			p.exclude(role, object)
			return
		}
		c := conversion{old: identityOf(object), displayName: nameOf(object),
			Converted: p.system.Convert(role, object, p.flags)}
		p.plan.findings.add(c.displayName, p.openFindings(c)...)
		if role == source.RoleMachine && c.Object == nil && !c.HasBlocker() {
			p.keepInstances(object, c.Machine)
		}
		c.Findings = nil
		switch role {
		case source.RoleClass:
			if c.Class != nil {
				p.class(c.Class, c.displayName)
			}
		case source.RoleDeployment:
			p.deployment(c)
		case source.RoleSet:
			p.set(c)
		case source.RoleHealthCheck:
			p.check(c.Object, c)
		case source.RoleMachine:
			if m, ok := p.candidate(c); ok {
				machines = append(machines, m)
			}
		}
	})
	if err != nil {
		return nil, err
	}
	p.finishExclusion(excluded)
	if pausable, ok := p.system.(source.Pausable); ok {
		p.checkStopped(pausable.PausedKind().Kind)
	}
	if err := p.locate(ctx, machines); err != nil {
		return nil, err
	}
	facts := p.matchInstances(machines)
	for _, c := range p.plan.classes {
		if err := p.convert(ctx, c, facts[c]); err != nil {
			return nil, err
		}
	}
	for i, o := range p.migration.Spec.Overrides {
		if !slices.ContainsFunc(p.plan.classes, func(c *class) bool { return c.name == o.Class }) {
			p.blockf(CodeUnusedOverride, "Migration/"+p.migration.Name, fmt.Sprintf("spec.overrides[%d].class", i),
				"The plan has no class %s.", o.Class)
		}
	}
	p.finish()
	return p.plan, nil
}

// checkFlags reports flags without an effect, which are usually misspelled.
func (p *planner) checkFlags() {
	known := p.system.Flags()
	all := "no flags"
	if len(known) > 0 {
		all = "only these flags: " + strings.Join(slices.Sorted(slices.Values(known)), ", ")
	}
	for _, name := range slices.Sorted(maps.Keys(p.flags)) {
		if !slices.Contains(known, name) {
			p.blockf(CodeUnusedFlag, "Migration/"+p.migration.Name, "spec.processFlags", "The flag %.64q has no effect. A "+
				"migration from %s reads %s. Correct or remove --flag.", name, p.system.Group(), all)
		}
	}
}

// checkStopped reports old controllers that the fence would stop although their API needs them.
func (p *planner) checkStopped(pausedKind string) {
	leases := leasesOf(p.migration, p.system)
	for i, w := range p.migration.Spec.Fence.Workloads {
		if slices.ContainsFunc(leases, func(l v1beta1.MigrationLease) bool { return l.Namespace == w.Namespace }) {
			p.blockf(source.CodeNotSupported, "Migration/"+p.migration.Name, fmt.Sprintf("spec.fence.workloads[%d]", i),
				"The namespace of the %s %s/%s has controllers of %s, which contain the webhooks of its API. If they were "+
					"stopped, the migrator could not pause and resume the %s. Remove the workload: the Leases stop the "+
					"controllers.", w.Kind, w.Namespace, w.Name, p.system.Group(), pausedKind)
		}
	}
}

type conversion struct {
	old         metav1.Object
	displayName string
	source.Converted
}

// identityOf returns the metadata that the plan keeps. The complete objects of a large fleet need too much memory.
func identityOf(object *unstructured.Unstructured) metav1.Object {
	return &metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
		OwnerReferences: object.GetOwnerReferences()}
}

func nameOf(object *unstructured.Unstructured) string {
	return object.GetKind() + "/" + object.GetName()
}

// mark records on a new object which Migration creates it, and from which old object.
func (p *planner) mark(object client.Object, from string) {
	setLabel(object, v1beta1.LabelMigration, p.migration.Name)
	annotate(object, v1beta1.AnnotationMigratedFrom, p.system.Group()+"/"+from)
	p.plan.oldNames[object] = from
}

// origin returns group, namespace, name and UID of an old object as one text.
func origin(group string, old metav1.Object) string {
	return group + "/" + old.GetNamespace() + "/" + old.GetName() + "/" + string(old.GetUID())
}

// markFrom calls mark for an object that comes from exactly one old object.
func (p *planner) markFrom(object client.Object, c conversion) {
	p.mark(object, c.displayName)
	annotate(object, v1beta1.AnnotationMigratedFrom, origin(p.system.Group(), c.old))
}

func annotate(object client.Object, key, value string) {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	object.SetAnnotations(annotations)
}

// identify returns the key in p.classes and the name of a class. If another class has its name, the name gets a hash of
// the content. A name can be ambiguous, because it can consist of the names of several old objects.
func (p *planner) identify(old *source.Class, from string) (key, name string) {
	key, name = classKey(old), className(old, from)
	if c, found := p.classes[key]; found && c.old.ContentName("") != old.ContentName("") {
		name = old.ContentName(old.Name)
		key = name
	} else if found {
		name = c.name
	}
	return key, name
}

// class returns the entry of p.plan.classes for a description, and adds a missing entry. Equal descriptions share an
// entry.
func (p *planner) class(old *source.Class, from string) *class {
	key, name := p.identify(old, from)
	if c, found := p.classes[key]; found {
		return c
	}
	c := &class{name: name, old: old, firstObject: from}
	p.classes[key] = c
	p.plan.classes = append(p.plan.classes, c)
	return c
}

// classOf returns the class that an old object describes or names, or nil.
func (p *planner) classOf(c conversion) *class {
	switch {
	case c.Class != nil:
		return p.class(c.Class, c.displayName)
	case c.ClassName == "":
		return nil // The conversion has reported the problem.
	}
	p.usedClasses[c.ClassName] = true
	named, found := p.classes[c.ClassName]
	if !found {
		p.blockf(CodeClassMissing, c.displayName, "", "The class %s of this object does not exist.", c.ClassName)
	}
	return named
}

func (p *planner) deployment(c conversion) {
	d, ok := c.Object.(*v1beta1.MachineDeployment)
	class := p.classOf(c)
	if !ok || class == nil {
		return
	}
	d.Namespace = p.migration.Namespace
	d.Spec.Template.Spec.ClassRef = &v1beta1.LocalRef{Name: class.name}
	p.markFrom(d, c)
	freeze(d)
	made := &deployment{object: d}
	p.plan.deployments = append(p.plan.deployments, made)
	p.byOwner[c.old.GetUID()] = made
	p.postpone(d, postponed{Annotations: c.LaterAnnotations, Replicas: d.Spec.Replicas})
	if c.HealthCheck != nil {
		p.check(c.HealthCheck, c)
	}
}

func freeze(object client.Object) { setLabel(object, v1beta1.LabelFreeze, v1beta1.FreezeMigration) }

func (p *planner) set(c conversion) {
	s, ok := c.Object.(*v1beta1.MachineSet)
	class := p.classOf(c)
	if !ok || class == nil {
		return
	}
	p.setOf[c.old.GetUID()] = class.old
	replicas := s.ReplicasOrDefault()
	s.Spec.Template.Spec.ClassRef = &v1beta1.LocalRef{Name: class.name}
	if controller := metav1.GetControllerOf(c.old); controller != nil {
		owner, found := p.byOwner[controller.UID]
		if !found {
			p.blockf(CodeOwnerMissing, c.displayName, "metadata.ownerReferences", "The owner %s %s of this set does not "+
				"exist, or could not be converted. Delete the set, or remove the reference.", controller.Kind, controller.Name)
			return
		}
		p.sets[c.old.GetUID()] = p.revision(owner, class, s, c, replicas)
		return
	}
	s.Namespace = p.migration.Namespace
	p.markFrom(s, c)
	freeze(s)
	made := &set{object: s, class: class, replicas: replicas}
	p.plan.sets = append(p.plan.sets, made)
	p.sets[c.old.GetUID()] = made
	p.postpone(s, postponed{Annotations: c.LaterAnnotations, Replicas: s.Spec.Replicas})
	if c.HealthCheck != nil {
		p.check(c.HealthCheck, c)
	}
}

// revision returns the new set for an old set of deployment d. The new set equals the set that the MachineDeployment
// controller would create.
func (p *planner) revision(d *deployment, class *class, old *v1beta1.MachineSet, c conversion, replicas int32) *set {
	if !sameNode(&old.Spec.Template.Spec.Node, &d.object.Spec.Template.Spec.Node) && replicas > 0 {
		p.plan.findings.addf(provider.FindingNote, CodeTemplateApplied, c.displayName, "spec.template",
			"Labels, annotations and taints of the deployment's template differ from those of this set. They are applied to "+
				"its machines when the instances are adopted.")
	}
	made := revisionSet(d.object, old)
	for _, s := range d.sets {
		if s.object.Name == made.Name {
			s.replicas += replicas
			if revisionOf(made) > revisionOf(s.object) {
				s.object.Annotations = made.Annotations
				p.markFrom(s.object, c)
			}
			return s
		}
	}
	p.markFrom(made, c)
	freeze(made)
	p.postpone(made, postponed{Annotations: c.LaterAnnotations})
	s := &set{object: made, class: class, replicas: replicas}
	d.sets = append(d.sets, s)
	return s
}

// check adds a health check to the plan, with remediation turned off. The phase Cleaning turns the remediation on.
func (p *planner) check(object client.Object, c conversion) {
	check, ok := object.(*v1beta1.MachineHealthCheck)
	if !ok {
		return
	}
	check.Namespace = p.migration.Namespace
	p.markFrom(check, c)
	p.postpone(check, postponed{Annotations: c.LaterAnnotations, Remediation: check.Spec.Remediation.TypeOrDefault()})
	check.Spec.Remediation.Type = v1beta1.RemediationNone
	p.plan.checks = append(p.plan.checks, check)
}

// finish sets the replicas of the sets, checks that the new names are free, and computes the hash of the plan.
func (p *planner) finish() {
	for _, s := range p.plan.sets {
		p.setReplicas(s)
	}
	for _, d := range p.plan.deployments {
		sum, current := int32(0), false
		for _, s := range d.sets {
			p.setReplicas(s)
			sum += s.object.ReplicasOrDefault()
			current = current || sameRevision(s.object, d.object)
		}
		if !current && d.object.ReplicasOrDefault() > 0 {
			p.plan.findings.addf(provider.FindingLoss, CodeRolloutPending, p.plan.oldNames[d.object], "spec.template",
				"No set has the template of the deployment. Its machines are replaced by a rollout when the migration is "+
					"completed.")
		}
		if sum > d.object.ReplicasOrDefault() {
			d.object.Spec.Replicas = &sum
		}
	}
	p.checkNames()
	p.suggestMerges()
	var classes []string
	for _, c := range p.plan.classes {
		line := "class " + c.name
		if c.object != nil {
			line += " " + string(c.publishedClass.Spec.ProviderSpec.Raw)
		}
		classes = append(classes, line)
	}
	for _, entry := range p.migration.Spec.Exclude {
		classes = append(classes, "exclude "+entry)
	}
	if p.migration.Spec.Instances != nil { // The user agrees to exactly these instances.
		for _, m := range p.plan.machines {
			classes = append(classes, "instance "+m.instance.ProviderID)
		}
		for _, d := range p.plan.deployments {
			classes = append(classes, "deployment "+d.object.Name+" "+d.object.Spec.Template.Spec.Version)
		}
	}
	p.plan.hash = p.plan.findings.hash(classes)
}

// setReplicas gives a set at least as many replicas as copied machines, because even a frozen set deletes surplus
// machines.
func (p *planner) setReplicas(s *set) {
	p.postpone(s.object, postponed{Annotations: postponedFor(s.object).Annotations, Replicas: &s.replicas})
	replicas := max(s.replicas, s.machines)
	s.object.Spec.Replicas = &replicas
}

func (p *planner) checkNames() {
	taken := func(object client.Object) {
		if other := p.own.find(object); other != nil && !p.own.hasCreated(other) {
			p.blockf(CodeNameTaken, p.plan.oldNames[object], "", "The migration would create the %s %s for this object, but "+
				"another one with this name exists in namespace %s. %s", kindOf(object), object.GetName(),
				object.GetNamespace(), remedyForName(p.migration, other))
		}
	}
	for _, c := range p.plan.classes {
		if c.object != nil && !c.existing {
			taken(c.object)
		}
	}
	for _, d := range p.plan.deployments {
		taken(d.object)
		for _, s := range d.sets {
			taken(s.object)
		}
	}
	for _, s := range p.plan.sets {
		taken(s.object)
	}
	for _, c := range p.plan.checks {
		taken(c)
	}
}

// remedyForName returns advice about an object that has the name of an object of the plan.
func remedyForName(m *v1beta1.Migration, other client.Object) string {
	if by := other.GetLabels()[v1beta1.LabelMigration]; by != "" && by != m.Name {
		return fmt.Sprintf("Migration %s created it: complete or abort that Migration.", by)
	}
	return "Delete or rename it."
}

func (p *plan) manifests() []client.Object {
	return p.manifestsWith(func(c *class) *v1beta1.MachineClass { return c.object })
}

// publishedObjects returns the manifests without values of Secrets.
func (p *plan) publishedObjects() []client.Object {
	return p.manifestsWith(func(c *class) *v1beta1.MachineClass { return c.publishedClass })
}

func (p *plan) manifestsWith(object func(*class) *v1beta1.MachineClass) []client.Object {
	var all []client.Object
	for _, c := range p.classes {
		if c.object != nil && !c.existing {
			all = append(all, object(c))
		}
	}
	for _, d := range p.deployments {
		all = append(all, d.object)
	}
	for _, s := range p.sets {
		all = append(all, s.object)
	}
	for _, c := range p.checks {
		all = append(all, c)
	}
	return all
}
