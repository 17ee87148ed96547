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

// nameBlocked names objects whose deletion was asked for a while ago and that are still there: somebody else has to act
// before the abort can end.
func (p *pass) nameBlocked(mine *ours, objects []client.Object) {
	for _, object := range objects {
		if since := object.GetDeletionTimestamp(); since.IsZero() || p.Clock.Since(since.Time) < patience {
			continue
		}
		p.trouble("%s %s is being deleted and is still there: %s", kindOf(object), object.GetName(),
			blockedBy(mine, object, p.migration.Spec.Provider))
	}
}

// blockedBy says what keeps an object that is being deleted, and what to do.
func blockedBy(mine *ours, object client.Object, providerName string) string {
	isInUse := func(finalizer string) bool { return finalizer == v1beta1.InUseFinalizer }
	if others := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), isInUse); len(others) > 0 {
		return fmt.Sprintf("it has the finalizers %s. See who has to remove them", strings.Join(others, ", "))
	}
	if users := usersOf(mine, object); len(users) > 0 {
		return fmt.Sprintf("%s uses it. Let that use another one, or delete it", users[0])
	}
	return fmt.Sprintf("the process of provider %s has not released it. See whether it runs and leads", providerName)
}

// usersOf are the objects that refer to a class or a Secret of the migration, in the order of their names.
func usersOf(mine *ours, object client.Object) (users []string) {
	_, isClass := object.(*v1beta1.MachineClass)
	if !isClass {
		for _, name := range slices.Sorted(maps.Keys(mine.classes)) {
			if slices.Contains(resolve.SecretNames(mine.classes[name]), object.GetName()) {
				users = append(users, "MachineClass "+name)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(mine.machines)) {
		spec := mine.machines[name].Spec
		ofClass := spec.ClassRef != nil && spec.ClassRef.Name == object.GetName()
		ofSecret := spec.CredentialsRef != nil && spec.CredentialsRef.Name == object.GetName() ||
			spec.UserDataRef != nil && spec.UserDataRef.Name == object.GetName()
		if isClass && ofClass || !isClass && ofSecret {
			users = append(users, "Machine "+name)
		}
	}
	return users
}
