package backup

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// Outcome is the result of restoring one object.
type Outcome string

// The outcomes.
const (
	// Made: the object was created.
	Made Outcome = "made"
	// Present: an object with this name already existed. Restore did not change it. However, if the object is a class,
	// Restore has permitted the machines of the class to adopt instances.
	Present Outcome = "present"
	// Conflict: a Machine with this name already exists and has another instance.
	Conflict Outcome = "conflict"
)

// Restore creates each object of the backup that does not exist in the cluster. Restore also permits the classes to
// adopt the instances of the cluster from which the backup was taken. The permission ends at the time in the argument
// until. After an error, Restore can be called again: it then reports each object that already exists as Present. It
// calls report for each object.
func (f Fleet) Restore(ctx context.Context, cluster client.Client, until time.Time,
	report func(*unstructured.Unstructured, Outcome)) error {
	for _, object := range f.Objects {
		made := object.DeepCopy()
		if made.GetKind() == "MachineClass" {
			permitAdoption(made, f.ClusterID, until)
		}
		outcome := Made
		switch err := Make(ctx, cluster, made); {
		case err == nil:
		case apierrors.IsAlreadyExists(err):
			var failed error
			if outcome, failed = f.updatePresent(ctx, cluster, object, until); failed != nil {
				return failed
			}
		case apierrors.IsNotFound(err):
			return fmt.Errorf("create %s: namespace %s must exist: %w", nameOf(object), object.GetNamespace(), err)
		default:
			return fmt.Errorf("create %s: %w", nameOf(object), err)
		}
		report(object, outcome)
	}
	return nil
}

const (
	// admissionPeriod is the interval at which Make tries again to create a Machine whose class has just changed.
	// admissionPatience is the time after which Make gives up.
	admissionPeriod, admissionPatience = 100 * time.Millisecond, 10 * time.Second
)

// Make creates an object. The admission webhook reads classes from a cache. So it may not know yet that the class of a
// Machine permits the adoption of an instance. If the webhook rejects a Machine for this reason, Make tries again until
// admissionPatience has passed.
func Make(ctx context.Context, cluster client.Client, object client.Object) error {
	deadline := time.NewTimer(admissionPatience)
	defer deadline.Stop()
	tick := time.NewTicker(admissionPeriod)
	defer tick.Stop()
	for {
		err := cluster.Create(ctx, object)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec.providerID: Forbidden") {
			return err
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return err
		case <-ctx.Done():
			return err
		}
	}
}

// updatePresent handles an object that already exists, and returns the outcome. If the object is a class, updatePresent
// permits the machines of the class to adopt instances.
func (f Fleet) updatePresent(ctx context.Context, cluster client.Client, object *unstructured.Unstructured,
	until time.Time) (Outcome, error) {
	existing := &unstructured.Unstructured{}
	existing.SetGroupVersionKind(object.GroupVersionKind())
	if err := cluster.Get(ctx, client.ObjectKeyFromObject(object), existing); err != nil {
		return "", fmt.Errorf("read %s, which exists: %w", nameOf(object), err)
	}
	switch object.GetKind() {
	case "Machine":
		if providerID(existing) != providerID(object) {
			return Conflict, nil
		}
	case "MachineClass":
		changed := existing.DeepCopy()
		permitAdoption(changed, f.ClusterID, until)
		if equality.Semantic.DeepEqual(changed.GetAnnotations(), existing.GetAnnotations()) {
			return Present, nil
		}
		if err := cluster.Patch(ctx, changed, client.MergeFrom(existing)); err != nil {
			return "", fmt.Errorf("permit %s to adopt instances: %w", nameOf(object), err)
		}
	}
	return Present, nil
}

// permitAdoption permits the machines of a class to adopt instances of a former cluster. The permission ends at the
// time in the argument until.
func permitAdoption(class *unstructured.Unstructured, cluster string, until time.Time) {
	annotations := class.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1beta1.AnnotationAdoptFromCluster] = cluster
	annotations[v1beta1.AnnotationAdoptFromClusterUntil] = until.UTC().Format(time.RFC3339)
	class.SetAnnotations(annotations)
}

func nameOf(object *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", object.GetKind(), object.GetNamespace(), object.GetName())
}
