package machinedeployment

import (
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/handover"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/machine/preservation"
)

// deploymentsOfSet returns the deployment that controls the set, or the deployments that may adopt a set without a
// controller.
func (r *Reconciler) deploymentsOfSet(ctx context.Context, object client.Object) []reconcile.Request {
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil {
		if owner.Kind != "MachineDeployment" {
			return nil
		}
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: object.GetNamespace(), Name: owner.Name}}}
	}
	var deployments v1beta1.MachineDeploymentList
	if err := r.Client.List(ctx, &deployments, client.InNamespace(object.GetNamespace()),
		client.UnsafeDisableDeepCopy); err != nil {
		logf.FromContext(ctx).Error(err, "Failed to list the deployments that may adopt a set", "set",
			client.ObjectKeyFromObject(object))
		return nil
	}
	var requests []reconcile.Request
	for i := range deployments.Items {
		selector, err := metav1.LabelSelectorAsSelector(&deployments.Items[i].Spec.Selector)
		if err != nil || selector.Empty() || !selector.Matches(labels.Set(object.GetLabels())) {
			continue
		}
		key := client.ObjectKeyFromObject(&deployments.Items[i])
		r.shared.orphanSetSeen(key)
		requests = append(requests, reconcile.Request{NamespacedName: key})
	}
	return requests
}

// deploymentOfMachine returns the deployment in the machine's label, and records a failure of the machine.
func (r *Reconciler) deploymentOfMachine(_ context.Context, object client.Object) []reconcile.Request {
	m, ok := object.(*v1beta1.Machine)
	name := object.GetLabels()[v1beta1.LabelMachineDeployment]
	if !ok || name == "" {
		return nil
	}
	key := types.NamespacedName{Namespace: m.Namespace, Name: name}
	if owner := metav1.GetControllerOfNoCopy(m); owner != nil {
		if failed, ok := failedToLaunch(m); ok {
			r.shared.launchFailed(key, launchFailure{set: owner.UID, machine: failed})
		}
	}
	if failure, ok := recentFailure(m); ok {
		r.shared.machineFailed(key, failure)
	}
	gone := !m.DeletionTimestamp.IsZero() && len(m.Finalizers) == 0
	if gone || m.DeletionTimestamp.IsZero() && machinestate.IsReady(m) {
		r.shared.recordMachineEvent(key)
	}
	return []reconcile.Request{{NamespacedName: key}}
}

func (r *Reconciler) deploymentsOfBudget(ctx context.Context, object client.Object) []reconcile.Request {
	var deployments v1beta1.MachineDeploymentList
	if err := r.Client.List(ctx, &deployments, client.InNamespace(object.GetNamespace()),
		client.UnsafeDisableDeepCopy); err != nil {
		logf.FromContext(ctx).Error(err, "Failed to list the deployments that may wait for a budget", "budget",
			client.ObjectKeyFromObject(object))
		return nil
	}
	requests := make([]reconcile.Request, len(deployments.Items))
	for i := range deployments.Items {
		requests[i] = reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&deployments.Items[i])}
	}
	return requests
}

// deploymentChanged drops updates of the status, which only this controller writes, and of annotations that no pass
// uses.
func deploymentChanged() predicate.Predicate {
	return predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{},
		deletionBegan(), onUpdate(func(before, after client.Object) bool {
			return allowsVersionSkew(before) != allowsVersionSkew(after)
		}))
}

func deletionBegan() predicate.Predicate {
	return onUpdate(func(before, after client.Object) bool {
		return before.GetDeletionTimestamp().IsZero() != after.GetDeletionTimestamp().IsZero()
	})
}

func onUpdate(changed func(before, after client.Object) bool) predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld != nil && e.ObjectNew != nil && changed(e.ObjectOld, e.ObjectNew)
	}}
}

// setChanged drops updates of counts in the status, because deployments count machines themselves.
func setChanged() predicate.Predicate {
	return onUpdate(func(before, after client.Object) bool {
		a, aok := before.(*v1beta1.MachineSet)
		b, bok := after.(*v1beta1.MachineSet)
		return aok && bok && (a.Generation != b.Generation ||
			a.Status.ObservedGeneration != b.Status.ObservedGeneration ||
			(a.Status.Replicas == 0) != (b.Status.Replicas == 0) ||
			a.DeletionTimestamp.IsZero() != b.DeletionTimestamp.IsZero() ||
			controllerOf(a) != controllerOf(b) ||
			!maps.Equal(a.Labels, b.Labels) ||
			!maps.Equal(a.Annotations, b.Annotations) ||
			replicaFailure(a) != replicaFailure(b))
	})
}

func machineChanged() predicate.Predicate {
	return onUpdate(func(before, after client.Object) bool {
		a, aok := before.(*v1beta1.Machine)
		b, bok := after.(*v1beta1.Machine)
		return aok && bok && (fieldsOf(a) != fieldsOf(b) || !maps.Equal(a.Labels, b.Labels))
	})
}

type machineFields struct {
	controller             types.UID
	deleting, launched     bool
	phase                  v1beta1.MachinePhase
	failure                v1beta1.MachineFailureReason
	ready                  metav1.ConditionStatus
	readySince             time.Time
	upToDate, remediation  bool
	toBeReplaced           bool
	updating, updateFailed bool
	refused                bool
	marked, preserved      bool
	priority               string
	replace, exempt        annotation
	hibernated             annotation
	stopped                bool
	power                  v1beta1.PowerState
	// version stays empty until the machine is Ready, so that its first version triggers no extra pass.
	version string
}

func fieldsOf(m *v1beta1.Machine) machineFields {
	g := machineFields{
		controller:   controllerOf(m),
		deleting:     !m.DeletionTimestamp.IsZero(),
		launched:     m.Spec.ProviderID != "",
		phase:        m.Status.Phase,
		failure:      m.Status.FailureReason,
		upToDate:     machinestate.IsUpToDate(m),
		remediation:  meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionRemediationRequested),
		toBeReplaced: machinestate.ToBeReplaced(m),
		refused:      m.DeletionTimestamp.IsZero() && machinestate.UnlaunchableCondition(m) != nil,
		updating:     handover.Updating(m),
		updateFailed: handover.UpdateRejected(m),
		marked:       machinestate.MarkedForDeletion(m),
		preserved:    preservation.IsPreserved(m),
		priority:     m.Annotations[v1beta1.AnnotationDeletePriority],
		replace:      annotationOf(m, v1beta1.AnnotationReplace),
		exempt:       annotationOf(m, v1beta1.AnnotationDoNotDisrupt),
		hibernated:   annotationOf(m, v1beta1.AnnotationHibernated),
		stopped:      isStopped(m),
		power:        m.Spec.PowerState,
	}
	if ready := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady); ready != nil {
		g.ready, g.readySince = ready.Status, ready.LastTransitionTime.UTC()
		if ready.Status == metav1.ConditionTrue {
			g.version = m.Status.Version
		}
	}
	return g
}

type annotation struct {
	set   bool
	value string
}

func annotationOf(m *v1beta1.Machine, key string) (a annotation) {
	a.value, a.set = m.Annotations[key]
	return a
}

func controllerOf(object metav1.Object) types.UID {
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil {
		return owner.UID
	}
	return ""
}

func replicaFailure(set *v1beta1.MachineSet) metav1.Condition {
	failure := meta.FindStatusCondition(set.Status.Conditions, v1beta1.ConditionReplicaFailure)
	if failure == nil || failure.Status != metav1.ConditionTrue {
		return metav1.Condition{}
	}
	return metav1.Condition{Status: failure.Status, Reason: failure.Reason, Message: failure.Message}
}
