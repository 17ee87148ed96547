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
	// Present: an object with the name existed. It was not changed, except for the permission of a class to adopt
	// instances.
	Present Outcome = "present"
	// Conflict: a Machine with the name exists and has another instance.
	Conflict Outcome = "conflict"
)

// Restore creates the objects of a backup that do not exist. Until the time until, it permits their classes to adopt
// the instances of the cluster that the backup is from. After an error, it can be repeated: objects that were created
// before are then Present. report is called for each object.
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
	// admissionPeriod is the time between two attempts to create a Machine whose class was changed just before.
	// admissionPatience is the time after which Make gives up.
	admissionPeriod, admissionPatience = 100 * time.Millisecond, 10 * time.Second
)

// Make creates an object. The admission webhook reads classes from a cache, so it may not know yet that the class of a
// Machine permits the adoption of its instance. A Machine that the webhook rejects for that reason is retried for a
// while.
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

// updatePresent returns the outcome for an object that exists. A class gets the permission to adopt instances.
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

// permitAdoption permits the machines of a class to adopt their instances of a former cluster until a time.
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
