package source

import (
	"crypto/sha256"
	"encoding/base32"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

const (
	// CodeRenamed: the name is too long for Machinist, or contains a dot.
	CodeRenamed = "Renamed"
	// CodeReservedKey: an old object has a label or annotation in Machinist's own domain. Machinist would act on this
	// key.
	CodeReservedKey = "ReservedKey"
	// CodeOtherController: the controlling owner belongs to another system.
	CodeOtherController = "OtherController"
	// CodeOtherOwner: an owner belongs to another system. When this owner is deleted, the object is deleted too.
	CodeOtherOwner = "OtherOwner"
	// CodeOtherFinalizer: a finalizer of another system delays the deletion of the object.
	CodeOtherFinalizer = "OtherFinalizer"
	// CodeBeingDeleted: an object that is not a machine is being deleted.
	CodeBeingDeleted = "BeingDeleted"
	// CodeConversionFailed: an unexpected error prevented the conversion of the object.
	CodeConversionFailed = "ConversionFailed"
)

// dialect holds an old system's names for features that all systems have.
type dialect struct {
	// groups are the API groups of the system. The owner of an object can be in another API group of the same system.
	groups []string
	// finalizers are the finalizers of the system, without those of the garbage collector.
	finalizers []string
	// labels and annotations are keys that the controllers write for their own use. An entry that ends with a slash
	// stands for all keys of this domain.
	labels, annotations []string
	// autoscaler is the domain of the annotations with the sizes for cluster-autoscaler, such as cluster.k8s.io. It may
	// be empty.
	autoscaler string
	revision   string
}

type metadata struct {
	*fields
	oldName           string
	oldLabels         map[string]string
	oldAnnotations    map[string]string
	name              string
	labels            map[string]string
	annotations       map[string]string
	later             map[string]string
	controller        *metav1.OwnerReference // nil for owners of other systems
	deletionRequested bool
}

// convert passes the fields of an old object to a function that converts the object. If the function has not read a
// field, convert reports the field. If the function panics, convert reports a Blocker.
func convert(old *unstructured.Unstructured, read func(f *fields, c *Converted)) (c Converted) {
	defer func() {
		if recover() != nil { // The value of the panic may contain a secret.
			c = Converted{Findings: append(c.Findings, provider.Finding{Level: provider.FindingBlocker,
				Code: CodeConversionFailed, Message: "The object differs so much from those of the old system that it cannot " +
					"be converted. Correct or delete it, and report this as a bug of Machinist."})}
		}
	}()
	f := newFields(old.Object, "", &c.Findings)
	f.ignore("apiVersion", "kind")
	read(f, &c)
	f.reportUnread()
	return c
}

// readRole calls the function that reads objects of the given role. If the map has no function for a role, the old
// system has no objects of this kind, and readRole reports a Blocker.
func (f *fields) readRole(role Role, read map[Role]func()) {
	if as, found := read[role]; found {
		as()
		return
	}
	f.report(provider.FindingBlocker, CodeNotSupported, "kind", "The old system has no object of the kind %s.", role)
	f.ignoreAll()
}

// metadata converts the metadata that all systems have: names, owners, labels, annotations, and the sizes for the
// autoscaler.
func (d *dialect) metadata(f *fields, role Role) metadata {
	m := metadata{fields: f.child("metadata"), later: map[string]string{}}
	m.ignore("namespace", "uid", "resourceVersion", "generation", "generateName", "creationTimestamp", "selfLink",
		"managedFields", "deletionGracePeriodSeconds")
	if m.oldName = m.text("name"); m.oldName == "" {
		m.report(provider.FindingBlocker, CodeMissingField, "name", "The object has no name.")
	}
	m.name = m.shorten(m.oldName, role)
	if m.deletionRequested = m.text("deletionTimestamp") != ""; m.deletionRequested && role != RoleMachine {
		m.report(provider.FindingBlocker, CodeBeingDeleted, "deletionTimestamp", "The %s is being deleted. Wait until it "+
			"is gone.", role)
	}
	d.owners(&m)
	for i, finalizer := range m.texts("finalizers") {
		if !slices.Contains(d.finalizers, finalizer) && finalizer != metav1.FinalizerDeleteDependents &&
			finalizer != metav1.FinalizerOrphanDependents {
			m.report(provider.FindingLoss, CodeOtherFinalizer, "finalizers["+strconv.Itoa(i)+"]", "Another system protects "+
				"the object with the finalizer %s. The migration deletes the object without waiting for that system.", finalizer)
		}
	}
	m.oldLabels, m.oldAnnotations = m.textMap("labels"), m.textMap("annotations")
	m.labels = d.labelsOf(m.fields, m.oldLabels)
	m.annotations = d.annotationsOf(m.fields, m.oldAnnotations)
	if role != RoleClass {
		m.dropToolKeys(role)
	} else {
		if len(m.labels) > 0 {
			m.report(provider.FindingNote, CodeNotSupported, "labels", "The labels are not copied to Machinist's class.")
		}
		if len(m.annotations) > 0 {
			m.report(provider.FindingNote, CodeNotSupported, "annotations", "The annotations are not copied to Machinist's "+
				"class.")
		}
	}
	if value, found := m.annotations[v1beta1.AnnotationClusterAPIPaused]; found && role == RoleMachine {
		delete(m.annotations, v1beta1.AnnotationClusterAPIPaused)
		m.later[v1beta1.AnnotationClusterAPIPaused] = value
	}
	if role == RoleDeployment || role == RoleSet {
		d.autoscalerBounds(&m)
		d.autoscalerOptions(&m)
		if value, found := m.oldAnnotations[d.revision]; found {
			m.annotations[v1beta1.AnnotationRevision] = value
		}
	}
	return m
}

func (m *metadata) apply(to client.Object) {
	to.SetName(m.name)
	if len(m.labels) > 0 {
		to.SetLabels(m.labels)
	}
	if len(m.annotations) > 0 {
		to.SetAnnotations(m.annotations)
	}
}

func (m *metadata) shorten(name string, role Role) string {
	longest := map[Role]int{
		RoleDeployment: v1beta1.MaxMachineDeploymentNameLength,
		RoleSet:        v1beta1.MaxMachineSetNameLength,
		RoleMachine:    v1beta1.MaxMachineNameLength,
	}[role]
	short := shortName(name, longest)
	if short != name {
		m.report(provider.FindingNote, CodeRenamed, "name", "In Machinist, the name of a %s must be a DNS label of at "+
			"most %d characters. The new name is %s.", role, longest, short)
	}
	return short
}

// shortName returns a name without dots and with at most longest characters. A changed name ends with a hash of the
// whole name. If longest is 0, the name is not changed.
func shortName(name string, longest int) string {
	if longest == 0 || len(name) <= longest && !strings.Contains(name, ".") {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:5]))
	name = strings.ReplaceAll(name, ".", "-")
	name = name[:min(len(name), longest-len(hash)-1)]
	return strings.TrimRight(name, "-") + "-" + hash
}

// owners reads the owner references of an object. A controlling owner of the old system becomes m.controller. A
// controlling owner of another system is reported, because this owner would create a replacement for the object, or
// delete the new object.
func (d *dialect) owners(m *metadata) {
	for _, f := range m.objects("ownerReferences") {
		owner := metav1.OwnerReference{APIVersion: f.text("apiVersion"), Kind: f.text("kind"), Name: f.text("name"),
			UID: types.UID(f.text("uid"))}
		controller := f.boolean("controller")
		f.ignore("blockOwnerDeletion")
		group, _, _ := strings.Cut(owner.APIVersion, "/")
		switch {
		case slices.Contains(d.groups, group):
			if controller {
				m.controller = &owner
			}
		case controller:
			f.report(provider.FindingBlocker, CodeOtherController, "controller", "The %s %s controls the object and would "+
				"delete it, or create another one. Stop that controller and remove the reference.", owner.Kind, owner.Name)
		default:
			f.report(provider.FindingLoss, CodeOtherOwner, "name", "The object is deleted together with the %s %s. "+
				"Machinist's object is not.", owner.Kind, owner.Name)
		}
	}
}

func (d *dialect) labelsOf(f *fields, old map[string]string) map[string]string {
	return withoutReserved(f, "labels", withoutKeys(old, d.labels))
}

func (d *dialect) annotationsOf(f *fields, old map[string]string) map[string]string {
	all := withoutKeys(old, d.annotations)
	// With this annotation, kubectl apply would remove the fields that the old manifest lacks.
	delete(all, corev1.LastAppliedConfigAnnotation)
	delete(all, d.revision)
	if d.autoscaler != "" {
		delete(all, d.autoscaler+autoscalerMin)
		delete(all, d.autoscaler+autoscalerMax)
	}
	return withoutReserved(f, "annotations", all)
}

const (
	autoscalerMin = "/cluster-api-autoscaler-node-group-min-size"
	autoscalerMax = "/cluster-api-autoscaler-node-group-max-size"
)

func (d *dialect) autoscalerBounds(m *metadata) {
	if d.autoscaler == "" {
		return
	}
	for from, to := range map[string]string{
		d.autoscaler + autoscalerMin: v1beta1.AutoscalerMinSizeAnnotation,
		d.autoscaler + autoscalerMax: v1beta1.AutoscalerMaxSizeAnnotation,
	} {
		if value, found := m.oldAnnotations[from]; found {
			m.annotations[to] = value
		}
	}
}

// withoutKeys returns a copy of the map without the given keys. An entry that ends with a slash stands for all keys of
// this domain.
func withoutKeys(all map[string]string, keys []string) map[string]string {
	rest := map[string]string{}
	maps.Copy(rest, all)
	maps.DeleteFunc(rest, func(key, _ string) bool {
		return slices.ContainsFunc(keys, func(k string) bool {
			return key == k || strings.HasSuffix(k, "/") && strings.HasPrefix(key, k)
		})
	})
	return rest
}

// withoutReserved removes keys in Machinist's own domain. Such keys had no effect in the old system, but Machinist
// would act on these keys.
func withoutReserved(f *fields, name string, all map[string]string) map[string]string {
	for _, key := range slices.Sorted(maps.Keys(all)) {
		if reserved(key) {
			f.report(provider.FindingLoss, CodeReservedKey, name+"."+key, "Machinist acts on keys of its own domain. So it "+
				"does not copy this key from an object of another system.")
			delete(all, key)
		}
	}
	return all
}

func reserved(key string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return domain == v1beta1.GroupVersion.Group || strings.HasSuffix(domain, "."+v1beta1.GroupVersion.Group)
}

func (d *dialect) templateMeta(f *fields) v1beta1.TemplateMeta {
	m := f.child("metadata")
	// The old systems ignore these fields: a machine gets a generated name, and the namespace of its set.
	m.ignore("creationTimestamp", "name", "generateName", "namespace")
	m.reportLoss("The metadata of Machinist's templates has only labels and annotations.", "finalizers", "ownerReferences")
	meta := v1beta1.TemplateMeta{
		Labels:      d.labelsOf(m, m.textMap("labels")),
		Annotations: d.annotationsOf(m, m.textMap("annotations")),
	}
	if _, found := meta.Annotations[v1beta1.AnnotationClusterAPIPaused]; found {
		delete(meta.Annotations, v1beta1.AnnotationClusterAPIPaused)
		m.report(provider.FindingLoss, CodeReservedKey, "annotations."+v1beta1.AnnotationClusterAPIPaused,
			"The annotation would pause every machine of the template. Pause single Machines instead.")
	}
	return meta
}

// nodeMeta reads spec.metadata of a machine. The old system applies this metadata to the Node. The result is
// spec.metadata.name, which may be empty.
func (d *dialect) nodeMeta(f *fields, to *v1beta1.NodeTemplate) (nodeName string) {
	m := f.child("metadata")
	m.ignore("creationTimestamp", "namespace", "generateName")
	m.reportLoss("Machinist only applies labels, annotations and taints to Nodes.", "finalizers", "ownerReferences")
	to.Labels = withoutReserved(m, "labels", m.textMap("labels"))
	to.Annotations = withoutReserved(m, "annotations", m.textMap("annotations"))
	return m.text("name")
}

// taints reads the taints of a Node, without those that skip excludes. skip may be nil.
func (f *fields) taints(skip func(*fields) bool) (all []corev1.Taint) {
	seen := map[string]bool{}
	for _, t := range f.objects("taints") {
		t.ignore("timeAdded")
		skipped := skip != nil && skip(t)
		taint := corev1.Taint{Key: t.text("key"), Value: t.text("value"), Effect: corev1.TaintEffect(t.text("effect"))}
		id := taint.Key + ":" + string(taint.Effect)
		switch {
		case taint.Key == "" || taint.Effect == "":
			t.report(provider.FindingBlocker, CodeMissingField, "key", "A taint needs a key and an effect.")
		case skipped:
		case seen[id]:
			t.report(provider.FindingBlocker, CodeInvalidValue, "key", "The list contains the taint %s twice.", id)
		default:
			seen[id] = true
			all = append(all, taint)
		}
	}
	return all
}

func readSelector(s *fields) metav1.LabelSelector {
	selector := metav1.LabelSelector{MatchLabels: s.textMap("matchLabels")}
	for _, e := range s.objects("matchExpressions") {
		selector.MatchExpressions = append(selector.MatchExpressions, metav1.LabelSelectorRequirement{Key: e.text("key"),
			Operator: metav1.LabelSelectorOperator(e.text("operator")), Values: e.texts("values")})
	}
	return selector
}

func keysOf(selector metav1.LabelSelector) []string {
	keys := slices.Sorted(maps.Keys(selector.MatchLabels))
	for _, e := range selector.MatchExpressions {
		keys = append(keys, e.Key)
	}
	return keys
}

// isOwn reports whether the old system writes the label for its own use.
func (d *dialect) isOwn(label string) bool {
	return len(withoutKeys(map[string]string{label: ""}, d.labels)) == 0
}

// selector reads a label selector, which must match the labels in the template. The new template lacks the labels that
// the old system wrote for its own use, so the selector drops them.
func (d *dialect) selector(f *fields, templateLabels map[string]string) metav1.LabelSelector {
	const name = "selector"
	selector := readSelector(f.child(name))
	selector.MatchLabels = withoutKeys(selector.MatchLabels, d.labels)
	selector.MatchExpressions = slices.DeleteFunc(selector.MatchExpressions, func(e metav1.LabelSelectorRequirement) bool {
		return d.isOwn(e.Key)
	})
	keys := keysOf(selector)
	if f.reservedKey(name, keys) {
		return selector
	}
	if len(keys) == 0 {
		f.report(provider.FindingBlocker, CodeInvalidValue, name, "The selector is empty. Machinist needs a label that "+
			"selects the machines.")
		return selector
	}
	parsed, err := metav1.LabelSelectorAsSelector(&selector)
	if err != nil {
		f.report(provider.FindingBlocker, CodeInvalidValue, name, "The selector is not valid.")
	} else if !parsed.Matches(labels.Set(templateLabels)) {
		f.report(provider.FindingBlocker, CodeInvalidValue, name, "The selector does not match the labels of the template.")
	}
	return selector
}

func (f *fields) reservedKey(name string, keys []string) (found bool) {
	for _, key := range keys {
		if reserved(key) {
			f.report(provider.FindingBlocker, CodeReservedKey, name, "The selector has the key %s, which is in Machinist's "+
				"own domain. Select by another label.", key)
			return true
		}
	}
	return false
}

// duration returns the value of a flag, or nil if the flag is not set.
func (f Flags) duration(name string, to *fields) *time.Duration {
	text := f[name]
	if text == "" {
		return nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		to.report(provider.FindingBlocker, CodeInvalidValue, "", "The value of the flag %s of the old process is not a "+
			"duration such as 20m. Correct it in spec.processFlags of the Migration.", name)
		return nil
	}
	return &d
}
