package orphans

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/health/orphans/ledger"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/pkg/provider"
)

// inputs holds the data for access to the cloud, from a MachineClass or from Machines without a class.
type inputs struct {
	source      client.Object
	namespace   string
	credentials *v1beta1.LocalRef
	spec        resolve.Inputs
}

// scope is the part of a cloud that one list covers.
type scope struct {
	// sources holds the classes and Machines whose credentials and spec belong to this scope. source is the first
	// element of sources.
	source   client.Object
	sources  []client.Object
	class    provider.Class
	machines []*v1beta1.Machine
}

func (s *scope) hasClassIn(namespace string) bool { return s.classIn(namespace) != nil }

func (s *scope) classIn(namespace string) client.Object {
	for _, source := range s.sources {
		if _, isClass := source.(*v1beta1.MachineClass); isClass && source.GetNamespace() == namespace {
			return source
		}
	}
	return nil
}

// sourceOf returns the object on which the orphans of a namespace are reported. sourceOf prefers a class of the
// namespace. If the scope has no such class, it returns the first class or Machine of the scope.
func (s *scope) sourceOf(namespace string) client.Object {
	if class := s.classIn(namespace); class != nil {
		return class
	}
	return s.source
}

// confirms reports whether an annotation of the given class or Machine may confirm the removal of a namespace's
// orphans. A user who may write the classes of one namespace must not decide about the instances of another namespace.
// So the object must be in the same namespace, unless no class of that namespace can find the orphans. For the
// namespaces in the map unlisted, it is unknown whether their classes can find the orphans, because lists are
// incomplete.
func (s *scope) confirms(source client.Object, namespace string, unlisted map[string]bool) bool {
	return source.GetNamespace() == namespace || !s.hasClassIn(namespace) && !unlisted[namespace]
}

type snapshot struct {
	// providerIDs holds the provider IDs of all Machines by UID. The ID may be empty.
	providerIDs map[types.UID]string
	machines    map[types.UID]*v1beta1.Machine
	inputs      map[string]inputs
	// expectedMachines holds the Machines with a running or stopped instance, by the key of their inputs. A complete list
	// contains the instances of these Machines.
	expectedMachines map[string][]*v1beta1.Machine
}

// readCache must be called before the instances are listed. Then every instance that a Machine in the cache has
// recorded existed before the list. The cache shares the objects, so the caller must not change the objects.
func (c *Collector) readCache(ctx context.Context) (*snapshot, error) {
	namespace := client.InNamespace(c.Rules.Namespace)
	machines, err := index.ListShared[v1beta1.Machine](ctx, c.Client, &v1beta1.MachineList{}, namespace)
	if err != nil {
		return nil, fmt.Errorf("list machines from the cache: %w", err)
	}
	classes, err := c.allClasses(ctx)
	if err != nil {
		return nil, err
	}
	f := &snapshot{
		providerIDs: map[types.UID]string{}, machines: map[types.UID]*v1beta1.Machine{},
		inputs: map[string]inputs{}, expectedMachines: map[string][]*v1beta1.Machine{},
	}
	for _, class := range classes {
		if class.Spec.Provider == c.Cloud.Name() {
			spec := resolve.OfClass(class)
			f.inputs[classKey(class.Namespace, class.Name)] = inputs{class, class.Namespace, spec.CredentialsRef, spec}
		}
	}
	for _, m := range machines {
		f.providerIDs[m.UID], f.machines[m.UID] = m.Spec.ProviderID, m
		key := c.keyOf(m)
		if _, known := f.inputs[key]; !known && m.Spec.ClassRef == nil && key != "" {
			f.inputs[key] = inputs{m, m.Namespace, m.Spec.CredentialsRef, inlineOf(m)}
		}
		if in, known := f.inputs[key]; known && c.shouldBeListed(m, in) {
			f.expectedMachines[key] = append(f.expectedMachines[key], m)
		}
	}
	return f, nil
}

// allClasses returns the classes of all shards. A namespace of this shard may have orphans but no class anymore. Such
// orphans can only be found with the credentials of a class in another namespace, which may belong to another shard.
func (c *Collector) allClasses(ctx context.Context) ([]*v1beta1.MachineClass, error) {
	if c.Rules.Shard.IsUndivided() {
		classes, err := index.ListShared[v1beta1.MachineClass](ctx, c.Client, &v1beta1.MachineClassList{},
			client.InNamespace(c.Rules.Namespace))
		if err != nil {
			return nil, fmt.Errorf("list classes from the cache: %w", err)
		}
		return classes, nil
	}
	list := &v1beta1.MachineClassList{}
	if err := c.LiveClient.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list the classes of all shards: %w", err)
	}
	classes := make([]*v1beta1.MachineClass, len(list.Items))
	for i := range list.Items {
		classes[i] = &list.Items[i]
	}
	return classes, nil
}

// keyOf returns the key of a Machine's inputs, or "" if it has none for this provider.
func (c *Collector) keyOf(m *v1beta1.Machine) string {
	switch {
	case m.Spec.ClassRef != nil:
		return classKey(m.Namespace, m.Spec.ClassRef.Name)
	case m.Spec.Provider != c.Cloud.Name() || m.Spec.ProviderSpec == nil:
		return ""
	}
	credentials := ""
	if m.Spec.CredentialsRef != nil {
		credentials = m.Spec.CredentialsRef.Name
	}
	return fmt.Sprintf("machines/%s/%s/%s", m.Namespace, credentials, inlineOf(m).SpecHash())
}

func classKey(namespace, name string) string { return "class/" + namespace + "/" + name }

func inlineOf(m *v1beta1.Machine) resolve.Inputs {
	return resolve.Inputs{Provider: m.Spec.Provider, ProviderSpec: m.Spec.ProviderSpec.Raw}
}

// shouldBeListed reports whether a Machine's controller must check an instance that no list contains. Controllers
// always check instances that are being created or removed. If the kubelet still reports, the instance exists, and the
// credentials may belong to another account.
func (c *Collector) shouldBeListed(m *v1beta1.Machine, in inputs) bool {
	instance := m.Status.Instance
	if m.Spec.ProviderID == "" || !m.DeletionTimestamp.IsZero() || m.Status.FailureReason != "" ||
		instance == nil || instance.Provider != c.Cloud.Name() ||
		instance.State != v1beta1.InstanceRunning && instance.State != v1beta1.InstanceStopped ||
		nodeReports(m) {
		return false
	}
	used, wanted := instance.CredentialsRef, in.credentials
	return used == nil && wanted == nil || used != nil && wanted != nil && used.Name == wanted.Name
}

func nodeReports(m *v1beta1.Machine) bool {
	return slices.ContainsFunc(m.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1beta1.ConditionNodeHealthy && c.Status == metav1.ConditionTrue
	})
}

// scopesOf reads the credentials of all inputs, in the order of their names. All inputs whose instances can be found
// with the same list share a scope. If the credentials of an input cannot be read, the second result contains the
// input.
func (c *Collector) scopesOf(ctx context.Context, f *snapshot) (scopes []*scope, unlisted []ledger.FailedList) {
	resolver := resolve.Resolver{Secrets: c.LiveClient}
	found := map[[sha256.Size]byte]*scope{}
	// Inputs of this shard come first. The first input of a scope becomes scope.source, on which orphans are reported.
	keys := slices.SortedFunc(maps.Keys(f.inputs), func(a, b string) int {
		ours := func(key string) int {
			if c.Rules.Shard.Owns(f.inputs[key].namespace) {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(ours(a), ours(b)), cmp.Compare(a, b))
	})
	for _, key := range keys {
		in := f.inputs[key]
		if len(in.spec.ProviderSpec) == 0 {
			continue
		}
		credentials, err := resolver.Credentials(ctx, in.namespace, in.credentials)
		if err != nil {
			c.log(ctx).Info("Not checking the instances of a class: its credentials cannot be read", "source", key, "cause",
				err.Error())
			unlisted = append(unlisted, ledger.FailedList{Source: nameOf(in.source), Why: v1beta1.ReasonCredentialsNotFound})
			continue
		}
		class := provider.Class{Spec: in.spec.ProviderSpec, Credentials: credentials}
		hash := hashOf(c.scopeName(ctx, key, in, class), credentials)
		s := found[hash]
		if s == nil {
			s = &scope{source: in.source, class: class}
			found[hash] = s
			scopes = append(scopes, s)
		}
		s.sources = append(s.sources, in.source)
		s.machines = append(s.machines, f.expectedMachines[key]...)
	}
	return scopes, unlisted
}

// scopeName returns the name that the driver gives to the scope of a class. If the driver does not name its scopes,
// scopeName returns the spec of the class. The prefixes of names and specs are different. One list finds the instances
// of all classes with the same scope name and credentials.
func (c *Collector) scopeName(ctx context.Context, key string, in inputs, class provider.Class) string {
	if scoper, ok := c.Cloud.(provider.Scoper); ok {
		name, err := scoper.ListScope(class)
		if err != nil {
			c.log(ctx).Info("Listing the instances of a class separately: the driver cannot name its scope", "source", key, "cause",
				err.Error())
		} else if name != "" {
			return "scope/" + name
		}
	}
	return "spec/" + in.spec.SpecHash()
}

// hashOf hashes a scope and its credentials, which avoids a second copy of the secrets in memory.
func hashOf(spec string, credentials provider.Credentials) (sum [sha256.Size]byte) {
	h := sha256.New()
	part := func(data []byte) {
		// Hash the length too, so that different sequences of parts have different hashes.
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(data))))
		h.Write(data)
	}
	part([]byte(spec))
	for _, name := range credentials.Keys() {
		value, _ := credentials.Get(name)
		part([]byte(name))
		part(value.Reveal())
	}
	h.Sum(sum[:0])
	return sum
}
