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

// Outcome is what became of one object of a backup.
type Outcome string

// The outcomes.
const (
	// Made: the object was made again.
	Made Outcome = "made"
	// Present: an object with that name was there, and stayed as it is but for the permission of a class.
	Present Outcome = "present"
	// Conflict: a Machine with that name is there, and has another instance.
	Conflict Outcome = "conflict"
)

// Restore makes the objects of a backup that do not exist. Until a time it lets their classes take over the instances
// of the cluster that the backup is of. It can be repeated after an error: what was made before is present then. report
// is called for each object.
func (f Fleet) Restore(ctx context.Context, cluster client.Client, until time.Time,
	report func(*unstructured.Unstructured, Outcome)) error {
	for _, object := range f.Objects {
		made := object.DeepCopy()
		if made.GetKind() == "MachineClass" {
			permit(made, f.ClusterID, until)
		}
		outcome := Made
		switch err := Make(ctx, cluster, made); {
		case err == nil:
		case apierrors.IsAlreadyExists(err):
			var failed error
			if outcome, failed = f.present(ctx, cluster, object, until); failed != nil {
				return failed
			}
		case apierrors.IsNotFound(err):
			return fmt.Errorf("make %s: namespace %s must exist: %w", describe(object), object.GetNamespace(), err)
		default:
			return fmt.Errorf("make %s: %w", describe(object), err)
		}
		report(object, outcome)
	}
	return nil
}

const (
	// admissionPeriod is the time between two tries to make a Machine whose class was changed right before, and
	// admissionPatience how long they go on.
	admissionPeriod, admissionPatience = 100 * time.Millisecond, 10 * time.Second
)

// Make makes an object. The admission webhook may not know yet that the class of a Machine permits it to take its
// instance over, because it reads classes from a cache: a Machine that it rejects for that is tried again for a while.
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

// present judges an object that exists. A class of that name gets the permission.
func (f Fleet) present(ctx context.Context, cluster client.Client, object *unstructured.Unstructured,
	until time.Time) (Outcome, error) {
	there := &unstructured.Unstructured{}
	there.SetGroupVersionKind(object.GroupVersionKind())
	if err := cluster.Get(ctx, client.ObjectKeyFromObject(object), there); err != nil {
		return "", fmt.Errorf("read %s, which exists: %w", describe(object), err)
	}
	switch object.GetKind() {
	case "Machine":
		if providerID(there) != providerID(object) {
			return Conflict, nil
		}
	case "MachineClass":
		changed := there.DeepCopy()
		permit(changed, f.ClusterID, until)
		if equality.Semantic.DeepEqual(changed.GetAnnotations(), there.GetAnnotations()) {
			return Present, nil
		}
		if err := cluster.Patch(ctx, changed, client.MergeFrom(there)); err != nil {
			return "", fmt.Errorf("permit %s to take over instances: %w", describe(object), err)
		}
	}
	return Present, nil
}

// permit lets the machines of a class take over their instances of a former cluster until a time.
func permit(class *unstructured.Unstructured, cluster string, until time.Time) {
	annotations := class.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1beta1.AnnotationAdoptFromCluster] = cluster
	annotations[v1beta1.AnnotationAdoptFromClusterUntil] = until.UTC().Format(time.RFC3339)
	class.SetAnnotations(annotations)
}

func describe(object *unstructured.Unstructured) string {
	return fmt.Sprintf("%s %s/%s", object.GetKind(), object.GetNamespace(), object.GetName())
}
