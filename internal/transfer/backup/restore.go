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

const (
	// OutcomeCreated: the object was created.
	OutcomeCreated Outcome = "made"
	// OutcomePresent: an object with this name already existed and was not changed. An existing class permits the
	// adoption of instances, though.
	OutcomePresent Outcome = "present"
	// OutcomeConflict: a Machine with this name already exists and has another instance.
	OutcomeConflict Outcome = "conflict"
)

// Restore creates the objects of the backup that do not exist in the cluster. Classes may adopt the instances of the
// former cluster until the given time. After an error, Restore can be called again. Restore calls report for each
// object.
func (f Fleet) Restore(ctx context.Context, cluster client.Client, until time.Time,
	report func(*unstructured.Unstructured, Outcome)) error {
	for _, object := range f.Objects {
		made := object.DeepCopy()
		if made.GetKind() == "MachineClass" {
			permitAdoption(made, f.ClusterID, until)
		}
		outcome := OutcomeCreated
		switch err := Create(ctx, cluster, made); {
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
	// admissionPeriod is the interval between attempts to create a Machine whose class has just changed. Create gives
	// up after admissionPatience.
	admissionPeriod, admissionPatience = 100 * time.Millisecond, 10 * time.Second
)

// Create creates an object. The admission webhook reads classes from a cache, so it may reject a Machine because it
// does not know yet that the class permits adoption. Create then tries again until admissionPatience has passed.
func Create(ctx context.Context, cluster client.Client, object client.Object) error {
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

// updatePresent handles an object that already exists. An existing class gets the permission to adopt instances.
func (f Fleet) updatePresent(ctx context.Context, cluster client.Client, object *unstructured.Unstructured,
	until time.Time) (Outcome, error) {
	existing := &unstructured.Unstructured{}
	existing.SetGroupVersionKind(object.GroupVersionKind())
	if err := cluster.Get(ctx, client.ObjectKeyFromObject(object), existing); err != nil {
		return "", fmt.Errorf("read the existing object %s: %w", nameOf(object), err)
	}
	switch object.GetKind() {
	case "Machine":
		if providerID(existing) != providerID(object) {
			return OutcomeConflict, nil
		}
	case "MachineClass":
		changed := existing.DeepCopy()
		permitAdoption(changed, f.ClusterID, until)
		if equality.Semantic.DeepEqual(changed.GetAnnotations(), existing.GetAnnotations()) {
			return OutcomePresent, nil
		}
		if err := cluster.Patch(ctx, changed, client.MergeFrom(existing)); err != nil {
			return "", fmt.Errorf("permit %s to adopt instances: %w", nameOf(object), err)
		}
	}
	return OutcomePresent, nil
}

// permitAdoption permits a class to adopt instances of a former cluster until the given time.
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
