package source

import (
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/pkg/provider"
)

// Codes of findings about descriptions of instances of Kubermatic's machine-controller.
const (
	// CodeFromEnvironment: the old controller reads a value from its environment.
	CodeFromEnvironment = "FromEnvironment"
	// CodeUserData: the user data of new instances is not migrated, or expires.
	CodeUserData = "UserData"
)

// sshPublicKeys is the key of the SSH public keys, a list of strings, in a description of Kubermatic's
// machine-controller. It is next to the part for the cloud, but drivers need it there.
const sshPublicKeys = "sshPublicKeys"

// providerConfig reads the description of an instance. The part for the cloud becomes the class. The rest, from which
// machine-controller generated user data, is lost unless userData names a Secret with the result. reportedBySet is for
// a machine whose set reports the user data. providerConfig returns nil if there is no description of the instance.
func providerConfig(f *fields, userData *KeyRef, reportedBySet bool) *Class {
	class := &Class{Provider: f.text("cloudProvider"), UserData: userData, Path: f.pathOf("cloudProviderSpec")}
	if class.Provider == "" {
		if kind := f.text("kind"); kind != "" {
			return byKind(f, class, kind)
		}
		f.report(provider.FindingBlocker, CodeMissingField, "cloudProvider", "The description of the instance does not "+
			"name a cloud.")
	}
	if spec, found := typed[map[string]any](f, "cloudProviderSpec", "an object"); found {
		class.resolve(f, spec, "cloudProviderSpec")
	} else {
		f.report(provider.FindingBlocker, CodeMissingField, "cloudProviderSpec", "There is no description of the "+
			"instance.")
	}
	if _, found := class.Spec[sshPublicKeys]; found {
		f.report(provider.FindingBlocker, CodeInvalidValue, "cloudProviderSpec."+sshPublicKeys, "The SSH keys belong "+
			"next to cloudProviderSpec. Remove them from it.")
	}
	if keys := f.texts(sshPublicKeys); len(keys) > 0 && class.Spec != nil {
		list := make([]any, len(keys))
		for i, key := range keys {
			list[i] = key
		}
		class.Spec[sshPublicKeys] = list
	}
	f.reportLoss("Machinist does not configure static networks of instances.", "network")
	reportUserData(f, userData, reportedBySet)
	if class.Provider == "" || class.Spec == nil {
		return nil
	}
	return class
}

// reportUserData reads the fields from which the old controller generated user data.
func reportUserData(f *fields, userData *KeyRef, reportedBySet bool) {
	for _, name := range []string{"operatingSystem", "operatingSystemSpec", "caPublicKey", "overwriteCloudConfig"} {
		if value, found := f.get(name); found && !empty(value) && userData == nil && !reportedBySet {
			f.report(provider.FindingLoss, CodeUserData, name, "The old controller generated user data from this field, and "+
				"the user data is not migrated. Name a Secret with user data for new machines in spec.userDataRef of the "+
				"Migration.")
		}
	}
	if userData != nil {
		f.report(provider.FindingLoss, CodeUserData, "operatingSystem", "The user data in the Secret %s/%s is copied, "+
			"but its token expires. Give the class another userDataRef in spec.overrides of the Migration.",
			userData.Namespace, userData.Name)
	}
}

// byKind reads a description that has a kind instead of cloudProvider, as in the early Cluster API.
func byKind(f *fields, class *Class, kind string) *Class {
	class.Provider, class.Path, class.Spec = kind, f.path, runtime.DeepCopyJSON(f.object)
	// The driver reads all fields and reports those that it does not know.
	f.ignoreAll()
	return class
}

// resolve replaces variables that are literals by their values, and collects those that refer to a Secret or ConfigMap.
func (c *Class) resolve(f *fields, spec map[string]any, name string) {
	r := resolver{class: c, fields: f}
	c.Spec = map[string]any{}
	for _, key := range slices.Sorted(maps.Keys(spec)) {
		c.Spec[key] = r.value(spec[key], []string{key}, name+"."+key)
	}
}

type resolver struct {
	class  *Class
	fields *fields
}

// value returns a copy of a part of the description. path is its path in the description, and name its path in the
// fields.
func (r *resolver) value(raw any, path []string, name string) any {
	switch value := raw.(type) {
	case map[string]any:
		if isVariable(value) {
			return r.variable(value, path, name)
		}
		object := map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			object[key] = r.value(value[key], append(slices.Clone(path), key), name+"."+key)
		}
		return object
	case []any:
		list := make([]any, len(value))
		for i, item := range value {
			index := strconv.Itoa(i)
			list[i] = r.value(item, append(slices.Clone(path), index), name+"["+index+"]")
		}
		return list
	}
	return raw
}

// isVariable reports whether an object stands for a value. An empty object does not: it may be an empty map.
func isVariable(object map[string]any) bool {
	for key := range object {
		if key != "value" && key != "secretKeyRef" && key != "configMapKeyRef" {
			return false
		}
	}
	return len(object) > 0
}

// variable reads an object that stands for a value, with the precedence of the old controller: a complete reference,
// the literal, the environment. A reference stays in the description until its value is known, so that the name of the
// class depends on it.
func (r *resolver) variable(object map[string]any, path []string, name string) any {
	f := r.fields.addChild(object, r.fields.pathOf(name))
	secret, configMap := f.reference("secretKeyRef", "Secret"), f.reference("configMapKeyRef", "ConfigMap")
	literal, hasLiteral := f.get("value")
	from := secret
	if from == nil {
		from = configMap
	}
	switch {
	case from != nil:
		r.class.Values = append(r.class.Values, Value{Path: path, From: *from})
		return object
	case !hasLiteral:
		r.fields.report(provider.FindingBlocker, CodeFromEnvironment, name, "The old controller reads the value from its "+
			"environment. Put it into the Secret of spec.credentialsRef of the Migration.")
		return nil
	case !scalar(literal):
		f.report(provider.FindingBlocker, CodeWrongType, "value", "The value must be a string, a number, true or false, "+
			"not %s.", typeOf(literal))
		return nil
	}
	return literal
}

func scalar(value any) bool {
	switch value.(type) {
	case string, bool, int64, float64:
		return true
	}
	return false
}

// reference returns a reference to an entry, or nil if the reference is incomplete, because the old controller ignores
// such a reference.
func (f *fields) reference(name, kind string) *KeyRef {
	r := f.child(name)
	// The reference has the type of references in events, whose other fields do not matter here.
	r.ignore("kind", "apiVersion", "uid", "resourceVersion", "fieldPath")
	ref := &KeyRef{Kind: kind, Namespace: r.text("namespace"), Name: r.text("name"), Key: r.text("key")}
	if ref.Namespace == "" || ref.Name == "" || ref.Key == "" {
		return nil
	}
	return ref
}
