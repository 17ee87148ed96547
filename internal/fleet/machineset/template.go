package machineset

import (
	"encoding/json"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

type template struct {
	spec        *v1beta1.MachineSpec
	labels      map[string]string
	annotations map[string]string // including AnnotationLastAppliedTemplate
	owner       metav1.OwnerReference
	namespace   string
	placement   *v1beta1.Placement

	// These lists have the same content as the maps above. Iterating over a list is faster than iterating over a map.
	labelPairs, annotationPairs, nodeLabelPairs, nodeAnnotationPairs pairs
}

// pairs holds the entries of a map. Iterating over a list is faster than over a map.
type pairs []pair

type pair struct{ key, value string }

func pairsOf(m map[string]string) pairs {
	p := make(pairs, 0, len(m))
	for key, value := range m {
		p = append(p, pair{key, value})
	}
	return p
}

func (p pairs) containedIn(m map[string]string) bool {
	for i := range p {
		if got, ok := m[p[i].key]; !ok || got != p[i].value {
			return false
		}
	}
	return true
}

type applied struct {
	Labels          []string `json:"labels,omitempty"`
	Annotations     []string `json:"annotations,omitempty"`
	NodeLabels      []string `json:"nodeLabels,omitempty"`
	NodeAnnotations []string `json:"nodeAnnotations,omitempty"`
	Taints          []string `json:"taints,omitempty"`
	StartupTaints   []string `json:"startupTaints,omitempty"`
	PreDrain        []string `json:"preDrain,omitempty"`
	PreTerminate    []string `json:"preTerminate,omitempty"`
}

func templateOf(set *v1beta1.MachineSet) template {
	source := &set.Spec.Template
	t := template{
		spec:      &source.Spec,
		labels:    maps.Clone(source.ObjectMeta.Labels),
		owner:     *metav1.NewControllerRef(set, v1beta1.GroupVersion.WithKind("MachineSet")),
		namespace: set.Namespace,
		placement: set.Spec.Placement,
	}
	if t.labels == nil {
		t.labels = map[string]string{}
	}
	t.labels[v1beta1.LabelMachineSet] = set.Name
	if !has(t.labels, v1beta1.LabelTypeVersion) {
		t.labels[v1beta1.LabelTypeVersion] = v1beta1.TypeVersion
	}
	record := encode(applied{
		Labels:          slices.Sorted(maps.Keys(t.labels)),
		Annotations:     slices.Sorted(maps.Keys(source.ObjectMeta.Annotations)),
		NodeLabels:      slices.Sorted(maps.Keys(t.spec.Node.Labels)),
		NodeAnnotations: slices.Sorted(maps.Keys(t.spec.Node.Annotations)),
		Taints:          keysOf(t.spec.Node.Taints, taintKey),
		StartupTaints:   keysOf(t.spec.Node.StartupTaints, taintKey),
		PreDrain:        keysOf(t.spec.LifecycleHooks.PreDrain, hookKey),
		PreTerminate:    keysOf(t.spec.LifecycleHooks.PreTerminate, hookKey),
	})
	t.annotations = maps.Clone(source.ObjectMeta.Annotations)
	if t.annotations == nil {
		t.annotations = map[string]string{}
	}
	t.annotations[v1beta1.AnnotationLastAppliedTemplate] = record
	t.labelPairs, t.annotationPairs = pairsOf(t.labels), pairsOf(t.annotations)
	t.nodeLabelPairs, t.nodeAnnotationPairs = pairsOf(t.spec.Node.Labels), pairsOf(t.spec.Node.Annotations)
	return t
}

func (t template) machine(provider string) *v1beta1.Machine {
	m := &v1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       t.namespace,
			Labels:          maps.Clone(t.labels),
			Annotations:     maps.Clone(t.annotations),
			Finalizers:      []string{v1beta1.MachineFinalizer},
			OwnerReferences: []metav1.OwnerReference{t.owner},
		},
		Spec: *t.spec.DeepCopy(),
	}
	m.Spec.ProviderID = ""
	if provider != "" {
		m.Labels[v1beta1.LabelProvider] = provider
	}
	return m
}

// NewMachine returns a Machine as the set would create it, but without a name. provider is "" if unknown.
func NewMachine(set *v1beta1.MachineSet, provider string) *v1beta1.Machine {
	return templateOf(set).machine(provider)
}

// InSync reports whether the machine already has all fields of the set's template that are propagated in place.
func InSync(set *v1beta1.MachineSet, m *v1beta1.Machine) bool { return templateOf(set).inSync(m) }

// propagate returns the machine with the template's fields that need no new instance, or nil if nothing changes. Labels
// and annotations that other writers have added to the machine do not change.
func (t template) propagate(m *v1beta1.Machine) *v1beta1.Machine {
	if t.inSync(m) {
		return nil
	}
	var before applied
	// Treat an invalid record as empty, so that nothing is removed.
	if err := json.Unmarshal([]byte(m.Annotations[v1beta1.AnnotationLastAppliedTemplate]), &before); err != nil {
		before = applied{}
	}
	changed := m.DeepCopy()
	changed.Labels = mergeMap(m.Labels, t.labels, before.Labels)
	changed.Annotations = mergeMap(m.Annotations, t.annotations, before.Annotations)
	node, want := &changed.Spec.Node, t.spec.Node
	node.Labels = mergeMap(node.Labels, want.Labels, before.NodeLabels)
	node.Annotations = mergeMap(node.Annotations, want.Annotations, before.NodeAnnotations)
	node.Taints = mergeTaints(node.Taints, want.Taints, before.Taints)
	node.StartupTaints = mergeTaints(node.StartupTaints, want.StartupTaints, before.StartupTaints)
	if !slices.Equal(node.ReadinessGates, want.ReadinessGates) {
		node.ReadinessGates = slices.Clone(want.ReadinessGates)
	}
	hooks := &changed.Spec.LifecycleHooks
	hooks.PreDrain = mergeHooks(hooks.PreDrain, t.spec.LifecycleHooks.PreDrain, before.PreDrain, machinestate.IsLive(m))
	hooks.PreTerminate = mergeHooks(hooks.PreTerminate, t.spec.LifecycleHooks.PreTerminate, before.PreTerminate,
		machinestate.IsLive(m))
	if !sameTimeouts(m.Spec.Timeouts, t.spec.Timeouts) {
		changed.Spec.Timeouts = *t.spec.Timeouts.DeepCopy()
	}
	changed.Spec.ExpireAfter = t.spec.ExpireAfter
	if !sameDrain(&m.Spec.Drain, &t.spec.Drain) {
		changed.Spec.Drain = *t.spec.Drain.DeepCopy()
	}
	for i := range changed.OwnerReferences {
		if !t.refersRight(&changed.OwnerReferences[i]) {
			changed.OwnerReferences[i] = t.owner
		}
	}
	return changed
}

// refersRight reports whether an owner reference with the UID of the set also has its kind and name. The garbage
// collector of Kubernetes follows all three, so after the deletion of the set, a machine with a wrong kind would
// remain.
func (t template) refersRight(r *metav1.OwnerReference) bool {
	return r.UID != t.owner.UID || r.APIVersion == t.owner.APIVersion && r.Kind == t.owner.Kind && r.Name == t.owner.Name
}

// inSync reports whether there is nothing to propagate. inSync runs for every machine in every round, so it must not
// allocate memory.
func (t template) inSync(m *v1beta1.Machine) bool {
	for i := range m.OwnerReferences {
		if !t.refersRight(&m.OwnerReferences[i]) {
			return false
		}
	}
	return t.labelPairs.containedIn(m.Labels) && t.annotationPairs.containedIn(m.Annotations) &&
		t.nodeLabelPairs.containedIn(m.Spec.Node.Labels) && t.nodeAnnotationPairs.containedIn(m.Spec.Node.Annotations) &&
		containsTaints(m.Spec.Node.Taints, t.spec.Node.Taints) &&
		containsTaints(m.Spec.Node.StartupTaints, t.spec.Node.StartupTaints) &&
		slices.Equal(m.Spec.Node.ReadinessGates, t.spec.Node.ReadinessGates) &&
		sameHooks(m.Spec.LifecycleHooks.PreDrain, t.spec.LifecycleHooks.PreDrain) &&
		sameHooks(m.Spec.LifecycleHooks.PreTerminate, t.spec.LifecycleHooks.PreTerminate) &&
		sameTimeouts(m.Spec.Timeouts, t.spec.Timeouts) && ptr.Equal(m.Spec.ExpireAfter, t.spec.ExpireAfter) &&
		sameDrain(&m.Spec.Drain, &t.spec.Drain)
}

// sameLists reports whether all lists of both machines are equal. A merge patch replaces a list as a whole.
func sameLists(a, b *v1beta1.Machine) bool {
	return equality.Semantic.DeepEqual(a.Spec.Node.Taints, b.Spec.Node.Taints) &&
		equality.Semantic.DeepEqual(a.Spec.Node.StartupTaints, b.Spec.Node.StartupTaints) &&
		slices.Equal(a.Spec.Node.ReadinessGates, b.Spec.Node.ReadinessGates) &&
		equality.Semantic.DeepEqual(a.Spec.LifecycleHooks, b.Spec.LifecycleHooks) &&
		sameDrain(&a.Spec.Drain, &b.Spec.Drain) &&
		equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences) &&
		equality.Semantic.DeepEqual(a.Finalizers, b.Finalizers)
}

func mergeMap(current, wanted map[string]string, before []string) map[string]string {
	merged := maps.Clone(current)
	for _, key := range before {
		if !has(wanted, key) {
			delete(merged, key)
		}
	}
	if merged == nil && len(wanted) > 0 {
		merged = make(map[string]string, len(wanted))
	}
	maps.Copy(merged, wanted)
	return merged
}

func mergeTaints(current, wanted []corev1.Taint, before []string) []corev1.Taint {
	var merged []corev1.Taint
	for _, taint := range current {
		if !slices.Contains(before, taintKey(taint)) && !slices.ContainsFunc(wanted, sameKey(taint)) {
			merged = append(merged, taint)
		}
	}
	return append(merged, wanted...)
}

// mergeHooks adds only hooks that are new in the template. When the owner of a hook has finished its work, it removes
// the hook from the machine. mergeHooks must not add this hook again. If add is false, mergeHooks only changes and
// removes hooks.
func mergeHooks(current, wanted []v1beta1.LifecycleHook, before []string, add bool) []v1beta1.LifecycleHook {
	var merged []v1beta1.LifecycleHook
	for _, hook := range current {
		if slices.Contains(before, hookKey(hook)) && !slices.ContainsFunc(wanted, named(hook)) {
			continue
		}
		merged = append(merged, hook)
	}
	for _, hook := range wanted {
		at := slices.IndexFunc(merged, named(hook))
		switch {
		case at >= 0:
			merged[at] = hook
		case add && !slices.Contains(before, hookKey(hook)):
			merged = append(merged, hook)
		}
	}
	return merged
}

func sameTimeouts(a, b v1beta1.MachineTimeouts) bool {
	return a.CreationOrDefault() == b.CreationOrDefault() && a.UpdateOrDefault() == b.UpdateOrDefault() &&
		a.DrainOrDefault() == b.DrainOrDefault() && a.VolumeDetachOrDefault() == b.VolumeDetachOrDefault()
}

// sameDrain does not allocate memory if there are no rules.
func sameDrain(a, b *v1beta1.MachineDrain) bool {
	return a.PodsWithVolumes == b.PodsWithVolumes && a.SingleReplicas == b.SingleReplicas &&
		len(a.Rules) == len(b.Rules) && (len(a.Rules) == 0 || equality.Semantic.DeepEqual(a.Rules, b.Rules))
}

// sameInPlace reports whether two specs are equal in all fields that a set propagates in place.
func sameInPlace(a, b *v1beta1.MachineSpec) bool {
	return equality.Semantic.DeepEqual(a.Node, b.Node) &&
		equality.Semantic.DeepEqual(a.LifecycleHooks, b.LifecycleHooks) && sameTimeouts(a.Timeouts, b.Timeouts) &&
		ptr.Equal(a.ExpireAfter, b.ExpireAfter) && sameDrain(&a.Drain, &b.Drain)
}

func sameInstanceSpec(a, b *v1beta1.MachineSpec) bool {
	return a.Provider == b.Provider && a.Version == b.Version &&
		equality.Semantic.DeepEqual(a.ClassRef, b.ClassRef) &&
		equality.Semantic.DeepEqual(a.ProviderSpec, b.ProviderSpec) &&
		equality.Semantic.DeepEqual(a.CredentialsRef, b.CredentialsRef) &&
		equality.Semantic.DeepEqual(a.UserDataRef, b.UserDataRef)
}

func has(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}

func containsTaints(taints, subset []corev1.Taint) bool {
	for _, taint := range subset {
		if !slices.ContainsFunc(taints, func(t corev1.Taint) bool {
			return t.Key == taint.Key && t.Effect == taint.Effect && t.Value == taint.Value
		}) {
			return false
		}
	}
	return true
}

func sameHooks(hooks, wanted []v1beta1.LifecycleHook) bool {
	for _, hook := range hooks {
		if at := slices.IndexFunc(wanted, named(hook)); at >= 0 && wanted[at] != hook {
			return false
		}
	}
	return true
}

func taintKey(t corev1.Taint) string { return t.Key + ":" + string(t.Effect) }

func hookKey(h v1beta1.LifecycleHook) string { return h.Name }

func sameKey(t corev1.Taint) func(corev1.Taint) bool {
	return func(other corev1.Taint) bool { return other.Key == t.Key && other.Effect == t.Effect }
}

func named(h v1beta1.LifecycleHook) func(v1beta1.LifecycleHook) bool {
	return func(other v1beta1.LifecycleHook) bool { return other.Name == h.Name }
}

func keysOf[T any](list []T, key func(T) string) []string {
	keys := make([]string, 0, len(list))
	for _, item := range list {
		keys = append(keys, key(item))
	}
	slices.Sort(keys)
	return keys
}

func encode(a applied) string {
	data, _ := json.Marshal(a) // Lists of strings always marshal.
	return string(data)
}
