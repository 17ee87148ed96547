package autoscaling

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/queueing"
)

// Options are the dependencies of a Reconciler.
type Options struct {
	// Client reads the control cluster from the cache, and writes to it.
	Client client.Client
	Clock  clock.PassiveClock
}

// Reconciler writes the capacity annotations of node groups and the condition ScalableFromZero.
type Reconciler struct {
	Options

	mu sync.Mutex
	// For each node group, the map contains the capacity annotations that belong to other field managers. The
	// Reconciler does not try to apply these annotations again until their values change.
	others map[types.NamespacedName]othersOf
}

type othersOf struct {
	uid    types.UID
	values map[string]string
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	return &Reconciler{Options: o, others: map[types.NamespacedName]othersOf{}}
}

// Reconcile brings the annotations and the condition of one node group up to date.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	group, err := r.get(ctx, request.NamespacedName)
	if err != nil || group == nil || group.GetDeletionTimestamp() != nil {
		r.forget(request.NamespacedName)
		return reconcile.Result{}, err
	}
	wanted, why, err := r.capacity(ctx, group)
	if err != nil {
		return reconcile.Result{}, err
	}
	group, err = r.annotate(ctx, request.NamespacedName, group, wanted)
	if err == nil {
		err = r.report(ctx, group, why)
	}
	switch {
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, nil // The group was deleted meanwhile.
	case apierrors.IsConflict(err):
		// Another client wrote first. The event of that write may have arrived before this pass.
		return reconcile.Result{RequeueAfter: queueing.ConflictDelay}, nil
	}
	return reconcile.Result{}, err
}

func (r *Reconciler) get(ctx context.Context, key types.NamespacedName) (client.Object, error) {
	kind, name := split(key)
	var group client.Object = &v1beta1.MachineDeployment{}
	if kind == kindSet {
		group = &v1beta1.MachineSet{}
	}
	if err := r.Client.Get(ctx, name, group); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("get %s %s: %w", kind, name, err)
	}
	return group, nil
}

// capacity returns the wanted annotations of a group, and the problem to report if they are not sufficient. Other
// objects get no annotations.
func (r *Reconciler) capacity(ctx context.Context, group client.Object) (map[string]string, Problem, error) {
	if !IsNodeGroup(group.GetAnnotations()) {
		return nil, Problem{}, nil
	}
	template, names := templateOf(group), ClassesOf(group)
	switch {
	case len(names) == 0 && placementOf(group) != nil:
		return Capacity(template), Problem{v1beta1.ReasonNoClass, "The group cannot be scaled from zero because no domain of " +
			"spec.placement gets new machines. Set weight and maxReplicas of a domain to more than 0."}, nil
	case len(names) == 0:
		return Capacity(template), Problem{v1beta1.ReasonNoClass,
			"The group cannot be scaled from zero because its template has no classRef, and no provider reports the capacity " +
				"of an inline providerSpec. Move the providerSpec into a MachineClass, or " + orAnnotate}, nil
	}
	// No machine is created from an option whose class does not exist.
	var classes, unknown []*v1beta1.MachineClass
	for _, name := range names {
		class, key := &v1beta1.MachineClass{}, types.NamespacedName{Namespace: group.GetNamespace(), Name: name}
		if err := r.Client.Get(ctx, key, class, client.UnsafeDisableDeepCopy); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			return nil, Problem{}, fmt.Errorf("get the class %s: %w", key, err)
		}
		if classes = append(classes, class); !statesSize(class) {
			unknown = append(unknown, class)
		}
	}
	if len(classes) == 0 {
		return nil, Problem{v1beta1.ReasonClassNotFound, fmt.Sprintf(
			"The group cannot be scaled from zero because MachineClass %s does not exist. Create it.", names[0])}, nil
	}
	annotations := Capacity(template, classes...)
	if len(unknown) == 0 {
		unknown = classes // The annotations contain the capacity, so there is a problem only if another owner removes them.
	}
	return annotations, capacityUnknown(unknown), nil
}

func capacityUnknown(classes []*v1beta1.MachineClass) Problem {
	class := classes[0]
	message := fmt.Sprintf("The group cannot be scaled from zero because neither spec.capacity nor status.capacity of "+
		"MachineClass %s states both cpu and memory. ", class.Name)
	if ready := meta.FindStatusCondition(class.Status.Conditions, v1beta1.ConditionReady); ready != nil &&
		ready.Status != metav1.ConditionTrue {
		message += fmt.Sprintf("The class is not Ready: %s. ", ready.Reason)
	}
	if more := len(classes) - 1; more > 0 {
		message += fmt.Sprintf("The same applies to %d more of the group's classes. ", more)
	}
	return Problem{v1beta1.ReasonCapacityUnknown, message + "Set spec.capacity.resources of the class, or " + orAnnotate}
}

const orAnnotate = "write the annotations " + v1beta1.AutoscalerCPUAnnotation + " and " +
	v1beta1.AutoscalerMemoryAnnotation + " on the group."
