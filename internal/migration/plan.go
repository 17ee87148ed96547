package migration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/migration/source"
	"machinist.dev/machinist/pkg/provider"
)

// plan is what becomes of a fleet: computed anew in each pass that needs it.
type plan struct {
	classes     []*class
	deployments []*deployment
	sets        []*set // those that no deployment owns
	machines    []*machine
	checks      []*v1beta1.MachineHealthCheck
	findings    findings
	hash        string
	// old is the number of old machines in scope, with and without an instance.
	old int
}

// deployment is a MachineDeployment of ours and its sets.
type deployment struct {
	object *v1beta1.MachineDeployment
	sets   []*set
}

// set is a MachineSet of ours. Several old ones may become one.
type set struct {
	object *v1beta1.MachineSet
	class  *class
	// replicas is what it gets when the migration is completed; until then it keeps all that are copied.
	replicas int32
	machines int32
}

// machine is an old machine with an instance.
type machine struct {
	candidate
	instance located
	node     *corev1.Node // nil where there is none
}

// planner makes a plan.
type planner struct {
	migration *v1beta1.Migration
	system    source.System
	flags     source.Flags
	cloud     Cloud
	secrets   *secretReader
	ours      *ours
	nodes     nodes

	plan *plan

	classes map[string]*class            // by name
	sets    map[types.UID]*set           // by the UID of the old set
	setOf   map[types.UID]*source.Class  // the old description, by the UID of the old set
	byOwner map[types.UID]*ownerRevision // old deployments
	seen    map[string]bool              // the provider IDs of all instances that the cloud shows
}

// ownerRevision is an old deployment with what its sets need.
type ownerRevision struct {
	deployment *deployment
	class      *class
	labels     map[string]string // those of the template, to see what reaches the machines of older sets
}

func (p *planner) blockf(code, object, path, format string, args ...any) {
	p.plan.findings.addf(provider.FindingBlocker, code, object, path, format, args...)
}

// oldObjects calls visit for all old objects, kind by kind in the order of the system's Kinds.
type oldObjects func(visit func(source.Role, *unstructured.Unstructured)) error

// make reads the old objects into a plan. Of each it keeps what it was converted to.
func (p *planner) make(ctx context.Context, old oldObjects) (*plan, error) {
	p.plan = &plan{}
	p.classes, p.sets = map[string]*class{}, map[types.UID]*set{}
	p.setOf, p.byOwner = map[types.UID]*source.Class{}, map[types.UID]*ownerRevision{}
	p.seen = map[string]bool{}
	var machines []candidate
	err := old(func(role source.Role, object *unstructured.Unstructured) {
		c := conversion{old: identified(object), as: nameOf(object), Converted: p.system.Convert(role, object, p.flags)}
		p.plan.findings.add(c.as, c.Findings...)
		c.Findings = nil
		switch role {
		case source.RoleClass:
			if c.Class != nil {
				p.class(c.Class, c.as)
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
	if err := p.locate(ctx, machines); err != nil {
		return nil, err
	}
	facts := p.match(machines)
	for _, c := range p.plan.classes {
		if err := p.convert(ctx, c, facts[c]); err != nil {
			return nil, err
		}
	}
	for i, o := range p.migration.Spec.Overrides {
		if p.classes[o.Class] == nil {
			p.blockf(CodeUnusedOverride, "Migration/"+p.migration.Name, fmt.Sprintf("spec.overrides[%d].class", i),
				"There is no class %s in the plan.", o.Class)
		}
	}
	p.finish()
	return p.plan, nil
}

// conversion is an old object and what it is in our terms.
type conversion struct {
	old metav1.Object // see identified
	as  string
	source.Converted
}

// identified is what the plan keeps of an old object's metadata: a fleet is large, and unstructured objects more so.
func identified(object *unstructured.Unstructured) metav1.Object {
	return &metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName(), UID: object.GetUID(),
		OwnerReferences: object.GetOwnerReferences()}
}

func nameOf(object *unstructured.Unstructured) string {
	return object.GetKind() + "/" + object.GetName()
}

// mark says on an object of ours which Migration made it, and from which old object.
func (p *planner) mark(object client.Object, from string) {
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1beta1.LabelMigration] = p.migration.Name
	object.SetLabels(labels)
	annotate(object, v1beta1.AnnotationMigratedFrom, p.system.Group()+"/"+from)
}

// origin names an old object by group, namespace, name and UID.
func origin(group string, old metav1.Object) string {
	return group + "/" + old.GetNamespace() + "/" + old.GetName() + "/" + string(old.GetUID())
}

// markFrom is mark for what is made of one old object.
func (p *planner) markFrom(object client.Object, old metav1.Object) {
	p.mark(object, "")
	annotate(object, v1beta1.AnnotationMigratedFrom, origin(p.system.Group(), old))
}

func annotate(object client.Object, key, value string) {
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	object.SetAnnotations(annotations)
}

// class returns the class for a description, the same for the same.
func (p *planner) class(old *source.Class, from string) *class {
	name := className(old)
	if c, found := p.classes[name]; found {
		return c
	}
	c := &class{name: name, old: old, from: from}
	p.classes[name] = c
	p.plan.classes = append(p.plan.classes, c)
	return c
}

// classOf returns the class of an object: described in it, or named.
func (p *planner) classOf(c conversion) *class {
	switch {
	case c.Class != nil:
		return p.class(c.Class, c.as)
	case c.ClassName == "":
		return nil // Reported by the conversion.
	}
	named, found := p.classes[c.ClassName]
	if !found {
		p.blockf(CodeClassMissing, c.as, "", "Its class %s does not exist.", c.ClassName)
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
	p.markFrom(d, c.old)
	freeze(d)
	made := &deployment{object: d}
	p.plan.deployments = append(p.plan.deployments, made)
	p.byOwner[c.old.GetUID()] = &ownerRevision{deployment: made, class: class,
		labels: d.Spec.Template.Spec.Node.Labels}
	p.holdBack(d, after{Annotations: c.Later, Replicas: d.Spec.Replicas})
	if c.Check != nil {
		p.check(c.Check, c)
	}
}

func freeze(object client.Object) {
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1beta1.LabelFreeze] = v1beta1.FreezeMigration
	object.SetLabels(labels)
}

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
			p.blockf(CodeOwnerMissing, c.as, "metadata.ownerReferences", "Its owner %s %s does not exist, or could not be "+
				"converted. Delete the set, or remove the reference.", controller.Kind, controller.Name)
			return
		}
		p.sets[c.old.GetUID()] = p.revision(owner, class, s, c, replicas)
		return
	}
	s.Namespace = p.migration.Namespace
	p.markFrom(s, c.old)
	freeze(s)
	made := &set{object: s, class: class, replicas: replicas}
	p.plan.sets = append(p.plan.sets, made)
	p.sets[c.old.GetUID()] = made
	p.holdBack(s, after{Annotations: c.Later, Replicas: s.Spec.Replicas})
	if c.Check != nil {
		p.check(c.Check, c)
	}
}

// revision returns the set of a deployment for an old set: the one that Machinist's own controller would have made.
func (p *planner) revision(owner *ownerRevision, class *class, old *v1beta1.MachineSet, c conversion,
	replicas int32) *set {
	d := owner.deployment
	if !sameNode(&old.Spec.Template.Spec.Node, &d.object.Spec.Template.Spec.Node) && replicas > 0 {
		p.plan.findings.addf(provider.FindingNote, CodeTemplateApplied, c.as, "spec.template",
			"Labels, annotations and taints of the deployment's template differ from the set's; they reach its machines when "+
				"the instances are adopted.")
	}
	made := revisionSet(d.object, old)
	for _, s := range d.sets {
		if s.object.Name == made.Name {
			s.replicas += replicas
			if revisionOf(made) > revisionOf(s.object) {
				s.object.Annotations = made.Annotations
				p.markFrom(s.object, c.old)
			}
			return s
		}
	}
	p.markFrom(made, c.old)
	freeze(made)
	p.holdBack(made, after{Annotations: c.Later})
	s := &set{object: made, class: class, replicas: replicas}
	d.sets = append(d.sets, s)
	return s
}

// check adds a health check that counts only: what it does later is held back until the old system is gone.
func (p *planner) check(object client.Object, c conversion) {
	check, ok := object.(*v1beta1.MachineHealthCheck)
	if !ok {
		return
	}
	check.Namespace = p.migration.Namespace
	p.markFrom(check, c.old)
	p.holdBack(check, after{Annotations: c.Later, Remediation: check.Spec.Remediation.TypeOrDefault()})
	check.Spec.Remediation.Type = v1beta1.RemediationNone
	p.plan.checks = append(p.plan.checks, check)
}

// candidate is an old machine of which it is not known yet whether it has an instance.
type candidate struct {
	conversion
	object *v1beta1.Machine // as converted, alone
	class  *class
	set    *set // nil where none owns it
	// instances are those that the cloud shows of it.
	instances []located
}

// candidate looks for the set and the class of an old machine. It is not ok if nothing can be made of it.
func (p *planner) candidate(c conversion) (m candidate, ok bool) {
	object, ok := c.Object.(*v1beta1.Machine)
	if !ok {
		return m, false // It stays behind, or is blocked; the conversion said so.
	}
	p.plan.old++
	m = candidate{conversion: c, object: object}
	if owner := c.Machine.Owner; owner != "" {
		if m.set = p.sets[owner]; m.set == nil {
			p.blockf(CodeOwnerMissing, c.as, "metadata.ownerReferences", "Its set does not exist, or could not be converted. "+
				"Delete the machine, or remove the reference.")
			return m, false
		}
	}
	if m.set != nil && c.Class != nil && p.setOf[c.Machine.Owner].SameInstances(c.Class) {
		m.class = m.set.class
	} else {
		m.class = p.classOf(c)
	}
	m.Class = nil
	return m, m.class != nil
}

// locate asks the cloud for the instances of each class, and keeps those of its machines. Of the others, which may be
// as many for each class, it keeps the provider IDs.
func (p *planner) locate(ctx context.Context, machines []candidate) error {
	of := map[*class][]*candidate{}
	for i := range machines {
		of[machines[i].class] = append(of[machines[i].class], &machines[i])
	}
	for _, c := range p.plan.classes {
		all, err := p.describe(ctx, c)
		if err != nil {
			return err
		}
		index := indexOf(all)
		for _, m := range of[c] {
			m.instances = index.of(m)
		}
		for i := range all {
			p.seen[all[i].Instance.ProviderID] = true
		}
	}
	return nil
}

// match finds the instance and the Node of each machine, and returns for each class the facts of one of its instances.
func (p *planner) match(machines []candidate) map[*class][]byte {
	facts := map[*class][]byte{}
	taken := map[string]string{} // provider ID → machine
	for _, m := range machines {
		if len(m.instances) > 1 {
			p.blockf(CodeSeveralInstances, m.as, "", "The cloud shows %d instances of it: %s. Remove those that are not its own.",
				len(m.instances), idsOf(m.instances))
			continue
		}
		if len(m.instances) == 0 {
			p.without(m)
			continue
		}
		in := m.instances[0]
		if first, claimed := taken[in.ProviderID]; claimed {
			p.blockf(CodeInstanceClaimed, m.as, "", "%s has the instance %s as well. Delete the one that is not real.", first,
				in.ProviderID)
			continue
		}
		taken[in.ProviderID] = m.as
		if facts[m.class] == nil {
			facts[m.class] = in.facts
		}
		p.machine(m, in)
	}
	p.unnamed(taken)
	return facts
}

// without reports a machine that has no instance.
func (p *planner) without(m candidate) {
	if !m.class.searched {
		return // Nobody knows; that the class could not be read was reported.
	}
	if node := p.nodes.named(m.Machine.NodeName); node != nil && m.Machine.NodeName != "" {
		p.blockf(CodeInstanceNotFound, m.as, "", "Its Node %s exists, and the cloud shows no instance of it with the account "+
			"of class %s. Correct the credentials, or delete the Node if the instance is gone.", node.Name, m.class.name)
		return
	}
	if m.Machine.Deleting {
		p.plan.findings.addf(provider.FindingNote, CodeNoInstance, m.as, "", "It is being deleted and has no instance.")
		return
	}
	p.plan.findings.addf(provider.FindingNote, CodeNoInstance, m.as, "", "It has no instance. Its set makes another machine "+
		"when the migration is completed.")
}

// unnamed reports instances of the old system that no machine has.
func (p *planner) unnamed(taken map[string]string) {
	for _, id := range slices.Sorted(maps.Keys(p.seen)) {
		if taken[id] == "" {
			p.plan.findings.addf(provider.FindingNote, CodeUnnamedInstance, "Instance/"+id, "",
				"No old machine in scope has it; it is left alone.")
		}
	}
}

// machine plans the copy of a machine.
func (p *planner) machine(m candidate, in located) {
	switch {
	case in.state == provider.StateTerminating:
		p.blockf(CodeInFlight, m.as, "", "Its instance %s is being deleted. Wait until it is gone.", in.ProviderID)
		return
	case m.Machine.Updating:
		p.blockf(CodeInFlight, m.as, "", "The old system is changing it in place. Wait until that is done.")
		return
	}
	node, problem := p.nodes.of(in.ProviderID, m.Machine.NodeName)
	if problem != "" {
		p.blockf(CodeNodeMismatch, m.as, "", "%s", problem)
		return
	}
	if other := p.ours.byProviderID[in.ProviderID]; other != nil && oldUID(other) != m.old.GetUID() {
		p.blockf(CodeInstanceClaimed, m.as, "", "Machine %s has the instance %s already. Delete the old "+
			"object that is not real, or the Machine; of two Migrations with the same instance abort one.",
			client.ObjectKeyFromObject(other), in.ProviderID)
	}
	if other := p.ours.machines[m.object.Name]; other != nil && oldUID(other) != m.old.GetUID() {
		m.object.Name = nameBeside(m.object.Name, m.old.GetUID())
	}
	if m.set != nil {
		m.set.machines++
	}
	in.facts, m.instances = nil, nil // They were for the class.
	p.plan.machines = append(p.plan.machines, &machine{candidate: m, instance: in, node: node})
}

// finish counts the replicas, looks for names that are taken, and names the plan.
func (p *planner) finish() {
	for _, s := range p.plan.sets {
		p.size(s)
	}
	for _, d := range p.plan.deployments {
		sum, current := int32(0), false
		for _, s := range d.sets {
			p.size(s)
			sum += s.object.ReplicasOrDefault()
			current = current || sameRevision(s.object, d.object)
		}
		if !current && d.object.ReplicasOrDefault() > 0 {
			p.plan.findings.addf(provider.FindingLoss, CodeRolloutPending, "MachineDeployment/"+d.object.Name, "spec.template",
				"No set has the template of the deployment: its machines are replaced by rollout when the migration is completed.")
		}
		if sum > d.object.ReplicasOrDefault() {
			d.object.Spec.Replicas = &sum
		}
	}
	p.names()
	var classes []string
	for _, c := range p.plan.classes {
		line := "class " + c.name
		if c.object != nil {
			line += " " + string(c.object.Spec.ProviderSpec.Raw)
		}
		classes = append(classes, line)
	}
	p.plan.hash = p.plan.findings.hash(classes)
}

// size gives a set as many replicas as keep all that are copied: a set that is frozen still deletes a surplus.
func (p *planner) size(s *set) {
	p.holdBack(s.object, after{Annotations: afterOf(s.object).Annotations, Replicas: &s.replicas})
	replicas := max(s.replicas, s.machines)
	s.object.Spec.Replicas = &replicas
}

// names looks for objects of others with the names of ours.
func (p *planner) names() {
	taken := func(object client.Object) {
		if other := p.ours.find(object); other != nil && !p.ours.made(other) {
			p.blockf(CodeNameTaken, kindOf(object)+"/"+object.GetName(), "", "An object of that name exists in namespace %s. "+
				"Delete or rename it.", object.GetNamespace())
		}
	}
	for _, c := range p.plan.classes {
		if c.object != nil {
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

// manifests are the objects that the plan makes, without Machines and Secrets.
func (p *plan) manifests() []client.Object {
	var all []client.Object
	for _, c := range p.classes {
		if c.object != nil {
			all = append(all, c.object)
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

// located is what the plan keeps of an instance.
type located struct {
	ProviderID string
	Collected  bool
	state      provider.InstanceState
	facts      []byte
}

// locatedIndex finds the instances of one class by what an old machine is known by.
type locatedIndex struct {
	byUID, byName map[string][]located
	byID          map[string]located
}

func indexOf(all []provider.Located) locatedIndex {
	index := locatedIndex{byUID: map[string][]located{}, byName: map[string][]located{}, byID: map[string]located{}}
	for i := range all {
		found := &all[i]
		in := located{ProviderID: found.Instance.ProviderID, Collected: found.Collected, state: found.Instance.State,
			facts: found.Facts}
		index.byID[in.ProviderID] = in
		switch {
		case found.MachineUID != "":
			index.byUID[string(found.MachineUID)] = append(index.byUID[string(found.MachineUID)], in)
		case found.Machine != "":
			index.byName[found.Machine] = append(index.byName[found.Machine], in)
		}
	}
	return index
}

// of returns the instances of a machine: by the UID in a tag, else by the provider ID that the old object has, else by
// name.
func (x locatedIndex) of(m *candidate) []located {
	if found := x.byUID[string(m.old.GetUID())]; len(found) > 0 {
		return found
	}
	if in, found := x.byID[m.Machine.ProviderID]; found {
		return []located{in}
	}
	return x.byName[m.old.GetName()]
}

func idsOf(all []located) string {
	var ids []string
	for _, in := range all {
		ids = append(ids, in.ProviderID)
	}
	slices.Sort(ids)
	return strings.Join(ids, ", ")
}
