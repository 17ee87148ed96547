package source

import (
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
)

// This file reads the objects to which machines of Cluster API refer: the infrastructure objects, the Cluster, and the
// identity with which the old controller logs in to the cloud.

const (
	clusterAPIClonedFrom     = "cluster.x-k8s.io/cloned-from-name"
	clusterAPITemplateSuffix = "Template"
)

// templateClass describes the instances of a template. If reported is false, another object has the findings about the
// user data.
func (r *clusterAPIReader) templateClass(f *fields, cluster, failureDomain string, reported bool) *Class {
	kind, name := f.objectReference("infrastructureRef")
	bootstrap, userData := r.bootstrap(f, reported)
	template := r.find(f, "infrastructureRef", kind, name)
	if template == nil {
		return nil
	}
	spec, _, _ := unstructured.NestedMap(template.Object, "spec", "template", "spec")
	class := r.describe(f, kind, spec, cluster, failureDomain)
	if class == nil {
		return nil
	}
	class.UserData = userData
	if userData == nil { // Otherwise, the class gets its name from its content.
		class.Name = clusterAPIClassName(name, bootstrap, failureDomain)
	}
	return class
}

func clusterAPIClassName(template, bootstrap, failureDomain string) string {
	parts := []string{template}
	if bootstrap != "" && bootstrap != template {
		parts = append(parts, bootstrap)
	}
	if failureDomain != "" {
		parts = append(parts, strings.ToLower(failureDomain))
	}
	const longest = 200 // The names of Secrets have suffixes.
	return shortName(strings.Join(parts, "-"), longest)
}

// machineClass describes the instance of a machine, and names the objects that belong to the machine alone. The
// infrastructure object is a copy of a template. If the template no longer exists, the copy describes the instance.
func (r *clusterAPIReader) machineClass(f *fields, cluster string, owned bool) {
	kind, name := f.objectReference("infrastructureRef")
	failureDomain := f.text("failureDomain")
	bootstrap := f.child("bootstrap")
	bootstrap.ignore("dataSecretName") // The token of the rendered data expires.
	if config, configName := bootstrap.objectReference("configRef"); configName != "" {
		r.part(bootstrap, "configRef", Part{GroupKind: config, Name: configName}, r.uid)
		if !owned {
			r.kubeadmConfig(bootstrap, "configRef", config, configName, "spec")
		}
	}
	copied := r.find(f, "infrastructureRef", kind, name)
	if copied == nil {
		return
	}
	r.part(f, "infrastructureRef", Part{GroupKind: kind, Name: name}, r.uid)
	// In recent releases, an OpenStackMachine owns an OpenStackServer of the same name, whose deletion deletes the
	// instance.
	if kind.Kind == "OpenStackMachine" {
		r.part(f, "infrastructureRef", Part{GroupKind: schema.GroupKind{Group: kind.Group, Kind: "OpenStackServer"},
			Name: name, OfPart: true}, copied.GetUID())
	}
	if set := r.ownerOf("MachineSet"); set != "" && r.objects != nil {
		// The old system also writes the zone of the instance into the machine, although its set names no zone.
		if old := r.objects.Find(schema.GroupKind{Group: r.groups[0], Kind: "MachineSet"}, r.namespace, set); old != nil {
			failureDomain, _, _ = unstructured.NestedString(old.Object, "spec", "template", "spec", "failureDomain")
		}
	}
	templateKind := schema.GroupKind{Group: kind.Group, Kind: kind.Kind + clusterAPITemplateSuffix}
	templateName := copied.GetAnnotations()[clusterAPIClonedFrom]
	if templateName != "" {
		if template := r.objects.Find(templateKind, r.namespace, templateName); template != nil {
			spec, _, _ := unstructured.NestedMap(template.Object, "spec", "template", "spec")
			if r.converted.Class = r.describe(f, kind, spec, cluster, failureDomain); r.converted.Class != nil {
				r.converted.Class.Name = clusterAPIClassName(templateName, "", failureDomain)
			}
			return
		}
	}
	spec, _, _ := unstructured.NestedMap(copied.Object, "spec")
	for _, ofInstance := range []string{"providerID", "instanceID"} {
		delete(spec, ofInstance)
	}
	r.converted.Class = r.describe(f, kind, spec, cluster, failureDomain)
}

// part adds an existing object to the parts of the machine. The migrator deletes parts with its own permissions.
// Therefore, an object that does not belong to the machine is a Blocker. Otherwise, the author of a machine could make
// the migrator delete any object to which the machine refers.
func (r *clusterAPIReader) part(f *fields, field string, part Part, owner types.UID) {
	if r.objects == nil {
		return
	}
	object := r.objects.Find(part.GroupKind, r.namespace, part.Name)
	if object == nil {
		return
	}
	isPart := part.Group == clusterAPIInfrastructureGroup || part.Group == clusterAPIBootstrapGroup
	for _, suffix := range []string{clusterAPITemplateSuffix, clusterAPICluster.Kind} {
		isPart = isPart && !strings.HasSuffix(part.Kind, suffix)
	}
	isOwner := func(o metav1.OwnerReference) bool { return o.UID == owner && owner != "" }
	if !isPart || object.GetNamespace() != r.namespace || !slices.ContainsFunc(object.GetOwnerReferences(), isOwner) {
		f.report(provider.FindingBlocker, CodeNotPart, field, "The %s %s does not belong to this machine. The migration "+
			"deletes the objects that belong to a machine, so they need its owner reference, and their group must be %s or "+
			"%s. Correct the reference, or delete the machine.", part.GroupKind, part.Name, clusterAPIInfrastructureGroup,
			clusterAPIBootstrapGroup)
		return
	}
	r.converted.Machine.Parts = append(r.converted.Machine.Parts, part)
}

// find returns the object to which a field refers. A missing object is a Blocker.
func (r *clusterAPIReader) find(f *fields, field string, kind schema.GroupKind,
	name string) *unstructured.Unstructured {
	if kind.Kind == "" || name == "" {
		f.report(provider.FindingBlocker, CodeMissingField, field, "The reference needs a kind and a name.")
		return nil
	}
	if r.objects != nil {
		if found := r.objects.Find(kind, r.namespace, name); found != nil {
			return found
		}
	}
	f.report(provider.FindingBlocker, CodeReferenceMissing, field, "The %s %s does not exist. Create it again, or delete "+
		"this object. If the object is being deleted, wait until it is gone.", kind.Kind, name)
	return nil
}

// describe combines everything that describes an instance: the infrastructure object, the parts of the Cluster that
// affect machines, and the identity. The kind has no suffix for templates.
func (r *clusterAPIReader) describe(f *fields, kind schema.GroupKind, machine map[string]any, cluster,
	failureDomain string) *Class {
	class := &Class{Provider: strings.TrimSuffix(kind.Kind, clusterAPITemplateSuffix), Path: f.pathOf("infrastructureRef"),
		Spec: map[string]any{"machine": orEmpty(machine), "clusterName": cluster}}
	if failureDomain != "" {
		class.Spec["failureDomain"] = failureDomain
	}
	if cluster == "" || r.objects == nil {
		return nil // clusterName has reported the problem.
	}
	owner := r.objects.Find(clusterAPICluster, r.namespace, cluster)
	if owner == nil {
		f.report(provider.FindingBlocker, CodeReferenceMissing, "clusterName", "The Cluster %s does not exist.", cluster)
		return nil
	}
	reference := newFields(owner.Object, "", new([]provider.Finding)).peek("spec")
	clusterKind, name := reference.objectReference("infrastructureRef")
	infrastructure := r.objects.Find(clusterKind, r.namespace, name)
	if infrastructure == nil {
		f.report(provider.FindingBlocker, CodeReferenceMissing, "clusterName", "The %s %s of the Cluster %s does not exist.",
			clusterKind.Kind, name, cluster)
		return nil
	}
	spec, _, _ := unstructured.NestedMap(infrastructure.Object, "spec")
	class.Spec["cluster"] = orEmpty(spec)
	status := map[string]any{}
	for _, key := range []string{"network", "workerSecurityGroup"} { // Other fields change all the time.
		if value, found, _ := unstructured.NestedFieldCopy(infrastructure.Object, "status", key); found {
			status[key] = value
		}
	}
	class.Spec["clusterStatus"] = status
	if !r.identity(f, class, machine, spec, kind.Group) {
		return nil
	}
	return class
}

func orEmpty(object map[string]any) map[string]any {
	if object == nil {
		return map[string]any{}
	}
	return runtime.DeepCopyJSON(object)
}

// identity reads the identity of a machine or of its cluster. The identity is a Secret, or an object that names one.
func (r *clusterAPIReader) identity(f *fields, class *Class, machine, cluster map[string]any, group string) (ok bool) {
	reference := func(of map[string]any) *fields { return newFields(of, "", new([]provider.Finding)).peek("identityRef") }
	ref := reference(machine)
	if ref.text("name") == "" {
		ref = reference(cluster)
	}
	name, kind := ref.text("name"), ref.text("kind")
	if name == "" {
		return true
	}
	if ref.text("type") == "ClusterIdentity" {
		kind = "OpenStackClusterIdentity"
	}
	if kind == "" || kind == "Secret" {
		class.Credentials = []types.NamespacedName{{Namespace: r.namespace, Name: name}}
		return true
	}
	namespace := ref.text("namespace")
	if namespace == "" {
		namespace = r.namespace
	}
	identity := r.objects.Find(schema.GroupKind{Group: group, Kind: kind}, namespace, name)
	if identity == nil {
		f.report(provider.FindingBlocker, CodeReferenceMissing, "infrastructureRef", "The %s %s, with which the old system "+
			"logs in to the cloud, does not exist.", kind, name)
		return false
	}
	spec, _, _ := unstructured.NestedMap(identity.Object, "spec")
	class.Spec["identity"] = orEmpty(spec)
	for _, field := range []string{"clientSecret", "secretRef"} {
		secret := newFields(spec, "", new([]provider.Finding)).peek(field)
		if secretName := secret.text("name"); secretName != "" {
			secretNamespace := secret.text("namespace")
			if secretNamespace == "" {
				secretNamespace = namespace
			}
			class.Credentials = []types.NamespacedName{{Namespace: secretNamespace, Name: secretName}}
		}
	}
	return true
}

// bootstrap reads the bootstrap config of a template. The old system renders user data for each machine, which
// Machinist replaces. Only a Secret of the user is copied.
func (r *clusterAPIReader) bootstrap(f *fields, reported bool) (name string, userData *KeyRef) {
	b := f.child("bootstrap")
	kind, name := b.objectReference("configRef")
	secret := b.text("dataSecretName")
	switch {
	case name != "" && reported:
		r.kubeadmConfig(b, "configRef", kind, name, "spec", "template", "spec")
	case name == "" && secret != "":
		if reported {
			b.report(provider.FindingLoss, CodeUserData, "dataSecretName", "The user data in the Secret %s is copied, but it "+
				"is the same for all machines and its token may expire. Name a Secret with your own template in "+
				"spec.userDataRef of the Migration.", secret)
		}
		userData = &KeyRef{Kind: "Secret", Namespace: r.namespace, Name: secret, Key: "value"}
	}
	return name, userData
}

// kubeadmConfig reports the fields of a bootstrap config that the kubeadm profile of Machinist does not have.
func (r *clusterAPIReader) kubeadmConfig(f *fields, field string, kind schema.GroupKind, name string, path ...string) {
	if kind.Group != clusterAPIBootstrapGroup || !strings.HasPrefix(kind.Kind, "KubeadmConfig") {
		f.report(provider.FindingLoss, CodeUserData, field, "Machinist cannot read the %s %s. Name a Secret with user data "+
			"for new machines in spec.userDataRef of the Migration.", kind.Kind, name)
		return
	}
	config := r.find(f, field, kind, name)
	if config == nil {
		return
	}
	at, _, _ := unstructured.NestedMap(config.Object, path...)
	// The two first configurations are for control planes.
	ignored := []string{"clusterConfiguration", "initConfiguration", "verbosity", "useExperimentalRetryJoin"}
	r.lostKubeadmFields(f, field+"."+strings.Join(path, "."), kind, name, at,
		append(ignored, "joinConfiguration", "format"))
	if format, _ := at["format"].(string); format != "" && format != "cloud-config" {
		f.report(provider.FindingLoss, CodeKubeadmConfig, field+"."+strings.Join(path, ".")+".format", "The %s %s renders "+
			"user data in the format %s. Use a template in this format.", kind.Kind, name, format)
	}
	join, _ := at["joinConfiguration"].(map[string]any)
	prefix := field + "." + strings.Join(path, ".") + ".joinConfiguration"
	r.lostKubeadmFields(f, prefix, kind, name, join, []string{"apiVersion", "kind", "discovery", "controlPlane",
		"caCertPath", "timeouts", "nodeRegistration"})
	registration, _ := join["nodeRegistration"].(map[string]any)
	r.lostKubeadmFields(f, prefix+".nodeRegistration", kind, name, registration, []string{"name", "imagePullPolicy",
		"imagePullSerial"})
}

func (r *clusterAPIReader) lostKubeadmFields(f *fields, path string, kind schema.GroupKind, name string,
	object map[string]any, ignored []string) {
	rest := newFields(object, "", new([]provider.Finding))
	rest.ignore(ignored...)
	for _, key := range slices.Sorted(maps.Keys(object)) {
		if !rest.read[key] && !empty(object[key]) {
			f.report(provider.FindingLoss, CodeKubeadmConfig, path+"."+key, "The kubeadm profile of Machinist does not have "+
				"this field of the %s %s. Add its content to the user data of new machines.", kind.Kind, name)
		}
	}
}
