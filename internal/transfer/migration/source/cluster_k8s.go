package source

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// CodeDeletePolicy: Machinist deletes the machines of a set in a different order than the old system.
const CodeDeletePolicy = "DeletePolicy"

const (
	clusterK8sTemplateHash  = "machine-template-hash"
	clusterK8sDeleteMachine = "cluster.k8s.io/delete-machine"

	// osmProfile marks deployments whose user data operating-system-manager generates. The user data is in Secrets in
	// osmNamespace, under the key osmKey.
	osmProfile   = "k8c.io/operating-system-profile"
	osmNamespace = "cloud-init-settings"
	osmKey       = "cloud-config"
)

// clusterK8s is an early version of the Cluster API that Kubermatic's machine-controller still supports.
type clusterK8s struct{}

func (clusterK8s) Group() string { return provider.SourceClusterK8s }

func (s clusterK8s) Kinds() []Kind {
	kind := kindsOf(s.Group(), "v1alpha1")
	class := kind(RoleClass, "MachineClass", "machineclasses")
	class.Optional = true
	return []Kind{
		class,
		kind(RoleDeployment, "MachineDeployment", "machinedeployments"),
		kind(RoleSet, "MachineSet", "machinesets"),
		kind(RoleMachine, "Machine", "machines"),
	}
}

func (clusterK8s) Leases(string) []types.NamespacedName { return kubermaticLeases() }

func (s clusterK8s) NodeTraces() NodeTraces {
	return NodeTraces{
		Labels:      []string{kubermaticOwnedBy},
		Annotations: []string{"cluster.k8s.io/machine"},
		OwnerGroups: []string{s.Group()},
	}
}

func (clusterK8s) Flags() []string { return []string{kubermaticEvictionFlag, kubermaticJoinFlag} }

func (s clusterK8s) dialect() *dialect {
	return &dialect{
		groups:     []string{s.Group()},
		finalizers: kubermaticFinalizers,
		labels:     []string{clusterK8sTemplateHash},
		annotations: append([]string{"machinedeployment.clusters.k8s.io/", clusterK8sDeleteMachine},
			kubermaticInternalKeys...),
		autoscaler: "cluster.k8s.io",
		revision:   "machinedeployment.clusters.k8s.io/revision",
	}
}

func (s clusterK8s) Convert(role Role, old *unstructured.Unstructured, flags Flags) Converted {
	return convert(old, func(f *fields, c *Converted) {
		r := clusterK8sReader{dialect: s.dialect(), fields: f, converted: c, flags: flags,
			namespace: old.GetNamespace(), metadata: s.dialect().metadata(f, role)}
		f.readRole(role, map[Role]func(){RoleClass: r.class, RoleDeployment: r.deployment, RoleSet: r.set,
			RoleMachine: r.machine})
		c.LaterAnnotations = r.metadata.later
	})
}

type clusterK8sReader struct {
	*dialect
	fields    *fields
	converted *Converted
	flags     Flags
	namespace string
	metadata  metadata
}

func (r *clusterK8sReader) class() {
	f := r.fields
	if !f.has("providerSpec") {
		f.report(provider.FindingBlocker, CodeMissingField, "providerSpec", "The class has no description of an instance.")
		return
	}
	r.converted.Class = providerConfig(f.child("providerSpec"), nil, false)
}

func (r *clusterK8sReader) deployment() {
	f := r.fields
	spec := f.child("spec")
	f.ignore("status")
	deployment := &v1beta1.MachineDeployment{}
	r.metadata.apply(deployment)
	to := &deployment.Spec
	to.Replicas = spec.boundedInt("replicas", v1beta1.DefaultReplicas, 100000)
	to.Template = r.template(spec, r.metadata.oldName)
	to.Selector = r.selector(spec, to.Template.ObjectMeta.Labels)
	to.MinReadySeconds = *spec.boundedInt("minReadySeconds", 0, 86400)
	to.Paused = spec.boolean("paused")
	to.RevisionHistoryLimit = spec.historyLimit("revisionHistoryLimit", 1)
	to.ProgressDeadline = spec.progressDeadline("progressDeadlineSeconds", 600, to.MinReadySeconds)
	r.strategy(spec.child("strategy"), to)
	r.converted.Object = deployment
	r.converted.HealthCheck = noRemediation(deployment.Name, to.Selector)
}

func (r *clusterK8sReader) strategy(f *fields, to *v1beta1.MachineDeploymentSpec) {
	if kind := f.text("type"); kind != "" && kind != string(v1beta1.StrategyRollingUpdate) {
		f.report(provider.FindingBlocker, CodeInvalidValue, "type", "The old system only has the strategy RollingUpdate.")
	}
	rolling := f.child("rollingUpdate")
	to.Strategy = v1beta1.DeploymentStrategy{
		Type:          v1beta1.StrategyRollingUpdate,
		RollingUpdate: rolling.rollingUpdate(v1beta1.DefaultMaxSurge, v1beta1.DefaultMaxUnavailable),
	}
	to.DeletePolicy = clusterK8sDeletePolicy(rolling)
}

func (r *clusterK8sReader) set() {
	f := r.fields
	spec := f.child("spec")
	f.ignore("status")
	set := &v1beta1.MachineSet{}
	r.metadata.apply(set)
	to := &set.Spec
	to.Replicas = spec.boundedInt("replicas", v1beta1.DefaultReplicas, 100000)
	to.Template = r.template(spec, r.ownerOf("MachineDeployment"))
	to.Selector = r.selector(spec, to.Template.ObjectMeta.Labels)
	to.MinReadySeconds = *spec.boundedInt("minReadySeconds", 0, 86400)
	to.DeletePolicy = clusterK8sDeletePolicy(spec)
	r.converted.Object = set
	if r.metadata.controller == nil {
		r.converted.HealthCheck = noRemediation(set.Name, to.Selector)
	}
}

// clusterK8sDeletePolicy reads deletePolicy. The default is to delete newer machines first.
func clusterK8sDeletePolicy(f *fields) v1beta1.DeletePolicy {
	policy := v1beta1.DeletePolicy(f.text("deletePolicy"))
	switch {
	case policy == "":
		return v1beta1.DeleteNewest
	case policy == "Custom":
		f.report(provider.FindingNote, CodeDeletePolicy, "deletePolicy", "Machinist has no such policy. The new "+
			"value is Newest, the most similar policy.")
		return v1beta1.DeleteNewest
	case !slices.Contains([]v1beta1.DeletePolicy{v1beta1.DeleteRandom, v1beta1.DeleteNewest, v1beta1.DeleteOldest},
		policy):
		f.report(provider.FindingBlocker, CodeInvalidValue, "deletePolicy", "The value must be Random, Newest, Oldest or "+
			"Custom.")
		return v1beta1.DeleteNewest
	}
	return policy
}

// ownerOf returns the name of the controlling owner if it has the given kind, or "".
func (r *clusterK8sReader) ownerOf(kind string) string {
	if owner := r.metadata.controller; owner != nil && owner.Kind == kind {
		return owner.Name
	}
	return ""
}

// template converts the machine template of an old deployment or set. For a set without a deployment, the name of the
// deployment is empty.
func (r *clusterK8sReader) template(f *fields, deployment string) v1beta1.MachineTemplateSpec {
	from := f.child("template")
	to := v1beta1.MachineTemplateSpec{ObjectMeta: r.templateMeta(from)}
	annotations, _ := from.observe("metadata").object["annotations"].(map[string]any)
	own := map[string]string{}
	for _, key := range []string{kubermaticInitializers, kubermaticSkipEvictionAfter} {
		own[key], _ = annotations[key].(string)
	}
	if own[kubermaticInitializers] != "" {
		from.report(provider.FindingLoss, CodeInitializer, "metadata.annotations."+kubermaticInitializers, "The machines "+
			"wait for another controller before their instances are created. Machinist's machines do not wait.")
	}
	spec := from.child("spec")
	if kubermaticMachine(r.dialect, spec, &to.Spec) != "" {
		spec.report(provider.FindingLoss, CodeNotSupported, "metadata.name", "All Nodes of the template would have the "+
			"same name. Machinist names Nodes after their machines.")
	}
	spec.reportLoss("The instances of a template cannot have the same provider ID.", "providerID")
	to.Spec.Timeouts = r.timeouts(r.metadata.oldAnnotations, own)
	r.instance(spec, r.userData(deployment), false)
	return to
}

func (r *clusterK8sReader) machine() {
	f := r.fields
	machine := &v1beta1.Machine{}
	// The old set has copied its annotations to its machines. An autoscaler reads the capacity annotations only from
	// sets, so the machines do not need these annotations.
	r.metadata.annotations = withoutKeys(r.metadata.annotations, []string{v1beta1.AutoscalerCapacityPrefix})
	r.metadata.apply(machine)
	spec := f.child("spec")
	nodeName := kubermaticMachine(r.dialect, spec, &machine.Spec)
	machine.Spec.Timeouts = r.timeouts(r.metadata.oldAnnotations)
	set := r.ownerOf("MachineSet")
	r.instance(spec, nil, set != "")
	if r.metadata.oldAnnotations[clusterK8sDeleteMachine] != "" {
		r.metadata.later[v1beta1.AnnotationDeleteMachine] = "true"
	}
	pauseForInitializers(&r.metadata)
	r.converted.Object = machine
	r.converted.Machine = statusWithNodeRef(f, &r.metadata, nodeName)
	r.converted.Machine.ProviderID = spec.text("providerID")
}

func (r *clusterK8sReader) timeouts(annotations ...map[string]string) v1beta1.MachineTimeouts {
	timeouts := kubermaticTimeouts(r.fields, r.flags, annotations...)
	if join := r.flags.duration(kubermaticJoinFlag, r.fields); join != nil && *join > 0 {
		timeouts.Creation = asDuration(*join)
	}
	return timeouts
}

// userData returns the Secret of a deployment's user data, or nil if machine-controller generates the user data.
func (r *clusterK8sReader) userData(deployment string) *KeyRef {
	if deployment == "" || r.metadata.oldAnnotations[osmProfile] == "" {
		return nil
	}
	return &KeyRef{Kind: "Secret", Namespace: osmNamespace, Name: deployment + "-" + r.namespace + "-bootstrap-config",
		Key: osmKey}
}

func (r *clusterK8sReader) instance(f *fields, userData *KeyRef, reportedBySet bool) {
	name := "providerSpec"
	if f.has("providerConfig") {
		if f.has(name) {
			f.report(provider.FindingBlocker, CodeInvalidValue, "providerConfig", "The fields providerConfig and "+
				"providerSpec are both set. Remove the field that is not valid any more.")
			f.ignore(name)
		}
		name = "providerConfig" // old name of the field
	}
	spec := f.child(name)
	if spec.has("value") {
		r.converted.Class = providerConfig(spec.child("value"), userData, reportedBySet)
		if _, found := spec.get("valueFrom"); found {
			spec.report(provider.FindingBlocker, CodeInvalidValue, "valueFrom", "The fields value and valueFrom are both "+
				"set. Remove the field that is not valid any more.")
		}
		return
	}
	class := spec.child("valueFrom").child("machineClass")
	class.ignore("kind", "apiVersion", "uid", "resourceVersion", "fieldPath", "provider")
	r.converted.ClassName = class.text("name")
	if namespace := class.text("namespace"); namespace != "" && namespace != r.namespace {
		class.report(provider.FindingBlocker, CodeNotSupported, "namespace", "The class is in another namespace. "+
			"Machinist's machines use classes of their own namespace.")
	}
	if r.converted.ClassName == "" {
		f.report(provider.FindingBlocker, CodeMissingField, name, "There is no description of the instance: neither "+
			"value nor machineClass is set.")
	}
}
