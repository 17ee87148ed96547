package capacity

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/conditionlimit"
	"machinist.dev/machinist/internal/platform/wording"
	"machinist.dev/machinist/pkg/provider"
)

// Options are the dependencies of a Memory.
type Options struct {
	// Driver is the driver of the provider. Classes of other providers are ignored.
	Driver provider.Driver
	// Client writes the status of MachineClasses, and reads MachineClasses from a cache that includes this process's
	// own writes.
	Client client.Client
	// LiveReader reads MachineClasses without a cache after a conflict.
	LiveReader client.Reader
	// Recorder records events on MachineClasses.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
}

// Memory records the capacity of the classes of one provider, and permits one probe at a time in each pool.
type Memory struct {
	Options
	probes probes
}

// New returns a Memory.
func New(o Options) *Memory { return &Memory{Options: o} }

// reasonNoCapacity is the reason of the event on a class when its condition CapacityAvailable becomes False.
const reasonNoCapacity = "NoCapacity"

// writeAttempts is how often the status of one class is written at most, because each conflict needs another
// attempt.
const writeAttempts = 3

// Refused records that the cloud has no capacity for a class and for the other classes of its pool. Refused writes
// only if the memory changes. The answer is the cloud's answer to the request for an instance. A class that does not
// exist is not an error.
func (m *Memory) Refused(ctx context.Context, class types.NamespacedName, answer string) error {
	return m.record(ctx, class, func(c *v1beta1.MachineClass) *v1beta1.MachineClassStatus {
		return refused(c, answer, m.Clock.Now())
	})
}

// Found records that the cloud has capacity for a class and for the other classes of its pool, because an instance
// runs that was requested although the class was exhausted. Found writes only if a class is exhausted.
func (m *Memory) Found(ctx context.Context, class types.NamespacedName) error {
	return m.record(ctx, class, func(c *v1beta1.MachineClass) *v1beta1.MachineClassStatus {
		return found(c, m.Clock.Now())
	})
}

// record changes the status of all classes of a pool. If the status of the given class does not change, record does
// not look for the other classes.
func (m *Memory) record(ctx context.Context, key types.NamespacedName,
	next func(*v1beta1.MachineClass) *v1beta1.MachineClassStatus) error {
	class := &v1beta1.MachineClass{}
	if err := m.Client.Get(ctx, key, class, client.UnsafeDisableDeepCopy); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("read MachineClass %s: %w", key, err)
	}
	if next(class) == nil {
		return nil
	}
	list, pool := &v1beta1.MachineClassList{}, m.poolOf(class)
	if err := m.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list the classes that share the capacity of MachineClass %s: %w", key, err)
	}
	var errs []error
	for i := range list.Items {
		if c := &list.Items[i]; c.Spec.Provider == class.Spec.Provider && m.poolOf(c) == pool {
			errs = append(errs, m.write(ctx, c.DeepCopy(), next))
		}
	}
	return errors.Join(errs...)
}

func (m *Memory) poolOf(class *v1beta1.MachineClass) Pool {
	name := ""
	if class.Spec.ProviderSpec != nil {
		name = provider.CapacityPoolOf(m.Driver, provider.Class{Spec: class.Spec.ProviderSpec.Raw})
	}
	return PoolOf(class, name)
}

// write changes the status of one class. After a conflict, the class is read from the API server, because the class
// controller may have written its status a moment ago.
func (m *Memory) write(ctx context.Context, class *v1beta1.MachineClass,
	next func(*v1beta1.MachineClass) *v1beta1.MachineClassStatus) error {
	key := client.ObjectKeyFromObject(class)
	for attempt := 1; ; attempt++ {
		status := next(class)
		if status == nil {
			return nil
		}
		status.Conditions = conditionlimit.Class.Apply(status.Conditions)
		now := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionCapacityAvailable)
		now.Message = wording.Shorten(now.Message)
		before := class.DeepCopy()
		class.Status = *status
		err := m.Client.Status().Patch(ctx, class, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		switch {
		case err == nil:
			if StateOf(before).Exhausted != StateOf(class).Exhausted {
				m.recordEvent(class)
			}
			return nil
		case apierrors.IsNotFound(err):
			return nil
		case !apierrors.IsConflict(err) || attempt == writeAttempts:
			return fmt.Errorf("patch the status of MachineClass %s: %w", key, err)
		}
		class = &v1beta1.MachineClass{}
		if err := m.LiveReader.Get(ctx, key, class); err != nil {
			return client.IgnoreNotFound(err)
		}
	}
}

func (m *Memory) recordEvent(class *v1beta1.MachineClass) {
	severity, reason := corev1.EventTypeNormal, v1beta1.ReasonCapacityFound
	if StateOf(class).Exhausted {
		severity, reason = corev1.EventTypeWarning, reasonNoCapacity
	}
	c := meta.FindStatusCondition(class.Status.Conditions, v1beta1.ConditionCapacityAvailable)
	m.Recorder.Eventf(class, nil, severity, reason, "Launch", "%s", wording.Truncate(c.Message, 512))
}
