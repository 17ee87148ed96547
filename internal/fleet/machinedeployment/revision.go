package machinedeployment

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

type history struct {
	sets []*v1beta1.MachineSet
	// currentIndex is the index of the set with the wanted template, or -1.
	currentIndex int
	// number is the wanted revision: that of the current set if it is the newest set, and otherwise the next number.
	number int64
	// rolloutAfter is the time of spec.rolloutAfter, or zero while this time is in the future. In that case, startsIn
	// is the duration until this time.
	rolloutAfter time.Time
	startsIn     time.Duration
}

// findRevision sorts the sets and finds the set with the deployment's template. If several sets have this template, the
// newest of them is current, because it needs the smallest rollout.
func findRevision(d *v1beta1.MachineDeployment, sets []*v1beta1.MachineSet, now time.Time) history {
	h := history{sets: slices.Clone(sets), currentIndex: -1}
	if after := d.Spec.RolloutAfter; after != nil {
		if after.After(now) {
			h.startsIn = after.Sub(now)
		} else {
			h.rolloutAfter = after.Time
		}
	}
	slices.SortFunc(h.sets, func(a, b *v1beta1.MachineSet) int {
		return cmp.Or(
			cmp.Compare(revisionOf(a), revisionOf(b)),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(a.Name, b.Name))
	})
	var newest int64
	for i, set := range h.sets {
		newest = max(newest, revisionOf(set))
		if set.DeletionTimestamp.IsZero() && newerThan(set, h.rolloutAfter) &&
			SameRevision(TemplateOfSet(set), TemplateOf(d)) {
			h.currentIndex = i
		}
	}
	h.number = newest + 1
	if h.currentIndex >= 0 && newest > 0 && revisionOf(h.sets[h.currentIndex]) == newest {
		h.number = newest
	}
	return h
}

func newerThan(set *v1beta1.MachineSet, t time.Time) bool {
	if t.IsZero() || !set.CreationTimestamp.Time.Before(t) {
		return true
	}
	recorded, err := time.Parse(time.RFC3339, set.Annotations[v1beta1.AnnotationRolloutAfter])
	return err == nil && !recorded.Before(t)
}

// revisionOf returns the set's revision, or 0.
func revisionOf(set *v1beta1.MachineSet) int64 {
	n, err := strconv.ParseInt(set.Annotations[v1beta1.AnnotationRevision], 10, 64)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// sizedFor returns the deployment's replicas at the last change of the sets' replicas, from the annotation of the
// newest set. Without this annotation, it returns UnknownSize.
func (h history) sizedFor() int32 {
	if len(h.sets) == 0 {
		return UnknownSize
	}
	return sizedForOf(h.sets[len(h.sets)-1])
}

func sizedForOf(newest *v1beta1.MachineSet) int32 {
	n, err := strconv.ParseInt(newest.Annotations[v1beta1.AnnotationSizedFor], 10, 32)
	if err != nil || n < 0 {
		return UnknownSize
	}
	return int32(n)
}

func (h history) setNamed(name string) *v1beta1.MachineSet {
	for _, set := range h.sets {
		if set.Name == name {
			return set
		}
	}
	return nil
}

func (h history) newSet(d *v1beta1.MachineDeployment) *v1beta1.MachineSet {
	var collisions int32
	if d.Status.CollisionCount != nil {
		collisions = *d.Status.CollisionCount
	}
	hash := TemplateHash(TemplateOf(d), h.rolloutAfter, collisions)
	selector := d.Spec.Selector.DeepCopy()
	if selector.MatchLabels == nil {
		selector.MatchLabels = map[string]string{}
	}
	selector.MatchLabels[v1beta1.LabelTemplateHash] = hash
	set := &v1beta1.MachineSet{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       d.Namespace,
			Name:            d.Name + "-" + hash,
			Labels:          maps.Clone(d.Spec.Template.ObjectMeta.Labels),
			Annotations:     map[string]string{v1beta1.AnnotationHashVersion: hashVersion},
			OwnerReferences: []metav1.OwnerReference{*controllerRef(d)},
		},
		Spec: v1beta1.MachineSetSpec{
			Replicas:  new(int32),
			Selector:  *selector,
			Template:  *d.Spec.Template.DeepCopy(),
			Placement: d.Spec.Placement.DeepCopy(),
		},
	}
	if !h.rolloutAfter.IsZero() {
		set.Annotations[v1beta1.AnnotationRolloutAfter] = h.rolloutAfter.UTC().Format(time.RFC3339)
	}
	setRevision(set, h.number)
	recordCause(set, d)
	propagate(set, d)
	return set
}

// RevisionSet returns a set of the deployment with 0 replicas. instance provides the fields that cause a rollout, and
// the deployment's template provides the others.
func RevisionSet(d *v1beta1.MachineDeployment, instance *v1beta1.MachineSpec,
	number int64) *v1beta1.MachineSet {
	of := d.DeepCopy()
	keepRolloutFields(&of.Spec.Template.Spec, instance)
	return history{number: number}.newSet(of)
}

// AnnotationChangeCause is the annotation in which kubectl records the cause of a change.
const AnnotationChangeCause = "kubernetes.io/change-cause"

func recordCause(set *v1beta1.MachineSet, d *v1beta1.MachineDeployment) {
	if cause, ok := d.Annotations[AnnotationChangeCause]; ok {
		annotate(set, AnnotationChangeCause, cause)
	}
}

func controllerRef(d *v1beta1.MachineDeployment) *metav1.OwnerReference {
	return metav1.NewControllerRef(d, v1beta1.GroupVersion.WithKind("MachineDeployment"))
}

func setRevision(set *v1beta1.MachineSet, number int64) {
	text := strconv.FormatInt(number, 10)
	annotate(set, v1beta1.AnnotationRevision, text)
	annotate(set, v1beta1.AutoscalerRevisionAnnotation, text)
}

func annotate(set *v1beta1.MachineSet, key, value string) {
	if set.Annotations == nil {
		set.Annotations = map[string]string{}
	}
	set.Annotations[key] = value
}

// expiredSets returns the oldest empty sets beyond the history limit. An empty set has no machines and its controller
// cannot create any.
func (h history) expiredSets(counted []Set, limit int32) []*v1beta1.MachineSet {
	var empty []*v1beta1.MachineSet
	for i, set := range h.sets {
		if i != h.currentIndex && set.DeletionTimestamp.IsZero() && ceiling(counted[i]) == 0 && counted[i].Deleting == 0 &&
			counted[i].Role == (Role{}) && set.Status.Replicas == 0 && set.Status.ObservedGeneration >= set.Generation {
			empty = append(empty, set)
		}
	}
	if excess := len(empty) - int(limit); excess > 0 {
		return empty[:excess]
	}
	return nil
}
