package migration

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
	"machinist.dev/machinist/internal/fleet/machineset"
)

// oldUID returns the UID of the old object from which a migration created this object. The UID is empty for other
// objects.
func oldUID(object client.Object) types.UID {
	from := object.GetAnnotations()[v1beta1.AnnotationMigratedFrom]
	return types.UID(from[strings.LastIndex(from, "/")+1:])
}

func alternativeName(name string, uid types.UID) string {
	suffix := "-" + strings.ReplaceAll(string(uid), "-", "")
	suffix = suffix[:min(len(suffix), 11)]
	return strings.TrimRight(name[:min(len(name), v1beta1.MaxMachineNameLength-len(suffix))], "-") + suffix
}

// revisionSet returns the set that the MachineDeployment controller would create for the template of an old set.
func revisionSet(d *v1beta1.MachineDeployment, old *v1beta1.MachineSet) *v1beta1.MachineSet {
	number, err := strconv.ParseInt(old.Annotations[v1beta1.AnnotationRevision], 10, 64)
	if err != nil || number < 1 {
		number = 1
	}
	return machinedeployment.RevisionSet(d, &old.Spec.Template.Spec, number)
}

func revisionOf(set *v1beta1.MachineSet) int64 {
	number, _ := strconv.ParseInt(set.Annotations[v1beta1.AnnotationRevision], 10, 64)
	return number
}

// sameRevision reports whether the set has the deployment's template.
func sameRevision(set *v1beta1.MachineSet, d *v1beta1.MachineDeployment) bool {
	return machinedeployment.RevisionSet(d, &d.Spec.Template.Spec, 1).Name == set.Name
}

func sameNode(a, b *v1beta1.NodeTemplate) bool { return equality.Semantic.DeepEqual(a, b) }

// newMachine returns a paused Machine with the fields of the old machine, which the caller creates. If set is not nil,
// the set becomes the owner of the Machine. The set must exist on the API server, because the owner reference needs its
// UID.
func (m *machine) newMachine(migration *v1beta1.Migration, set *v1beta1.MachineSet, origin string) *v1beta1.Machine {
	made := m.object.DeepCopy()
	if set != nil {
		// Fields that the set controls get the set's values, so that the set has nothing to propagate.
		made = machineset.NewMachine(set, migration.Spec.Provider)
		made.Name = m.object.Name
		made.Labels = mergeMaps(made.Labels, m.object.Labels)
		made.Annotations = mergeMaps(made.Annotations, m.object.Annotations)
		made.Spec.Version = m.object.Spec.Version
		node, old := &made.Spec.Node, &m.object.Spec.Node
		node.Labels, node.Annotations = mergeMaps(node.Labels, old.Labels), mergeMaps(node.Annotations, old.Annotations)
		node.Taints = mergeTaints(node.Taints, old.Taints)
		hooks, oldHooks := &made.Spec.LifecycleHooks, &m.object.Spec.LifecycleHooks
		hooks.PreDrain = mergeHooks(hooks.PreDrain, oldHooks.PreDrain)
		hooks.PreTerminate = mergeHooks(hooks.PreTerminate, oldHooks.PreTerminate)
	} else {
		made.Finalizers = []string{v1beta1.MachineFinalizer}
		setLabel(made, v1beta1.LabelProvider, migration.Spec.Provider)
		setLabel(made, v1beta1.LabelTypeVersion, v1beta1.TypeVersion)
	}
	made.Namespace = migration.Namespace
	made.Spec.ClassRef = &v1beta1.LocalRef{Name: m.class.name}
	made.Spec.ProviderID = m.instance.ProviderID
	setLabel(made, v1beta1.LabelMigration, migration.Name)
	annotate(made, v1beta1.AnnotationMigratedFrom, origin)
	annotate(made, v1beta1.AnnotationPaused, "")
	data, _ := json.Marshal(postponed{Annotations: m.LaterAnnotations, Delete: m.Machine.Deleting})
	annotate(made, v1beta1.AnnotationAfterMigration, string(data))
	return made
}

func setLabel(object client.Object, key, value string) {
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	object.SetLabels(labels)
}

func mergeMaps(first, second map[string]string) map[string]string {
	if len(second) == 0 {
		return first
	}
	merged := maps.Clone(second)
	maps.Copy(merged, first)
	return merged
}

func mergeTaints(first, second []corev1.Taint) []corev1.Taint {
	for _, taint := range second {
		if !slices.ContainsFunc(first, func(t corev1.Taint) bool { return t.MatchTaint(&taint) }) {
			first = append(first, taint)
		}
	}
	return first
}

// mergeHooks returns the hooks of the copied machine. If the template and the old machine have a hook with the same
// name, mergeHooks returns the hook of the template. If only the template has the hook, mergeHooks skips it, because
// its owner has finished its work for this machine.
func mergeHooks(template, machine []v1beta1.LifecycleHook) []v1beta1.LifecycleHook {
	var hooks []v1beta1.LifecycleHook
	for _, hook := range machine {
		same := func(h v1beta1.LifecycleHook) bool { return h.Name == hook.Name }
		if i := slices.IndexFunc(template, same); i >= 0 {
			hook = template[i]
		}
		hooks = append(hooks, hook)
	}
	return hooks
}

func setOwner(object, owner client.Object, kind string) {
	reference := metav1.NewControllerRef(owner, v1beta1.GroupVersion.WithKind(kind))
	object.SetOwnerReferences([]metav1.OwnerReference{*reference})
}
