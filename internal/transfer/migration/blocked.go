package migration

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
)

func (p *pass) reportBlocked(own *ownObjects, objects []client.Object) {
	for _, object := range objects {
		if since := object.GetDeletionTimestamp(); since.IsZero() || p.Clock.Since(since.Time) < stallTimeout {
			continue
		}
		p.addTrouble("%s %s is being deleted, but still exists: %s", kindOf(object), object.GetName(),
			blockReason(own, object, p.migration.Spec.Provider))
	}
}

// blockReason returns why the deletion of an object cannot finish, and what an administrator can do.
func blockReason(own *ownObjects, object client.Object, providerName string) string {
	isInUse := func(finalizer string) bool { return finalizer == v1beta1.InUseFinalizer }
	if others := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), isInUse); len(others) > 0 {
		return fmt.Sprintf("the finalizers %s remain. Find out which controllers must remove them", strings.Join(others,
			", "))
	}
	if users := usersOf(own, object); len(users) > 0 {
		return fmt.Sprintf("%s uses it. Change that object to use another one, or delete that object", users[0])
	}
	return fmt.Sprintf("the process of provider %s has not released it. Check that the process runs and leads",
		providerName)
}

// usersOf returns the sorted kinds and names of objects that refer to a class or Secret of the migration.
func usersOf(own *ownObjects, object client.Object) (users []string) {
	_, isClass := object.(*v1beta1.MachineClass)
	if !isClass {
		for _, name := range slices.Sorted(maps.Keys(own.classes)) {
			if slices.Contains(resolve.SecretNames(own.classes[name]), object.GetName()) {
				users = append(users, "MachineClass "+name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(own.machines)) {
		spec := own.machines[name].Spec
		ofClass := spec.ClassRef != nil && spec.ClassRef.Name == object.GetName()
		ofSecret := spec.CredentialsRef != nil && spec.CredentialsRef.Name == object.GetName() ||
			spec.UserDataRef != nil && spec.UserDataRef.Name == object.GetName()
		if isClass && ofClass || !isClass && ofSecret {
			users = append(users, "Machine "+name)
		}
	}
	return users
}
