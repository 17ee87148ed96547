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
	// Group returns the API group of the system's machines. The group is the value of spec.source in a Migration.
	Group() string
	// Kinds returns the kinds that the migration reads. A kind comes before the kinds that refer to it.
	Kinds() []Kind
	// Leases returns the Leases of the system's controllers for a cloud, which is named like Machinist's provider. A
	// Lease without a namespace is in the namespace of the controllers or of the objects.
	Leases(cloud string) []types.NamespacedName
	// NodeTraces returns the finalizers, labels, annotations and taints that the system writes to Nodes.
	NodeTraces() NodeTraces
	// Flags returns the names of the flags that Convert reads.
	Flags() []string
	// Convert converts one object. If the object cannot be converted, the result contains a Blocker.
	Convert(role Role, old *unstructured.Unstructured, flags Flags) Converted
}

// Linked is implemented by a System whose objects refer to objects in other API groups.
type Linked interface {
	System
	// With returns a System that finds these objects. Without them, Convert reports Blockers.
	With(Objects) System
}

// Objects finds objects to which old objects refer.
type Objects interface {
	// Find returns an object, or nil if it does not exist. The namespace is ignored for objects without a namespace.
	Find(kind schema.GroupKind, namespace, name string) *unstructured.Unstructured
	// All returns all objects of a kind in a namespace, sorted by name.
	All(kind schema.GroupKind, namespace string) []*unstructured.Unstructured
}

// Pausable is implemented by a System whose controllers ignore objects while another object is paused.
type Pausable interface {
	// PausedKind returns the kind with the field spec.paused.
	PausedKind() Kind
}

// Role is the purpose of a kind, such as machines or sets.
type Role string

// Roles of objects.
const (
	RoleClass       Role = "class"
	RoleDeployment  Role = "deployment"
	RoleSet         Role = "set"
	RoleMachine     Role = "machine"
	RoleHealthCheck Role = "health check"
	// RoleOther is the role of objects that Machinist does not have. They stay with the old system.
	RoleOther Role = "other object"
)

// Kind is an API kind of an old system.
type Kind struct {
	Role Role
	schema.GroupVersionKind
	// Resource is the plural name of the kind, as in API paths.
	Resource string
	// ClusterScoped is true if objects of the kind have no namespace.
	ClusterScoped bool
	// Optional is true if some installations lack the kind.
	Optional bool
	// OlderVersions are the versions of the API that older releases serve, the newest first.
	OlderVersions []string
}

func kindsOf(group, version string) func(role Role, kind, resource string) Kind {
	return func(role Role, kind, resource string) Kind {
		return Kind{Role: role, Resource: resource,
			GroupVersionKind: schema.GroupVersionKind{Group: group, Version: version, Kind: kind}}
	}
}

// Flags are flags of the old controllers that affect the meaning of objects. The keys have no dashes.
type Flags map[string]string

// NodeTraces holds the keys that an old system writes to Nodes. The migrator removes these keys from the Nodes at the
// commit. A key with a final slash covers all keys of a domain.
type NodeTraces struct {
	Finalizers  []string
	Labels      []string
	Annotations []string
	// MarkedAnnotations maps an annotation of the old system to another annotation, which other systems may set too.
	// If a Node has the annotation of the old system, the migrator removes both annotations from the Node. Otherwise
	// the migrator keeps the other annotation.
	MarkedAnnotations map[string]string
	// Taints lists keys of taints. The migrator removes the taints with these keys, regardless of the effect.
	Taints []string
	// OwnerGroups are API groups whose owner references are removed.
	OwnerGroups []string
}

// Converted is the result of converting one old object.
type Converted struct {
	// Object is the new MachineDeployment, MachineSet, Machine or MachineHealthCheck. The caller sets its namespace,
	// owner references, finalizers, and references to classes, Secrets and providers. Object is nil for classes, and
	// for objects that are not converted.
	Object client.Object
	// Class describes the instances. The description comes from an old class or from the old object itself. The field
	// is nil if ClassName is set.
	Class *Class
	// ClassName is the old class to which the object refers, in the same namespace.
	ClassName string
	// HealthCheck is an additional MachineHealthCheck with the selector of the converted deployment or set. The field
	// is set if the old system checked the health of machines without a separate object.
	HealthCheck *v1beta1.MachineHealthCheck
	// Machine is the state of the old machine, only for RoleMachine.
	Machine *Machine
	// LaterAnnotations contains the annotations that the migrator adds to Object after the old system has been
	// removed.
	LaterAnnotations map[string]string
	// Findings are problems and losses for the user. The paths of findings are relative to the old object.
	Findings []provider.Finding
}

// HasBlocker reports whether the findings contain a Blocker.
func (c Converted) HasBlocker() bool {
	for _, f := range c.Findings {
		if f.Level == provider.FindingBlocker {
			return true
		}
	}
	return false
}

// Machine is the state of a single old machine.
type Machine struct {
	// Owner is the UID of the controlling set, or empty.
	Owner types.UID
	// ProviderID is the provider ID in the old object. It may be empty, or differ from the format of Machinist's
	// driver.
	ProviderID string
	// NodeName is the name of the Node in the old object, or empty.
	NodeName string
	// Deleting is true if the deletion of the machine was requested.
	Deleting bool
	// Updating is true if the old system is updating the machine in place.
	Updating bool
	// Failed is true if the old system considers the machine failed.
	Failed bool
	// Parts are other objects of the machine, which are removed together with it.
	Parts []Part
}

// Part names an object in the namespace of a machine.
type Part struct {
	schema.GroupKind
	Name string
	// OfPart is true if only another part leads to the object, which must therefore be removed before that part.
	OfPart bool `json:",omitempty"`
}

// Class describes instances as the old system does: their cloud, specification, credentials and user data.
type Class struct {
	// Name is the name of the new MachineClass. If the field is empty, ContentName generates a name.
	Name string
	// Provider is the name of the cloud in the old system.
	Provider string
	// Spec is the description of the instance, as in the old object.
	Spec map[string]any
	// Path is the path of Spec in the old object.
	Path string
	// Values lists the fields of Spec that must be filled from a Secret or ConfigMap.
	Values []Value
	// Credentials names the Secrets with which the old controller logs in to the cloud. If several Secrets have the
	// same key, the last Secret takes precedence.
	Credentials []types.NamespacedName
	// UserData is the Secret with the user data, or nil if the old system generated it.
	UserData *KeyRef
	// Capacity is the capacity of a Node of the class, or nil if unknown.
	Capacity *v1beta1.ClassCapacity
}

// Value describes one field of Class.Spec that must be filled from a Secret or ConfigMap.
type Value struct {
	// Path locates the field in Class.Spec. List indexes are decimal numbers.
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

// ContentName generates a class name from a hash of the content. The content has references to Secrets instead of their
// values. Descriptions that differ only in empty fields have the same name.
func (c *Class) ContentName(prefix string) string {
	data, _ := json.Marshal(struct { // Decoded JSON can always be encoded.
		Provider    string
		Spec        any
		Credentials []types.NamespacedName
		UserData    *KeyRef
		Capacity    *v1beta1.ClassCapacity
	}{c.Provider, withoutEmpty(c.Spec), c.Credentials, c.UserData, c.Capacity})
	sum := sha256.Sum256(data)
	return prefix + "-" + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:5]))
}

// SameInstances reports whether two classes create equal instances. A Machine then uses the class of its set. Empty
// fields are ignored. User data and capacity are ignored, because an old Machine does not contain them and only new
// instances need them.
func (c *Class) SameInstances(other *Class) bool {
	return c.Provider == other.Provider &&
		equality.Semantic.DeepEqual(withoutEmpty(c.Spec), withoutEmpty(other.Spec)) &&
		equality.Semantic.DeepEqual(c.Values, other.Values) &&
		equality.Semantic.DeepEqual(c.Credentials, other.Credentials)
}

// Systems returns all supported systems by API group.
func Systems() map[string]System {
	all := map[string]System{}
	for _, s := range systems {
		all[s.Group()] = s
	}
	return all
}

var systems = []System{
	machineK8s{provider.SourceMachineK8s},
	machineK8s{provider.SourceMachinesK8s},
	clusterK8s{},
	machineSapcloud{},
	machineOpenShift{},
	clusterAPI{},
}
