package source

import (
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/pkg/provider"
)

// Codes of findings about the description of an instance by Kubermatic's machine-controller.
const (
	// CodeFromEnvironment: a value is taken from the environment of the old controller's process.
	CodeFromEnvironment = "FromEnvironment"
	// CodeUserData: the user data of new instances does not come over, or only for a time.
	CodeUserData = "UserData"
)

// sshPublicKeys is the key of the SSH public keys, a list of strings, in the description of an instance by Kubermatic's
// machine-controller. There they are beside the cloud's part, and drivers need them.
const sshPublicKeys = "sshPublicKeys"

// providerConfig reads the description of an instance. The cloud's part becomes the class; the rest, from which
// machine-controller made user data, is lost unless userData names a Secret with the result. silent is for a machine
// whose set reports the user data. It returns nil where nothing describes the instance.
func providerConfig(f *fields, userData *KeyRef, silent bool) *Class {
	class := &Class{Provider: f.text("cloudProvider"), UserData: userData, Path: f.at("cloudProviderSpec")}
	if class.Provider == "" {
		if kind := f.text("kind"); kind != "" {
			return byKind(f, class, kind)
		}
		f.find(provider.FindingBlocker, CodeMissingField, "cloudProvider", "The description of the instance names no "+
			"cloud.")
	}
	if spec, found := typed[map[string]any](f, "cloudProviderSpec", "an object"); found {
		class.resolve(f, spec, "cloudProviderSpec")
	} else {
		f.find(provider.FindingBlocker, CodeMissingField, "cloudProviderSpec", "The instance is not described.")
	}
	if _, found := class.Spec[sshPublicKeys]; found {
		f.find(provider.FindingBlocker, CodeInvalidValue, "cloudProviderSpec."+sshPublicKeys, "The SSH keys belong beside "+
			"cloudProviderSpec. Remove them from it.")
	}
	if keys := f.texts(sshPublicKeys); len(keys) > 0 && class.Spec != nil {
		list := make([]any, len(keys))
		for i, key := range keys {
			list[i] = key
		}
		class.Spec[sshPublicKeys] = list
	}
	f.loses("Machinist gives no static network configuration to instances.", "network")
	madeUserData(f, userData, silent)
	if class.Provider == "" || class.Spec == nil {
		return nil
	}
	return class
}

// madeUserData reads the fields from which the old controller made user data.
func madeUserData(f *fields, userData *KeyRef, silent bool) {
	for _, name := range []string{"operatingSystem", "operatingSystemSpec", "caPublicKey", "overwriteCloudConfig"} {
		if value, found := f.get(name); found && !empty(value) && userData == nil && !silent {
			f.find(provider.FindingLoss, CodeUserData, name, "The old controller made user data from it, which does not "+
				"come over. Name a Secret with user data for new machines in spec.userDataRef of the Migration.")
		}
	}
	if userData != nil {
		f.find(provider.FindingLoss, CodeUserData, "operatingSystem", "The user data in the Secret %s/%s is taken over, "+
			"but its token expires. Give the class another userDataRef in spec.overrides of the Migration.",
			userData.Namespace, userData.Name)
	}
}

// byKind reads a description that has a kind of its own instead of cloudProvider, as the Cluster API's had.
func byKind(f *fields, class *Class, kind string) *Class {
	class.Provider, class.Path, class.Spec = kind, f.path, runtime.DeepCopyJSON(f.object)
	// The driver reads all of it, and reports what it does not know.
	f.ignoreAll()
	return class
}

// resolve puts literals where the old object has variables, and collects those that refer to a Secret or ConfigMap.
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

// value returns a copy of a part of the description. path leads to it in the description, name from the fields.
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

// isVariable reports whether an object stands for a value. An empty one does not: it may be an empty map.
func isVariable(object map[string]any) bool {
	for key := range object {
		if key != "value" && key != "secretKeyRef" && key != "configMapKeyRef" {
			return false
		}
	}
	return len(object) > 0
}

// variable reads an object that stands for a value, in the order of the old controller: a whole reference, else the
// literal, else the environment. Of a reference the object itself stays in the description until its value is known, so
// that the name of the class depends on it.
func (r *resolver) variable(object map[string]any, path []string, name string) any {
	f := r.fields.add(object, r.fields.at(name))
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
		r.fields.find(provider.FindingBlocker, CodeFromEnvironment, name, "The value is taken from the environment of the "+
			"old controller; give it in spec.credentialsRef of the Migration.")
		return nil
	case !scalar(literal):
		f.find(provider.FindingBlocker, CodeWrongType, "value", "It must be a string, a number, or true or false, not %s.",
			typeOf(literal))
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

// reference reads a reference to an entry, nil where it is not whole: the old controller ignores such a one.
func (f *fields) reference(name, kind string) *KeyRef {
	r := f.child(name)
	// The reference is that of events, whose other fields mean nothing here.
	r.ignore("kind", "apiVersion", "uid", "resourceVersion", "fieldPath")
	ref := &KeyRef{Kind: kind, Namespace: r.text("namespace"), Name: r.text("name"), Key: r.text("key")}
	if ref.Namespace == "" || ref.Name == "" || ref.Key == "" {
		return nil
	}
	return ref
}
