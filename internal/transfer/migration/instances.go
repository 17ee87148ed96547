package migration

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/bootstrap"
	"machinist.dev/machinist/internal/platform/wording"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
)

// This file plans a Migration without an old system: it adopts instances that have a Node and no Machine. Only the
// plan differs from other Migrations. An instance is planned like an old Machine, and a group of instances like an
// old deployment with one set.

// Codes of findings about instances without an old system.
const (
	// CodeAdoptionForbidden: the class does not allow its machines to adopt instances.
	CodeAdoptionForbidden = "AdoptionForbidden"
	// CodeDiffersFromClass: the instance differs from the class of its new Machine.
	CodeDiffersFromClass = "DiffersFromClass"
	// CodeManaged: another Machine or another system manages the instance or its Node.
	CodeManaged = "Managed"
	// CodeNoNode: the instance has no Node in this cluster.
	CodeNoNode = "NoNode"
	// CodeNodeWithoutProviderID: the Node has the name and an address of the instance, but no provider ID.
	CodeNodeWithoutProviderID = "NodeWithoutProviderID"
	// CodeDifferentVersions: the user data needs a kubelet version, and the Nodes of a group have different versions.
	CodeDifferentVersions = "DifferentVersions"
	// CodeNotReady: the instance is stopped, or its Node is not Ready. Machinist would replace such a machine.
	CodeNotReady = "NotReady"
	// CodeNoGroup: the instance lacks the key of spec.instances.groupBy.
	CodeNoGroup = "NoGroup"
)

// noSystem is the source of instances that no system manages. It has no objects and no controllers.
type noSystem struct{}

func (noSystem) Group() string                        { return v1beta1.MigrationSourceInstances }
func (noSystem) Kinds() []source.Kind                 { return nil }
func (noSystem) Leases(string) []types.NamespacedName { return nil }
func (noSystem) NodeTraces() source.NodeTraces        { return source.NodeTraces{} }
func (noSystem) Flags() []string                      { return nil }

func (noSystem) Convert(source.Role, *unstructured.Unstructured, source.Flags) source.Converted {
	return source.Converted{}
}

// systemOf returns the old system of a Migration.
func systemOf(m *v1beta1.Migration) (source.System, bool) {
	if m.Spec.Source == v1beta1.MigrationSourceInstances {
		return noSystem{}, true
	}
	system, found := source.Systems()[m.Spec.Source]
	return system, found
}

// chosen is a found instance that the migration adopts.
type chosen struct {
	*provider.FoundInstance
	uid types.UID
	// node is nil if the Node of an adopted instance is gone.
	node *corev1.Node
}

// uidOf returns the UID of an old object that a Migration without an old system lacks, such as an old Machine.
func uidOf(text string) types.UID {
	sum := sha256.Sum256([]byte(text))
	return types.UID(hex.EncodeToString(sum[:8]))
}

// planInstances adds the deployments, sets and machines for the instances that spec.instances selects.
func (p *planner) planInstances(ctx context.Context) error {
	c := p.existingClass()
	if c == nil {
		return nil
	}
	resolved, err := p.resolve(ctx, c.object)
	if err != nil {
		return err
	}
	all, err := p.cloud.Find(ctx, provider.FindRequest{Class: resolved})
	switch code := provider.CodeOf(err); {
	case err == nil:
	case code == provider.Unimplemented:
		p.blockf(CodeCannotImport, c.firstObject, "", "%s", message(err))
		return nil
	case code == provider.InvalidArgument || code == provider.FailedPrecondition || code == provider.Unauthenticated ||
		code == provider.PermissionDenied:
		p.blockf(CodeCannotImport, c.firstObject, "", "The instances of the class cannot be listed: %s", message(err))
		return nil
	default:
		return fmt.Errorf("find the instances of class %s: %w", c.name, err)
	}
	slices.SortFunc(all, func(a, b provider.FoundInstance) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(a.Instance.ProviderID, b.Instance.ProviderID))
	})
	groups, selected := map[string][]chosen{}, 0
	var names []string
	for i := range all {
		in := &all[i]
		if !selects(p.migration.Spec.Instances, in) {
			continue
		}
		selected++
		one, ok := p.choose(c, in)
		if !ok {
			continue
		}
		name := p.groupOf(in)
		if groups[name] == nil {
			names = append(names, name)
		}
		groups[name] = append(groups[name], one)
		p.plan.instances = append(p.plan.instances, in)
	}
	needsVersion, err := p.needsVersion(ctx, c)
	if err != nil {
		return err
	}
	taken := map[string]bool{}
	for _, name := range names {
		version := ""
		if needsVersion {
			version = p.versionOf(name, groups[name])
		}
		p.planGroup(c, name, version, groups[name], taken)
	}
	switch {
	case selected == 0:
		p.blockf(CodeNothingFound, "Migration/"+p.migration.Name, "spec.instances", "The account of class %s has %s, and "+
			"none matches. Correct --class, --name, --selector or --network.", c.name, wording.Count(len(all), "instance"))
	case len(names) == 0:
		p.blockf(CodeNothingFound, "Migration/"+p.migration.Name, "spec.instances", "The account of class %s has %s, and "+
			"none that matches can be adopted: see the Notes.", c.name, wording.Count(len(all), "instance"))
	}
	return nil
}

// existingClass returns the class that spec.instances names. If the class cannot be used, existingClass reports a
// Blocker and returns nil.
func (p *planner) existingClass() *class {
	name, where := p.migration.Spec.Instances.ClassRef.Name, "Migration/"+p.migration.Name
	object := p.own.classes[name]
	switch {
	case object == nil:
		p.blockf(CodeClassMissing, where, "spec.instances.classRef", "The MachineClass %s does not exist in namespace %s. "+
			"Create a class that describes the instances.", name, p.migration.Namespace)
		return nil
	case object.Spec.Provider != p.migration.Spec.Provider:
		p.blockf(CodeClassInvalid, where, "spec.instances.classRef", "The MachineClass %s is for the provider %s, not for "+
			"%s.", name, object.Spec.Provider, p.migration.Spec.Provider)
		return nil
	case object.Spec.Adoption != v1beta1.AdoptionAllow:
		p.blockf(CodeAdoptionForbidden, "MachineClass/"+name, "spec.adoption", "The class does not allow its machines to "+
			"adopt instances. Allow it until the migration has ended: kubectl patch machineclass %s --namespace %s "+
			`--type merge --patch '{"spec":{"adoption":"Allow"}}'`, name, p.migration.Namespace)
	}
	c := &class{name: name, firstObject: "MachineClass/" + name, existing: true, object: object, publishedClass: object,
		nodeProviderID: object.Spec.NodeProviderID}
	p.classes[name] = c
	p.plan.classes = append(p.plan.classes, c)
	return c
}

// selects reports whether the fields of spec.instances match a found instance.
func selects(s *v1beta1.MigrationInstances, in *provider.FoundInstance) bool {
	named := func(pattern string) bool {
		matched, err := path.Match(pattern, in.Name)
		return matched && err == nil
	}
	if len(s.Names) > 0 && !slices.ContainsFunc(s.Names, named) {
		return false
	}
	for key, value := range s.Metadata {
		if got, found := in.Metadata[key]; !found || got != string(value) {
			return false
		}
	}
	connected := func(network string) bool { return slices.Contains(in.Networks, network) }
	return len(s.Networks) == 0 || slices.ContainsFunc(s.Networks, connected)
}

// adoptedByBoth returns the instances of the plan that another Migration adopts, too. If the instances of the other
// Migration cannot be listed, the names, tags and networks decide.
func (p *pass) adoptedByBoth(ctx context.Context, plan *plan, other *v1beta1.Migration) []*provider.FoundInstance {
	m := p.migration
	if m.Spec.Instances == nil || other.Spec.Instances == nil || m.Spec.Provider != other.Spec.Provider {
		return nil
	}
	both := slices.DeleteFunc(slices.Clone(plan.instances), func(in *provider.FoundInstance) bool {
		return !selects(other.Spec.Instances, in)
	})
	key := client.ObjectKey{Namespace: other.Namespace, Name: other.Spec.Instances.ClassRef.Name}
	if len(both) == 0 || key == (client.ObjectKey{Namespace: m.Namespace, Name: m.Spec.Instances.ClassRef.Name}) {
		return both
	}
	class := &v1beta1.MachineClass{}
	if err := p.Control.Get(ctx, key, class); err != nil {
		return both
	}
	resolved, err := p.classOf(ctx, class)
	if err != nil {
		return both
	}
	found, err := p.Cloud.Find(ctx, provider.FindRequest{Class: resolved})
	if err != nil {
		return both
	}
	return slices.DeleteFunc(both, func(in *provider.FoundInstance) bool {
		return !slices.ContainsFunc(found, func(f provider.FoundInstance) bool {
			return f.Instance.ProviderID == in.Instance.ProviderID
		})
	})
}

// choose decides whether the migration adopts an instance. If not, choose reports why. An instance that this
// migration has copied stays in the plan. After the phase Copying, the plan has no other instances.
func (p *planner) choose(c *class, in *provider.FoundInstance) (one chosen, ok bool) {
	one = chosen{FoundInstance: in, uid: uidOf(in.Instance.ProviderID)}
	name, id := displayName(in), in.Instance.ProviderID
	skip := func(code, format string, args ...any) {
		p.plan.findings.addf(provider.FindingNote, code, name, "", "The instance "+id+" is not adopted: "+format, args...)
	}
	machine := p.own.byProviderID[id]
	if machine != nil && p.own.hasCreated(machine) && oldUID(machine) == one.uid {
		one.node = p.nodeOf(c, in)
		return one, true
	}
	switch p.migration.Status.Phase {
	case "", v1beta1.MigrationPlanning, v1beta1.MigrationFencing, v1beta1.MigrationSettling, v1beta1.MigrationCopying:
	default:
		return one, false
	}
	switch {
	case machine != nil:
		skip(CodeManaged, "Machine %s already has this instance.", client.ObjectKeyFromObject(machine))
		return one, false
	case in.Instance.ClusterID != "" || in.Instance.MachineUID != "":
		skip(CodeManaged, "it has the tags of machine %.128q of the Machinist installation %.128q.",
			cmp.Or(in.Instance.MachineKey, string(in.Instance.MachineUID)), in.Instance.ClusterID)
		return one, false
	case in.OtherSystem != "":
		skip(CodeManaged, "its tags say that %s manages it. To take over a fleet of that system, see "+
			"machinist migrate plan --help. If the system no longer exists, remove the tag.", in.OtherSystem)
		return one, false
	case in.Instance.State == provider.StateStopped:
		skip(CodeNotReady, "it is stopped, and Machinist would replace its Machine after the commit. Start the instance, "+
			"or leave it as it is.")
		return one, false
	case in.Instance.State != provider.StateRunning:
		skip(CodeInFlight, "its state is %s.", in.Instance.State)
		return one, false
	}
	node := p.nodeOf(c, in)
	if node == nil {
		skip(CodeNoNode, "no Node of this cluster has its provider ID %s, or its name and one of its addresses.",
			p.expectedNodeID(c, in))
		return one, false
	}
	system, key := oldSystemOf(node)
	switch {
	case isControlPlane(node):
		skip(source.CodeControlPlane, "its Node %s is part of the control plane.", node.Name)
		return one, false
	case hasKey(node.Labels, v1beta1.NodeLabelMachine) || hasKey(node.Annotations, v1beta1.NodeAnnotationMachine):
		skip(CodeManaged, "its Node %s belongs to Machine %s.", node.Name, cmp.Or(
			node.Annotations[v1beta1.NodeAnnotationMachine], node.Labels[v1beta1.NodeLabelMachine]))
		return one, false
	case key != "":
		skip(CodeManaged, "its Node %s has the %s of the system %s. To take over a fleet of that system, see machinist "+
			"migrate plan --help. If the system no longer exists, remove this key from the Node.", node.Name, key, system)
		return one, false
	case !isReady(node):
		skip(CodeNotReady, "its Node %s is not Ready, and Machinist would replace its Machine after the commit. Repair "+
			"the Node, or leave the instance as it is.", node.Name)
		return one, false
	case node.Spec.ProviderID == "":
		p.blockf(CodeNodeWithoutProviderID, name, "", "The Node %s has the name and an address of the instance, but no "+
			"provider ID. Without it, Machinist does not recognize the Node. Set the provider ID: kubectl patch node %[1]s "+
			`--patch '{"spec":{"providerID":"%s"}}'`, node.Name, p.expectedNodeID(c, in))
		return one, false
	}
	one.node = node
	return one, true
}

func displayName(in *provider.FoundInstance) string {
	return "Instance/" + cmp.Or(in.Name, in.Instance.ProviderID)
}

func (p *planner) expectedNodeID(c *class, in *provider.FoundInstance) string {
	return p.nodeProviderID(c, located(in))
}

func located(in *provider.FoundInstance) locatedInstance {
	return locatedInstance{ProviderID: in.Instance.ProviderID, nodeName: in.Instance.NodeName,
		region: in.Instance.Region, state: in.Instance.State, notAdoptable: in.NotAdoptable}
}

// nodeOf returns the Node of an instance: the Node with its provider ID, else a Node with its name and one of its
// addresses. If several Nodes have the provider ID, nodeOf returns one of them, and the plan gets the Blocker
// NodeMismatch.
func (p *planner) nodeOf(c *class, in *provider.FoundInstance) *corev1.Node {
	if same := p.nodes.byProviderID[p.expectedNodeID(c, in)]; len(same) > 0 {
		return same[0]
	}
	for _, name := range []string{in.Instance.NodeName, in.Name} {
		node := p.nodes.named(name)
		if node == nil {
			continue
		}
		for _, address := range node.Status.Addresses {
			same := func(a corev1.NodeAddress) bool { return a.Address == address.Address }
			if (address.Type == corev1.NodeInternalIP || address.Type == corev1.NodeExternalIP) &&
				slices.ContainsFunc(in.Instance.Addresses, same) {
				return node
			}
		}
	}
	return nil
}

func isControlPlane(node *corev1.Node) bool {
	return hasKey(node.Labels, "node-role.kubernetes.io/control-plane") ||
		hasKey(node.Labels, "node-role.kubernetes.io/master")
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// oldSystemOf returns the API group of an old system that has written to a Node, and a key that it has written.
func oldSystemOf(node *corev1.Node) (group, key string) {
	systems := source.Systems()
	for _, group := range slices.Sorted(maps.Keys(systems)) {
		without := node.DeepCopy()
		removeTraces(without, systems[group].NodeTraces())
		left := keysOf(without)
		for _, key := range keysOf(node) {
			if !slices.Contains(left, key) {
				return group, key
			}
		}
	}
	return "", ""
}

// keysOf names the keys of a Node that removeTraces may remove.
func keysOf(node *corev1.Node) (all []string) {
	for key := range node.Annotations {
		all = append(all, "annotation "+key)
	}
	for key := range node.Labels {
		all = append(all, "label "+key)
	}
	for _, key := range node.Finalizers {
		all = append(all, "finalizer "+key)
	}
	for i := range node.Spec.Taints {
		all = append(all, "taint "+node.Spec.Taints[i].Key)
	}
	for _, owner := range node.OwnerReferences {
		all = append(all, "owner reference to "+owner.APIVersion+" "+owner.Kind)
	}
	slices.Sort(all)
	return all
}

// groupOf returns the name of the deployment for an instance.
func (p *planner) groupOf(in *provider.FoundInstance) string {
	key := p.migration.Spec.Instances.GroupBy
	if key == "" {
		return p.migration.Name
	}
	value := in.Metadata[key]
	if value == "" {
		p.plan.findings.addf(provider.FindingNote, CodeNoGroup, displayName(in), "", "The instance has no tag or "+
			"metadata %.128q, so its Machine belongs to the deployment %s.", key, p.migration.Name)
		return p.migration.Name
	}
	return objectName(value, v1beta1.MaxMachineDeploymentNameLength)
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// objectName returns a DNS label. If the text is not a DNS label of at most longest characters, the name ends with a
// hash of the text, so that different texts have different names.
func objectName(text string, longest int) string {
	if name := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(text), "-"), "-"); name == "" || name != text ||
		len(name) > longest {
		hash := string(uidOf(text))
		return strings.Trim(name[:min(len(name), longest-len(hash)-1)]+"-"+hash, "-")
	}
	return text
}

// needsVersion reports whether the user data of the class contains the kubelet version. Without a version, no machine
// of the class could be replaced.
func (p *planner) needsVersion(ctx context.Context, c *class) (bool, error) {
	ref := c.object.Spec.UserDataRef
	if ref == nil {
		return false, nil
	}
	data, problem, err := p.secrets.entriesForMigration(ctx, types.NamespacedName{Namespace: p.migration.Namespace,
		Name: ref.Name})
	if err != nil {
		return false, err
	}
	if problem != nil {
		p.reportUnusable(problem, c.firstObject, "spec.userDataRef", "")
	}
	return bytes.Contains(data[ref.KeyOrDefault()], []byte("<<"+bootstrap.KubeletVersion+">>")), nil
}

// versionOf returns the kubelet version of all Nodes of a group.
func (p *planner) versionOf(group string, all []chosen) (version string) {
	for _, one := range all {
		if one.node == nil {
			continue
		}
		is := one.node.Status.NodeInfo.KubeletVersion
		if version != "" && is != version {
			p.blockf(CodeDifferentVersions, "MachineDeployment/"+group, "spec.template.spec.version", "The user data of the "+
				"class needs a kubelet version, but the Nodes have the versions %s and %s. Plan the instances of each version "+
				"separately.", version, is)
			return version
		}
		version = is
	}
	return version
}

// labelPool is the label by which a new deployment selects its machines.
const labelPool = "pool"

// creationTimeout is the creation timeout of adopted machines. An instance has no limit for its Node until it is
// adopted. The default would replace a machine whose Node becomes not Ready during the migration.
const creationTimeout = 24 * time.Hour

// planGroup adds a deployment, its set and its machines to the plan. The set has the template of the deployment, so
// no rollout begins. taken contains the names of the machines in the plan.
func (p *planner) planGroup(c *class, name, version string, all []chosen, taken map[string]bool) {
	labels := map[string]string{labelPool: name}
	template := v1beta1.MachineTemplateSpec{ObjectMeta: v1beta1.TemplateMeta{Labels: labels},
		Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: c.name}, Version: version,
			Timeouts: v1beta1.MachineTimeouts{Creation: &metav1.Duration{Duration: creationTimeout}}}}
	replicas := int32(len(all))
	of := func(kind string, owners ...metav1.OwnerReference) *metav1.ObjectMeta {
		return &metav1.ObjectMeta{Namespace: p.migration.Namespace, Name: name, UID: uidOf(kind + "/" + name),
			OwnerReferences: owners}
	}
	d := conversion{old: of("deployment"), displayName: "MachineDeployment/" + name, Converted: source.Converted{
		ClassName: c.name, Object: &v1beta1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: v1beta1.MachineDeploymentSpec{Replicas: &replicas, Selector: metav1.LabelSelector{MatchLabels: labels},
				Template: template}}}}
	p.deployment(d)
	p.plan.findings.addf(provider.FindingNote, source.CodeCreationTimeout, d.displayName, "spec.template.spec.timeouts",
		"A Machine has %s to get a Ready Node. To replace new machines earlier, change this timeout after the commit. The "+
			"change starts no rollout.", creationTimeout)
	owner := metav1.OwnerReference{Kind: "MachineDeployment", Name: name, UID: d.old.GetUID(), Controller: ptr.To(true)}
	s := conversion{old: of("set", owner), displayName: "MachineSet/" + name, Converted: source.Converted{
		ClassName: c.name,
		Object:    &v1beta1.MachineSet{Spec: v1beta1.MachineSetSpec{Replicas: &replicas, Template: *template.DeepCopy()}}}}
	p.set(s)
	for _, one := range all {
		p.planMachine(c, p.sets[s.old.GetUID()], version, one, taken)
	}
}

func (p *planner) planMachine(c *class, s *set, version string, one chosen, taken map[string]bool) {
	object := displayName(one.FoundInstance)
	name := objectName(one.Name, v1beta1.MaxMachineNameLength)
	if taken[name] {
		name = alternativeName(name, one.uid)
	}
	taken[name] = true
	if name != one.Name {
		p.plan.findings.addf(provider.FindingNote, source.CodeRenamed, object, "", "The name of a Machine must be a "+
			"unique DNS label of at most %d characters. The Machine gets the name %s.", v1beta1.MaxMachineNameLength, name)
	}
	for _, d := range one.Differences {
		p.plan.findings.addf(provider.FindingLoss, CodeDiffersFromClass, object, d.Field, "The instance has %.128q, and "+
			"class %s has %.128q. The instance stays as it is, but a later replacement of the machine follows the class.",
			d.Instance, c.name, d.Class)
	}
	p.plan.oldMachines++
	nodeName := ""
	if one.node != nil {
		nodeName = one.node.Name
	}
	machine := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.MachineSpec{Version: version}}
	p.machine(candidate{object: machine, class: c, set: s, conversion: conversion{displayName: object,
		old: &metav1.ObjectMeta{Namespace: p.migration.Namespace, Name: one.Name, UID: one.uid},
		Converted: source.Converted{Object: machine, Machine: &source.Machine{ProviderID: one.Instance.ProviderID,
			NodeName: nodeName}}}}, located(one.FoundInstance))
}
