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

// System is one of the systems whose fleets can be taken over.
type System interface {
	// Group is the API group of its machines, by which a Migration names it.
	Group() string
	// Kinds are its kinds, in the order in which they are read: what others refer to comes first.
	Kinds() []Kind
	// Leases are those that its controllers hold. One without a namespace is in that of the controllers or of the objects.
	Leases() []types.NamespacedName
	// NodeTraces are what it leaves on Nodes.
	NodeTraces() NodeTraces
	// Convert says what one object of it is in Machinist's terms. It never fails: what cannot be converted is a Blocker.
	Convert(role Role, old *unstructured.Unstructured, flags Flags) Converted
}

// Role is what a kind of an old system is for.
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
	// Resource is the plural by which the API serves it.
	Resource string
	// ClusterScoped is true for a kind without a namespace.
	ClusterScoped bool
	// Optional is true for a kind that not every installation has.
	Optional bool
}

// kindsOf returns what makes namespaced kinds of a group and version.
func kindsOf(group, version string) func(role Role, kind, resource string) Kind {
	return func(role Role, kind, resource string) Kind {
		return Kind{Role: role, Resource: resource,
			GroupVersionKind: schema.GroupVersionKind{Group: group, Version: version, Kind: kind}}
	}
}

// Flags are those of the old controllers' processes that change what an object means, by name without dashes.
type Flags map[string]string

// NodeTraces are what an old system leaves on the Nodes of its machines, and what is removed when the migration is
// committed. A key that ends in a slash stands for all keys of that domain.
type NodeTraces struct {
	Finalizers  []string
	Labels      []string
	Annotations []string
	// Marked are annotations that others may have set as well. By the key of a mark, an annotation too, which the old
	// system sets with them: both are removed where the mark is there, and neither where it is not.
	Marked map[string]string
	// Taints are keys, whatever the effect.
	Taints []string
	// OwnerGroups are the API groups whose owner references are removed.
	OwnerGroups []string
}

// Converted is what one old object is in Machinist's terms.
type Converted struct {
	// Object is a *v1beta1.MachineDeployment, *v1beta1.MachineSet, *v1beta1.Machine or *v1beta1.MachineHealthCheck with
	// name, labels, annotations and specification, without namespace, owners, finalizers and references to classes,
	// Secrets and providers, which are found elsewhere. It is nil for a class, and where nothing is made of the object.
	Object client.Object
	// Class describes the instances: the class itself, or what the object describes inline. Nil where ClassName is set.
	Class *Class
	// ClassName is the name of the old class that the object refers to; its namespace is the object's.
	ClassName string
	// Check is the health check that stands for what the old system did with the machines of the deployment or set
	// without an object for it. Its selector is that of Object.
	Check *v1beta1.MachineHealthCheck
	// Machine is what is known of the one machine, for RoleMachine.
	Machine *Machine
	// Later are annotations that Object gets when the old system is gone: those on which Machinist acts.
	Later map[string]string
	// Findings are what a person has to know. Their paths begin at the old object.
	Findings []provider.Finding
}

// Blocked reports whether a finding keeps the object from being converted.
func (c Converted) Blocked() bool {
	for _, f := range c.Findings {
		if f.Level == provider.FindingBlocker {
			return true
		}
	}
	return false
}

// Machine is what an old object says of its one machine.
type Machine struct {
	// Owner is the UID of the set that controls it, empty if none does.
	Owner types.UID
	// ProviderID as the old object has it; it may be spelled otherwise than ours. Empty where it has none.
	ProviderID string
	// NodeName is the name of its Node, empty where the object names none.
	NodeName string
	// Deleting: it was asked to be deleted.
	Deleting bool
	// Updating: it is being changed in place.
	Updating bool
	// Failed: the old system judged it so.
	Failed bool
}

// Class describes instances as the old system does.
type Class struct {
	// Name is that of the MachineClass to make. Empty: one by the content (ContentName).
	Name string
	// Provider is the old system's name of the cloud.
	Provider string
	// Spec is the description of the instance, a JSON object as it is in the old object.
	Spec map[string]any
	// Path is where Spec is in the old object.
	Path string
	// Values are the references in Spec that stand for values: what they refer to replaces them.
	Values []Value
	// Credentials are the Secrets with the account; of keys that several have, the last wins.
	Credentials []types.NamespacedName
	// UserData is the Secret with the bootstrap data; nil where the old system made them itself.
	UserData *KeyRef
	// Capacity is what a node of the class offers, where the old object has it.
	Capacity *v1beta1.ClassCapacity
}

// Value is a place in a description whose value is in a Secret or ConfigMap.
type Value struct {
	// Path are the keys, and indexes as decimal numbers, to the place in Class.Spec.
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

// ContentName returns a name for a class without one: the same for the same content. It holds no secret: values that
// are in Secrets are in it as references.
func (c *Class) ContentName(prefix string) string {
	data, _ := json.Marshal(struct { // What was read from JSON can be written as JSON.
		Provider    string
		Spec        map[string]any
		Credentials []types.NamespacedName
		UserData    *KeyRef
		Capacity    *v1beta1.ClassCapacity
	}{c.Provider, c.Spec, c.Credentials, c.UserData, c.Capacity})
	sum := sha256.Sum256(data)
	return prefix + "-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:5]))
}

// SameInstances reports whether instances of both classes are made alike. A Machine whose class and that of its set are
// the same in this respect uses the class of the set. User data and capacity matter for new instances only, and an old
// Machine does not know them.
func (c *Class) SameInstances(other *Class) bool {
	plain := func(c *Class) *Class {
		return &Class{Provider: c.Provider, Spec: c.Spec, Values: c.Values, Credentials: c.Credentials}
	}
	return equality.Semantic.DeepEqual(plain(c), plain(other))
}

// Systems are all systems, by their groups.
func Systems() map[string]System {
	all := map[string]System{}
	for _, s := range systems {
		all[s.Group()] = s
	}
	return all
}

// systems has one entry for each system that is known.
var systems = []System{
	machineK8s{provider.SourceMachineK8s},
	machineK8s{provider.SourceMachinesK8s},
	clusterK8s{},
	machineSapcloud{},
	machineOpenShift{},
}
