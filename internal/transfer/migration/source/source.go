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

// System is a system whose fleets Machinist can take over.
type System interface {
	// Group returns the API group of its machines, by which a Migration names the system.
	Group() string
	// Kinds returns its kinds in the order in which to read them: kinds that others refer to come first.
	Kinds() []Kind
	// Leases returns the Leases of its controllers. One without a namespace is in the namespace of the controllers or of
	// the objects.
	Leases() []types.NamespacedName
	// NodeTraces returns what the system leaves on Nodes.
	NodeTraces() NodeTraces
	// Convert converts one object of the system. It never fails: if the object cannot be converted, a finding is a
	// Blocker.
	Convert(role Role, old *unstructured.Unstructured, flags Flags) Converted
}

// Role is the purpose of a kind.
type Role string

// The roles.
const (
	RoleClass       Role = "class"
	RoleDeployment  Role = "deployment"
	RoleSet         Role = "set"
	RoleMachine     Role = "machine"
	RoleHealthCheck Role = "health check"
)

// Kind is a kind of an old system.
type Kind struct {
	Role Role
	schema.GroupVersionKind
	// Resource is the plural name of the kind in the API.
	Resource string
	// ClusterScoped is true if the kind has no namespace.
	ClusterScoped bool
	// Optional is true if some installations do not have the kind.
	Optional bool
}

// kindsOf returns a function that creates namespaced kinds of a group and version.
func kindsOf(group, version string) func(role Role, kind, resource string) Kind {
	return func(role Role, kind, resource string) Kind {
		return Kind{Role: role, Resource: resource,
			GroupVersionKind: schema.GroupVersionKind{Group: group, Version: version, Kind: kind}}
	}
}

// Flags are the flags of the old controllers that change what an object means, by name without dashes.
type Flags map[string]string

// NodeTraces are what an old system leaves on the Nodes of its machines. It is removed when the migration is committed.
// A key that ends in a slash stands for all keys of that domain.
type NodeTraces struct {
	Finalizers  []string
	Labels      []string
	Annotations []string
	// Marked are annotations that other systems may also set. The key of the map is a second annotation, with which the
	// old system marks that it set the first. If the mark exists, both are removed, else neither.
	Marked map[string]string
	// Taints are the keys of taints, with any effect.
	Taints []string
	// OwnerGroups are the API groups whose owner references are removed.
	OwnerGroups []string
}

// Converted is the result of converting one old object.
type Converted struct {
	// Object is a *v1beta1.MachineDeployment, *v1beta1.MachineSet, *v1beta1.Machine or *v1beta1.MachineHealthCheck with
	// name, labels, annotations and specification. The caller sets the namespace, the owners, the finalizers and the
	// references to classes, Secrets and providers. Object is nil for a class, and if the old object is not converted.
	Object client.Object
	// Class describes the instances: it is the old class, or the description in the object. It is nil if ClassName is set.
	Class *Class
	// ClassName is the name of the old class that the object refers to, in the namespace of the object.
	ClassName string
	// Check is a health check that does what the old system did with the machines of the deployment or set without having
	// an object for it. Its selector is that of Object.
	Check *v1beta1.MachineHealthCheck
	// Machine is the state of the machine, for RoleMachine.
	Machine *Machine
	// Later are annotations on which Machinist acts. Object gets them when the old system is gone.
	Later map[string]string
	// Findings are what the user must know. Their paths are relative to the old object.
	Findings []provider.Finding
}

// Blocked reports whether a finding is a Blocker.
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
	// Owner is the UID of the set that controls the machine, or empty.
	Owner types.UID
	// ProviderID is the provider ID in the old object, or empty. Machinist's driver may spell it differently.
	ProviderID string
	// NodeName is the name of the Node that the old object names, or empty.
	NodeName string
	// Deleting is true if the deletion of the machine was requested.
	Deleting bool
	// Updating is true if the old system is updating the machine in place.
	Updating bool
	// Failed is true if the old system considers the machine failed.
	Failed bool
}

// Class is the old system's description of instances.
type Class struct {
	// Name is the name of the MachineClass to create. If it is empty, the name follows from the content (ContentName).
	Name string
	// Provider is the old system's name of the cloud.
	Provider string
	// Spec is the description of the instance, a JSON object as in the old object.
	Spec map[string]any
	// Path is the path of Spec in the old object.
	Path string
	// Values are the references in Spec to values. The values replace them.
	Values []Value
	// Credentials are the Secrets with the credentials. If several have a key, the last one is used.
	Credentials []types.NamespacedName
	// UserData is the Secret with the user data, or nil if the old system generated the user data itself.
	UserData *KeyRef
	// Capacity is what a node of the class offers, or nil if the old object does not contain it.
	Capacity *v1beta1.ClassCapacity
}

// Value is a place in a description whose value is in a Secret or ConfigMap.
type Value struct {
	// Path is the path of the place in Class.Spec. List indexes are decimal numbers.
	Path []string
	From KeyRef
}

// KeyRef names one entry of a Secret or ConfigMap.
type KeyRef struct {
	// Kind is Secret or ConfigMap.
	Kind      string
	Namespace string
	Name      string
	Key       string
}

// ContentName returns a name for a class without one. Equal content has the same name. The hash covers no secret,
// because values in Secrets are only references.
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

// SameInstances reports whether instances of both classes are created in the same way. If this is true of a Machine's
// class and its set's class, the Machine uses the class of the set. User data and capacity only matter for new
// instances, and an old Machine does not contain them.
func (c *Class) SameInstances(other *Class) bool {
	description := func(c *Class) *Class {
		return &Class{Provider: c.Provider, Spec: c.Spec, Values: c.Values, Credentials: c.Credentials}
	}
	return equality.Semantic.DeepEqual(description(c), description(other))
}

// Systems returns all systems by their groups.
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
