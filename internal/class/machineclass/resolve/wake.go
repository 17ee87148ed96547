package resolve

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/index"
)

// ClassBySecret is the index of MachineClasses by the names of their Secrets.
const ClassBySecret = "machineclass.secretName"

// RegisterIndexes adds the index of MachineClasses. Call it once per cache.
func RegisterIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	err := indexer.IndexField(ctx, &v1beta1.MachineClass{}, ClassBySecret, func(o client.Object) []string {
		return SecretNames(o.(*v1beta1.MachineClass))
	})
	if err != nil {
		return fmt.Errorf("add the index %s: %w", ClassBySecret, err)
	}
	return nil
}

// SecretNames returns the names of the Secrets to which the class refers, without duplicates.
func SecretNames(class *v1beta1.MachineClass) []string {
	var names []string
	if ref := class.Spec.CredentialsRef; ref != nil {
		names = append(names, ref.Name)
	}
	if ref := class.Spec.UserDataRef; ref != nil && !slices.Contains(names, ref.Name) {
		names = append(names, ref.Name)
	}
	for _, v := range class.Spec.Values {
		if from := v.ValueFrom; from != nil && from.SecretKeyRef != nil && !slices.Contains(names, from.SecretKeyRef.Name) {
			names = append(names, from.SecretKeyRef.Name)
		}
	}
	return names
}

// ClassesOfSecret lists the classes that refer to a Secret. The reader must have the index ClassBySecret. The caller
// must not modify the result.
func ClassesOfSecret(ctx context.Context, reader client.Reader, secret client.Object) ([]v1beta1.MachineClass, error) {
	classes := &v1beta1.MachineClassList{}
	err := reader.List(ctx, classes, client.InNamespace(secret.GetNamespace()),
		client.MatchingFields{ClassBySecret: secret.GetName()}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list the MachineClasses that refer to Secret %s: %w", client.ObjectKeyFromObject(secret), err)
	}
	return classes.Items, nil
}

// MachinesOfSecret maps a Secret to the Machines that may wait for the Secret: Machines that use the Secret, directly
// or through their class, and are not settled. The reader must have the indexes of package index and ClassBySecret.
func MachinesOfSecret(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, secret client.Object) []reconcile.Request {
		waiting := waitingMachines(ctx, reader, secret.GetNamespace(), index.MachineBySecret, secret.GetName())
		classes, err := ClassesOfSecret(ctx, reader, secret)
		if err != nil {
			logf.FromContext(ctx).Error(err, "Failed to find the MachineClasses that refer to a Secret", "secret",
				client.ObjectKeyFromObject(secret))
		}
		for i := range classes {
			waiting = append(waiting, waitingMachines(ctx, reader, classes[i].Namespace, index.MachineByClass,
				classes[i].Name)...)
		}
		return waiting
	}
}

// MachinesOfClass maps a MachineClass to the Machines that may wait for the class: Machines that use the class and
// are not settled. The reader must have the indexes of package index.
func MachinesOfClass(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, class client.Object) []reconcile.Request {
		return waitingMachines(ctx, reader, class.GetNamespace(), index.MachineByClass, class.GetName())
	}
}

func waitingMachines(ctx context.Context, reader client.Reader, namespace, by, value string) []reconcile.Request {
	machines := &v1beta1.MachineList{}
	err := reader.List(ctx, machines, client.InNamespace(namespace), client.MatchingFields{by: value},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		logf.FromContext(ctx).Error(err, "Failed to list waiting machines", "namespace", namespace, by, value)
	}
	var requests []reconcile.Request
	for i := range machines.Items {
		if m := &machines.Items[i]; !isSettled(m) {
			requests = append(requests,
				reconcile.Request{NamespacedName: types.NamespacedName{Namespace: m.Namespace, Name: m.Name}})
		}
	}
	return requests
}

// isSettled reports whether a Machine needs neither its class nor a Secret now, because its provider has processed the
// latest generation.
func isSettled(m *v1beta1.Machine) bool {
	return m.Spec.ProviderID != "" && m.Status.Instance != nil && m.DeletionTimestamp.IsZero() &&
		m.Status.ObservedGeneration == m.Generation &&
		meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionUpToDate)
}
