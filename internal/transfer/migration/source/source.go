package source

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// System is an old system whose fleets Machinist can migrate.
type System interface {
	// Group returns the API group of the system's machines. A Migration names the system by this group.
	Group() string
	// Kinds returns the kinds of the system in the order in which they are read. A kind comes before the kinds that refer
	// to it.
	Kinds() []Kind
	// Leases returns the Leases of the system's controllers. If a Lease has no namespace here, it is in the namespace of
	// the controllers or in the namespace of the objects.
	Leases() []types.NamespacedName
	// NodeTraces returns the labels, annotations and other traces of the system on Nodes.
	NodeTraces() NodeTraces
	// Convert converts one object of the system to objects of Machinist. It does not return an error. If the object cannot
	// be converted, the result contains a Blocker.
	Convert(role Role, old *unstructured.Unstructured, flags Flags) Converted
}

// Role describes what the objects of a kind are for, such as machines or sets.
type Role string

// The roles.
const (
	RoleClass       Role = "class"
	RoleDeployment  Role = "deployment"
	RoleSet         Role = "set"
	RoleMachine     Role = "machine"
	RoleHealthCheck Role = "health check"
)

// Kind is an API kind of an old system.
type Kind struct {
	Role Role
	schema.GroupVersionKind
	// Resource is the plural name of the kind, as in API paths.
	Resource string
	// ClusterScoped is true if objects of the kind have no namespace.
	ClusterScoped bool
	// Optional is true if some installations do not have the kind.
	Optional bool
}

// kindsOf returns a function with which a system describes its namespaced kinds of one group and version.
func kindsOf(group, version string) func(role Role, kind, resource string) Kind {
	return func(role Role, kind, resource string) Kind {
		return Kind{Role: role, Resource: resource,
			GroupVersionKind: schema.GroupVersionKind{Group: group, Version: version, Kind: kind}}
	}
}

// Flags are flags of the old controllers that affect the meaning of objects. The keys are the names of the flags
// without dashes.
type Flags map[string]string

// NodeTraces are the traces of an old system on the Nodes of its machines. The migrator removes them when the migration
// is committed. If a key ends in a slash, it covers all keys of that domain.
type NodeTraces struct {
	Finalizers  []string
	Labels      []string
	Annotations []string
	// Marked contains annotations that other systems may set, too. If the old system has set such an annotation, it has
	// also set a second annotation as a mark. In the map, the key is this second annotation, and the value is the first
	// annotation. If the second annotation exists, the migrator removes both annotations. Otherwise it removes neither of
	// them.
	Marked map[string]string
	// Taints are the keys of taints. The effect of a taint does not matter.
	Taints []string
	// OwnerGroups are API groups. Owner references to objects of these groups are removed.
	OwnerGroups []string
}

// Converted is the result of the conversion of one old object.
type Converted struct {
	// Object is the new object: a *v1beta1.MachineDeployment, *v1beta1.MachineSet, *v1beta1.Machine or
	// *v1beta1.MachineHealthCheck with a name, labels, annotations and a spec. The caller sets the namespace, the owner
	// references, the finalizers, and the references to classes, Secrets and providers. Object is nil for a class. Object
	// is also nil if the old object is not converted.
	Object client.Object
	// Class describes the instances. The description comes from an old class, or from the old object itself. Class is nil
	// if ClassName is set.
	Class *Class
	// ClassName is the name of the old class to which the old object refers. The class is in the same namespace as the old
	// object.
	ClassName string
	// Check is a new health check for a deployment or set. Check is set if the old system checked the health of the
	// machines without a separate object. Check has the same selector as Object.
	Check *v1beta1.MachineHealthCheck
	// Machine is the state of the old machine. It is only set for RoleMachine.
	Machine *Machine
	// Later contains annotations on which Machinist must not act before the old system has been removed. Object gets these
	// annotations after that.
	Later map[string]string
	// Findings are problems and losses that the user must know. The paths in the findings are relative to the old object.
	Findings []provider.Finding
}

// Blocked reports whether the findings contain a Blocker.
func (c Converted) Blocked() bool {
	for _, f := range c.Findings {
		if f.Level == provider.FindingBlocker {
			return true
		}
	}
	return false
}

// Machine is the state of a single old machine.
type Machine struct {
	// Owner is the UID of the set that controls the machine, or empty if no set controls the machine.
	Owner types.UID
	// ProviderID is the provider ID in the old object. It may be empty. The format may differ from that of Machinist's
	// driver.
	ProviderID string
	// NodeName is the name of the Node in the old object. It may be empty.
	NodeName string
	// Deleting is true if the deletion of the machine was requested.
	Deleting bool
	// Updating is true if the old system is updating the machine in place.
	Updating bool
	// Failed is true if the old system considers the machine failed.
	Failed bool
}

// Class is a description of instances in the old system.
type Class struct {
	// Name is the name of the MachineClass that the migration creates. If Name is empty, ContentName generates a name from
	// the content.
	Name string
	// Provider is the name of the cloud in the old system.
	Provider string
	// Spec is the description of the instance. Spec is the same JSON object as in the old object.
	Spec map[string]any
	// Path is the path of Spec in the old object.
	Path string
	// Values are the parts of Spec that refer to a Secret or ConfigMap. The values in the Secret or ConfigMap replace
	// these parts.
	Values []Value
	// Credentials are the Secrets that contain the credentials. If several Secrets contain the same key, the last Secret
	// takes precedence.
	Credentials []types.NamespacedName
	// UserData is the Secret with the user data, or nil if the old system generated the user data.
	UserData *KeyRef
	// Capacity is the capacity of a Node of the class, or nil if the old object does not contain the capacity.
	Capacity *v1beta1.ClassCapacity
}

// Value is a part of a description whose value is stored in a Secret or ConfigMap.
type Value struct {
	// Path is the path of this part in Class.Spec. List indexes are decimal numbers.
	Path []string
	From KeyRef
}

// KeyRef is a reference to one key of a Secret or ConfigMap.
type KeyRef struct {
	// Kind is Secret or ConfigMap.
	Kind      string
	Namespace string
	Name      string
	Key       string
}

// ContentName generates a name for a class that has no name. Classes with equal content get the same name. The name
// contains a hash of the content. The content contains references to Secrets instead of their values, so the hash does
// not depend on secret values.
func (c *Class) ContentName(prefix string) string {
	data, _ := json.Marshal(struct { // Values that were decoded from JSON can be encoded.
		Provider    string
		Spec        map[string]any
		Credentials []types.NamespacedName
		UserData    *KeyRef
		Capacity    *v1beta1.ClassCapacity
	}{c.Provider, c.Spec, c.Credentials, c.UserData, c.Capacity})
	sum := sha256.Sum256(data)
	return prefix + "-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:5]))
}

// SameInstances reports whether two classes create equal instances. If the class of a Machine and the class of its set
// create equal instances, the Machine uses the class of the set. The comparison ignores user data and capacity. User
// data and capacity only matter for new instances, and an old Machine does not contain them.
func (c *Class) SameInstances(other *Class) bool {
	description := func(c *Class) *Class {
		return &Class{Provider: c.Provider, Spec: c.Spec, Values: c.Values, Credentials: c.Credentials}
	}
	return equality.Semantic.DeepEqual(description(c), description(other))
}

// Systems returns all supported systems, by API group.
func Systems() map[string]System {
	all := map[string]System{}
	for _, s := range systems {
		all[s.Group()] = s
	}
	return all
}

// systems has one entry for each supported API group.
var systems = []System{
	machineK8s{provider.SourceMachineK8s},
	machineK8s{provider.SourceMachinesK8s},
	clusterK8s{},
	machineSapcloud{},
	machineOpenShift{},
}
