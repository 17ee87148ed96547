// Package index defines the cache indexes through which controllers find objects without listing a namespace.
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
	// MachineByNodeName finds Machines by the name of their current or future Node.
	MachineByNodeName = "machine.nodeName"
	// MachineByClass finds Machines by the name of their class.
	MachineByClass = "machine.className"
	// MachineBySecret finds Machines by the names of the Secrets to which they refer directly: the Secrets of an inline
	// specification, and the Secret with the credentials that created the instance.
	MachineBySecret = "machine.secretName"
	// MachineSetByOwner finds MachineSets by the UID of their controller.
	MachineSetByOwner = "machineset.controllerUID"
	// NodeByProviderID finds Nodes of the target cluster by spec.providerID.
	NodeByProviderID = "node.providerID"
)

// RegisterMachines adds all indexes of Machines. Call it once per cache.
func RegisterMachines(ctx context.Context, indexer client.FieldIndexer) error {
	return register(ctx, indexer, machines())
}

// RegisterOwned adds only the indexes of Machines that machinist-manager uses, to save memory. An index with unique
// values takes about 300 bytes per Machine.
func RegisterOwned(ctx context.Context, indexer client.FieldIndexer) error {
	return register(ctx, indexer, slices.DeleteFunc(machines(), func(e entry) bool {
		return e.name != MachineByOwner && e.name != MachineByNodeName
	}))
}

// RegisterSets adds the indexes of MachineSets, for a process that watches them.
func RegisterSets(ctx context.Context, indexer client.FieldIndexer) error {
	return register(ctx, indexer, []entry{{&v1beta1.MachineSet{}, MachineSetByOwner, controllerUID}})
}

// RegisterTarget adds the indexes of the target cluster's kinds.
func RegisterTarget(ctx context.Context, indexer client.FieldIndexer) error {
	return register(ctx, indexer, []entry{
		{&corev1.Node{}, NodeByProviderID, func(o client.Object) []string {
			return nonEmpty(o.(*corev1.Node).Spec.ProviderID)
		}},
	})
}

// NodeName returns the name of the Machine's Node. Before the Node exists, NodeName returns the name under which the
// instance will register. The result is "" if neither name is known.
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
}

func machines() []entry {
	return []entry{
		{&v1beta1.Machine{}, MachineByOwner, controllerUID},
		{&v1beta1.Machine{}, MachineByProviderID, func(o client.Object) []string {
			m := o.(*v1beta1.Machine)
			ids := nonEmpty(m.Spec.ProviderID)
			if node := m.NodeProviderID(); node != m.Spec.ProviderID {
				ids = append(ids, node)
			}
			return ids
		}},
		{&v1beta1.Machine{}, MachineByNodeName, func(o client.Object) []string {
			return nonEmpty(NodeName(o.(*v1beta1.Machine)))
		}},
		{&v1beta1.Machine{}, MachineByClass, func(o client.Object) []string {
			if ref := o.(*v1beta1.Machine).Spec.ClassRef; ref != nil {
				return nonEmpty(ref.Name)
			}
			return nil
		}},
		{&v1beta1.Machine{}, MachineBySecret, func(o client.Object) []string {
			m := o.(*v1beta1.Machine)
			names := secrets(m.Spec.CredentialsRef, m.Spec.UserDataRef)
			if i := m.Status.Instance; i != nil && i.CredentialsRef != nil && !slices.Contains(names, i.CredentialsRef.Name) {
				names = append(names, i.CredentialsRef.Name)
			}
			return names
		}},
	}
}

func register(ctx context.Context, indexer client.FieldIndexer, entries []entry) error {
	for _, e := range entries {
		if err := indexer.IndexField(ctx, e.object, e.name, e.values); err != nil {
			return fmt.Errorf("add the index %s: %w", e.name, err)
		}
	}
	return nil
}

func controllerUID(o client.Object) []string {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return nonEmpty(string(owner.UID))
	}
	return nil
}

func nonEmpty(value string) []string {
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
