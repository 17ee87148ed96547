// Package index names the cache indexes through which controllers find objects without listing a namespace.
package index

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// Names of the indexes, for client.MatchingFields.
const (
	// MachineByOwner finds Machines by the UID of their controller.
	MachineByOwner = "machine.controllerUID"
	// MachineByProviderID finds Machines by spec.providerID, and by the provider ID of their Nodes.
	MachineByProviderID = "machine.providerID"
	// MachineByNodeName finds Machines by the name of the Node that they are, or will be.
	MachineByNodeName = "machine.nodeName"
	// MachineByClass finds Machines by the name of their class.
	MachineByClass = "machine.className"
	// MachineBySecret finds Machines by the names of the Secrets that they refer to themselves: those of the inline
	// form, and the credentials that their instance was made with.
	MachineBySecret = "machine.secretName"
	// MachineSetByOwner finds MachineSets by the UID of their controller.
	MachineSetByOwner = "machineset.controllerUID"
	// NodeByProviderID finds Nodes of the target cluster by spec.providerID.
	NodeByProviderID = "node.providerID"
)

// RegisterMachines adds all indexes of Machines. It may be called once per cache.
func RegisterMachines(ctx context.Context, indexer client.FieldIndexer) error {
	return register(ctx, indexer, machines())
}

// RegisterOwned adds those indexes of Machines that machinist-manager uses, instead of RegisterMachines: a machine
// takes some 300 bytes in an index whose value no other machine has.
func RegisterOwned(ctx context.Context, indexer client.FieldIndexer) error {
	return register(ctx, indexer, slices.DeleteFunc(machines(), func(e entry) bool {
		return e.name != MachineByOwner && e.name != MachineByNodeName
	}))
}

// RegisterSets adds the indexes of MachineSets, for the process that watches them.
func RegisterSets(ctx context.Context, indexer client.FieldIndexer) error {
	return register(ctx, indexer, []entry{{&v1beta1.MachineSet{}, MachineSetByOwner, controllerUID, false}})
}

// RegisterTarget adds the indexes of the target cluster's kinds.
func RegisterTarget(ctx context.Context, indexer client.FieldIndexer) error {
	return register(ctx, indexer, []entry{
		{&corev1.Node{}, NodeByProviderID, func(o client.Object) []string {
			return one(o.(*corev1.Node).Spec.ProviderID)
		}, false},
	})
}

// NodeName returns the name of the Node that the Machine is, or under which its instance will register; empty when
// neither is known.
func NodeName(m *v1beta1.Machine) string {
	if m.Status.NodeRef != nil {
		return m.Status.NodeRef.Name
	}
	if m.Status.Instance != nil {
		return m.Status.Instance.NodeName
	}
	return ""
}

type entry struct {
	object client.Object
	name   string
	values client.IndexerFunc
	// everywhere says that nobody asks for the objects of one namespace.
	everywhere bool
}

func machines() []entry {
	return []entry{
		{&v1beta1.Machine{}, MachineByOwner, controllerUID, false},
		{&v1beta1.Machine{}, MachineByProviderID, func(o client.Object) []string {
			m := o.(*v1beta1.Machine)
			ids := one(m.Spec.ProviderID)
			if node := m.NodeProviderID(); node != m.Spec.ProviderID {
				ids = append(ids, node)
			}
			return ids
		}, true},
		{&v1beta1.Machine{}, MachineByNodeName, func(o client.Object) []string {
			return one(NodeName(o.(*v1beta1.Machine)))
		}, true},
		{&v1beta1.Machine{}, MachineByClass, func(o client.Object) []string {
			if ref := o.(*v1beta1.Machine).Spec.ClassRef; ref != nil {
				return one(ref.Name)
			}
			return nil
		}, false},
		{&v1beta1.Machine{}, MachineBySecret, func(o client.Object) []string {
			m := o.(*v1beta1.Machine)
			names := secrets(m.Spec.CredentialsRef, m.Spec.UserDataRef)
			if i := m.Status.Instance; i != nil && i.CredentialsRef != nil && !slices.Contains(names, i.CredentialsRef.Name) {
				names = append(names, i.CredentialsRef.Name)
			}
			return names
		}, false},
	}
}

// everywhere is a cache that can have an index of namespaced objects over all namespaces only. In others it is twice
// as large: over all namespaces, and in each.
type everywhere interface {
	IndexFieldEverywhere(ctx context.Context, object client.Object, field string, values client.IndexerFunc) error
}

func register(ctx context.Context, indexer client.FieldIndexer, entries []entry) error {
	for _, e := range entries {
		add := indexer.IndexField
		if i, ok := indexer.(everywhere); ok && e.everywhere {
			add = i.IndexFieldEverywhere
		}
		if err := add(ctx, e.object, e.name, e.values); err != nil {
			return fmt.Errorf("add the index %s: %w", e.name, err)
		}
	}
	return nil
}

func controllerUID(o client.Object) []string {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return one(string(owner.UID))
	}
	return nil
}

func one(value string) []string {
	if value == "" {
		return nil
	}
	return []string{value}
}

func secrets(credentials *v1beta1.LocalRef, userData *v1beta1.UserDataRef) []string {
	var names []string
	if credentials != nil {
		names = append(names, credentials.Name)
	}
	if userData != nil && (credentials == nil || userData.Name != credentials.Name) {
		names = append(names, userData.Name)
	}
	return names
}
