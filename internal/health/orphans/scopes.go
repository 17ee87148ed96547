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

// inputs are what a MachineClass, or the inline form of Machines, says of how to reach the cloud.
type inputs struct {
	// source is the object that reports it; events about what is found with it are on that one.
	source      client.Object
	namespace   string
	credentials *v1beta1.LocalRef
	spec        resolve.Resolved
}

// scope is what is listed at the cloud in one go.
type scope struct {
	// source is the first of sources, which are all objects that lead to the scope.
	source  client.Object
	sources []client.Object
	class   provider.Class
	// machines are those whose instances must be in the list.
	machines []*v1beta1.Machine
}

// fleet is what the cache knows when a pass begins.
type fleet struct {
	// recorded are the provider IDs of all Machines by their UIDs, empty where there is none.
	recorded map[types.UID]string
	machines map[types.UID]*v1beta1.Machine
	inputs   map[string]inputs
	// users are the Machines of each of inputs that say that their instance runs.
	users map[string][]*v1beta1.Machine
}

// observe reads the cache. The Machines come first, so that whatever instance one of them had recorded was there before
// instances are listed. They are shared with the cache and must not be changed.
func (c *Collector) observe(ctx context.Context) (*fleet, error) {
	namespace := client.InNamespace(c.Rules.Namespace)
	machines, err := index.Shared[v1beta1.Machine](ctx, c.Client, &v1beta1.MachineList{}, namespace)
	if err != nil {
		return nil, fmt.Errorf("list the machines that the cache knows: %w", err)
	}
	classes, err := c.allClasses(ctx)
	if err != nil {
		return nil, err
	}
	f := &fleet{
		recorded: map[types.UID]string{}, machines: map[types.UID]*v1beta1.Machine{},
		inputs: map[string]inputs{}, users: map[string][]*v1beta1.Machine{},
	}
	for _, class := range classes {
		if class.Spec.Provider == c.Cloud.Name() {
			spec := resolve.OfClass(class)
			f.inputs[classKey(class.Namespace, class.Name)] = inputs{class, class.Namespace, spec.CredentialsRef, spec}
		}
	}
	for _, m := range machines {
		f.recorded[m.UID], f.machines[m.UID] = m.Spec.ProviderID, m
		key := c.keyOf(m)
		if _, known := f.inputs[key]; !known && m.Spec.ClassRef == nil && key != "" {
			f.inputs[key] = inputs{m, m.Namespace, m.Spec.CredentialsRef, inlineOf(m)}
		}
		if in, known := f.inputs[key]; known && c.shouldBeListed(m, in) {
			f.users[key] = append(f.users[key], m)
		}
	}
	return f, nil
}

// allClasses returns those of the installation: also those of other shards, because an instance may be the last trace
// of a namespace of ours, and another's class leads to it.
func (c *Collector) allClasses(ctx context.Context) ([]*v1beta1.MachineClass, error) {
	if c.Rules.Shard.All() {
		classes, err := index.Shared[v1beta1.MachineClass](ctx, c.Client, &v1beta1.MachineClassList{},
			client.InNamespace(c.Rules.Namespace))
		if err != nil {
			return nil, fmt.Errorf("list the classes that the cache knows: %w", err)
		}
		return classes, nil
	}
	list := &v1beta1.MachineClassList{}
	if err := c.Live.List(ctx, list); err != nil {
		return nil, fmt.Errorf("list the classes of all shards: %w", err)
	}
	classes := make([]*v1beta1.MachineClass, len(list.Items))
	for i := range list.Items {
		classes[i] = &list.Items[i]
	}
	return classes, nil
}

// keyOf names the inputs of a Machine; it is empty where there are none of this provider.
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

func inlineOf(m *v1beta1.Machine) resolve.Resolved {
	return resolve.Resolved{Provider: m.Spec.Provider, ProviderSpec: m.Spec.ProviderSpec.Raw}
}

// shouldBeListed reports whether a Machine must check its instance if that is in no list. One that is being made or
// removed is checked anyway, and where the Node reports, the instance is there whatever a list says: it may be one of
// another account, since credentials changed.
func (c *Collector) shouldBeListed(m *v1beta1.Machine, in inputs) bool {
	instance := m.Status.Instance
	if m.Spec.ProviderID == "" || !m.DeletionTimestamp.IsZero() || m.Status.FailureReason != "" ||
		instance == nil || instance.State != v1beta1.InstanceRunning || instance.Provider != c.Cloud.Name() ||
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

// scopesOf reads the credentials and puts together what one list serves, in an order that depends on names only. What
// has no credentials has no list.
func (c *Collector) scopesOf(ctx context.Context, f *fleet) (scopes []*scope, unlisted []ledger.Unlisted) {
	resolver := resolve.Resolver{Secrets: c.Live}
	found := map[[sha256.Size]byte]*scope{}
	// What is found is reported on the first source of a scope, which is one of the shard where there is one.
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
			c.log(ctx).Info("The instances of a class are not checked: its credentials cannot be read", "source", key, "cause",
				err.Error())
			unlisted = append(unlisted, ledger.Unlisted{Source: nameOf(in.source), Why: v1beta1.ReasonCredentialsNotFound})
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
		s.machines = append(s.machines, f.users[key]...)
	}
	return scopes, unlisted
}

// scopeName is what classes with the same credentials have in common if one list serves them all: the scope that the
// driver names, else the specification. The two can never be equal.
func (c *Collector) scopeName(ctx context.Context, key string, in inputs, class provider.Class) string {
	if scoper, ok := c.Cloud.(provider.Scoper); ok {
		name, err := scoper.ListScope(class)
		if err != nil {
			c.log(ctx).Info("The driver cannot name the scope of a class, which is listed by itself", "source", key, "cause",
				err.Error())
		} else if name != "" {
			return "scope/" + name
		}
	}
	return "spec/" + in.spec.SpecHash()
}

// hashOf is a hash, so that no secret is kept in a second place.
func hashOf(spec string, credentials provider.Credentials) (sum [sha256.Size]byte) {
	h := sha256.New()
	part := func(data []byte) {
		// With its length, so that no two sets of parts look alike.
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
