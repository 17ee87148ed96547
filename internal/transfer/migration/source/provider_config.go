package source

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/pkg/provider"
)

const (
	// CodeFromEnvironment: the old controller reads a value from its environment.
	CodeFromEnvironment = "FromEnvironment"
	// CodeUserData: the user data for new instances is not migrated, or expires.
	CodeUserData = "UserData"
)

// sshPublicKeys is next to the field cloudProviderSpec in old objects. Drivers expect this field inside of
// cloudProviderSpec.
const sshPublicKeys = "sshPublicKeys"

// providerConfig converts an instance description to a class. The class gets the content of the field
// cloudProviderSpec. The old system generates user data from the other fields. If userData names the Secret with the
// generated user data, the class refers to this Secret. Otherwise these fields are lost, and providerConfig reports the
// loss. If reportedBySet is true, the finding for the set already reports the loss. If the description is invalid, the
// result is nil.
func providerConfig(f *fields, userData *KeyRef, reportedBySet bool) *Class {
	class := &Class{Provider: f.text("cloudProvider"), UserData: userData, Path: f.pathOf("cloudProviderSpec")}
	if class.Provider == "" {
		if kind := f.text("kind"); kind != "" {
			return byKind(f, class, kind)
		}
		f.report(provider.FindingBlocker, CodeMissingField, "cloudProvider", "The description of the instance does not "+
			"name a cloud.")
	}
	if spec, found := fieldAs[map[string]any](f, "cloudProviderSpec", "an object"); found {
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
			"but its token expires. Name a Secret with your own template in spec.userDataRef of the Migration.",
			userData.Namespace, userData.Name)
	}
}

// byKind reads a description in the format of the early Cluster API. In this format, the field kind identifies the
// cloud instead of the field cloudProvider.
func byKind(f *fields, class *Class, kind string) *Class {
	class.Provider, class.Path, class.Spec = kind, f.path, runtime.DeepCopyJSON(f.object)
	// The driver reads all these fields and reports unknown fields.
	f.ignoreAll()
	return class
}

// resolve replaces literal variables in a description by their values. The method collects variables that refer to a
// Secret or ConfigMap.
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

// value returns a copy of a part of the description, in which the variables are resolved. The part is identified by its
// path in the description. Findings use the name, which is the path relative to r.fields.
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

// isVariable reports whether an object only has the fields of a variable, such as secretKeyRef. An empty object is not
// a variable, because it may be an empty map.
func isVariable(object map[string]any) bool {
	for key := range object {
		isPart := func(part string) bool { return strings.EqualFold(key, part) }
		if !slices.ContainsFunc([]string{"value", "secretKeyRef", "configMapKeyRef"}, isPart) {
			return false
		}
	}
	return len(object) > 0
}

// variable reads a variable. Like the old controller, it prefers a complete reference, then the literal value, and then
// the environment. A reference stays a reference in the class, because the Secret is read later. Therefore a changed
// value in the Secret does not change the name of the class.
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
		// If the provider needs the value, it reports a Blocker.
		r.fields.report(provider.FindingNote, CodeFromEnvironment, name, "The old controller reads the value from its "+
			"environment. The provider reads it from the Secret of --credentials.")
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

// reference returns a reference to one entry of a Secret or ConfigMap. If the reference is incomplete, the result is
// nil, because the old controller ignores incomplete references.
func (f *fields) reference(name, kind string) *KeyRef {
	r := f.child(name)
	// The other fields of an ObjectReference have no effect here.
	r.ignore("kind", "apiVersion", "uid", "resourceVersion", "fieldPath")
	ref := &KeyRef{Kind: kind, Namespace: r.text("namespace"), Name: r.text("name"), Key: r.text("key")}
	if ref.Namespace == "" || ref.Name == "" || ref.Key == "" {
		return nil
	}
	return ref
}
