package apiserver

import (
	"fmt"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type step struct {
	kind *kind
	key  client.ObjectKey
	do   action
}

type action int

const (
	deleteDependent action = iota
	// deleteInForeground deletes an object in the foreground. The owner of the object waits for the deletion, and the
	// object has dependents of its own.
	deleteInForeground
	// dropOwners removes references to owners that do not exist or that wait for their dependents. The server uses
	// dropOwners only if at least one other owner of the object remains.
	dropOwners
	// orphanDependent removes the reference to an owner that is deleted with the policy Orphan.
	orphanDependent
	// finishOrphaning and finishForeground remove the finalizer of an owner that no longer waits for dependents.
	finishOrphaning
	finishForeground
	countPods
	deleteContent
	finishNamespace
	// deleteCustomObject deletes an object whose CustomResourceDefinition is being deleted. finishDefinition removes
	// the finalizer of a definition without objects.
	deleteCustomObject
	finishDefinition
)

// Actors of the writes of background controllers.
const (
	GarbageCollector     = "garbage-collector"
	DisruptionController = "disruption-controller"
	NamespaceController  = "namespace-controller"
)

// PendingSteps returns the number of steps that are due for the background controllers.
func (s *Server) PendingSteps() int {
	s.findSteps()
	return len(s.pending)
}

// Step runs one of the due steps and returns its description. The order of the steps is fixed. If i is out of range,
// the result is "".
func (s *Server) Step(i int) string {
	s.findSteps()
	if i < 0 || i >= len(s.pending) {
		return ""
	}
	p := s.pending[i]
	r := s.get(p.kind, p.key)
	done, err := s.run(p, r)
	if err != nil {
		return fmt.Sprintf("%s: %v", done, err)
	}
	return done
}

func (s *Server) run(p step, r *record) (string, error) {
	what := fmt.Sprintf("%s %s", p.kind.gvk.Kind, p.key)
	collector := func(verb string) request { return request{actor: GarbageCollector, verb: verb} }
	remove := func(policy metav1.DeletionPropagation) error {
		return s.delete(p.kind, collector("delete"), r, &metav1.DeleteOptions{
			PropagationPolicy: &policy, Preconditions: &metav1.Preconditions{UID: &r.meta.UID}})
	}
	change := func(mutate func(*metav1.ObjectMeta)) error {
		meta := *r.meta
		mutate(&meta)
		_, err := s.replace(p.kind, collector("patch"), r, &meta, r.body, r.managed)
		return err
	}
	switch p.do {
	case deleteDependent:
		policy := metav1.DeletePropagationBackground
		switch {
		case slices.Contains(r.meta.Finalizers, metav1.FinalizerOrphanDependents):
			policy = metav1.DeletePropagationOrphan
		case slices.Contains(r.meta.Finalizers, metav1.FinalizerDeleteDependents):
			policy = metav1.DeletePropagationForeground
		}
		return GarbageCollector + " deletes " + what, remove(policy)
	case deleteInForeground:
		return GarbageCollector + " deletes in foreground " + what, remove(metav1.DeletePropagationForeground)
	case dropOwners:
		return GarbageCollector + " removes owners of " + what, change(func(meta *metav1.ObjectMeta) {
			meta.OwnerReferences = slices.DeleteFunc(slices.Clone(meta.OwnerReferences), func(o metav1.OwnerReference) bool {
				return s.ownerState(r, o) != solid
			})
		})
	case orphanDependent:
		return GarbageCollector + " orphans " + what, change(func(meta *metav1.ObjectMeta) {
			meta.OwnerReferences = slices.DeleteFunc(slices.Clone(meta.OwnerReferences), func(o metav1.OwnerReference) bool {
				owner := s.live[o.UID]
				return owner.record != nil && waitsFor(owner.record, metav1.FinalizerOrphanDependents)
			})
		})
	case finishOrphaning:
		return GarbageCollector + " finishes orphaning the dependents of " +
			what, change(withoutFinalizer(metav1.FinalizerOrphanDependents))
	case finishForeground:
		return GarbageCollector + " finishes deleting the dependents of " +
			what, change(withoutFinalizer(metav1.FinalizerDeleteDependents))
	case deleteContent:
		policy := metav1.DeletePropagationBackground
		return NamespaceController + " deletes " + what, s.delete(p.kind, request{actor: NamespaceController, verb: "delete"},
			r, &metav1.DeleteOptions{PropagationPolicy: &policy})
	case finishNamespace:
		s.finishNamespace(p.kind, request{actor: NamespaceController, verb: "delete"}, r)
		return NamespaceController + " finishes the deletion of " + what, nil
	case deleteCustomObject:
		policy := metav1.DeletePropagationBackground
		return DefinitionController + " deletes " + what, s.delete(p.kind,
			request{actor: DefinitionController, verb: "delete"}, r, &metav1.DeleteOptions{PropagationPolicy: &policy})
	case finishDefinition:
		return DefinitionController + " finishes the deletion of " + what,
			change(withoutFinalizer(apiextensionsv1.CustomResourceCleanupFinalizer))
	default:
		_, err := s.setStatus(p.kind, request{actor: DisruptionController, verb: "update"}, r, s.budgetStatus(r))
		return DisruptionController + " counts the pods of " + what, err
	}
}

func withoutFinalizer(name string) func(*metav1.ObjectMeta) {
	return func(meta *metav1.ObjectMeta) {
		meta.Finalizers = slices.DeleteFunc(slices.Clone(meta.Finalizers), func(f string) bool { return f == name })
	}
}

func (s *Server) findSteps() {
	changes := s.Changes(s.pendingAt)
	s.pendingAt = s.Revision()
	if !slices.ContainsFunc(changes, s.affectsSteps) {
		return
	}
	s.pending = nil
	for _, k := range s.registry.kinds {
		for _, r := range s.tables[k.index] {
			if len(r.meta.OwnerReferences) > 0 || r.meta.DeletionTimestamp != nil {
				if do, due := s.collect(r); due {
					s.pending = append(s.pending, step{k, r.key, do})
				}
			}
			if k == s.registry.budgets && !sameJSON(s.budgetStatus(r), r.body["status"]) {
				s.pending = append(s.pending, step{k, r.key, countPods})
			}
		}
	}
	s.findNamespaceSteps()
	s.findDefinitionSteps()
	// If admission refuses a step, the step is not due until the policy changes.
	s.pending = slices.DeleteFunc(s.pending, func(p step) bool { return s.admissionRefuses(p) })
}

func (s *Server) affectsSteps(c Change) bool {
	switch {
	case c.Type != watch.Modified:
		return true
	case c.GVK == s.registry.pods.gvk, c.GVK == s.registry.budgets.gvk, c.GVK == s.registry.policies.gvk:
		return true
	}
	before, after := metaOf(c.Old), metaOf(c.New)
	return !slices.Equal(before.Finalizers, after.Finalizers) ||
		!before.DeletionTimestamp.Equal(after.DeletionTimestamp) ||
		!slices.EqualFunc(before.OwnerReferences, after.OwnerReferences, sameOwner)
}

func (s *Server) collect(r *record) (action, bool) {
	if waitsFor(r, metav1.FinalizerOrphanDependents) && !s.hasDependents(r, false) {
		return finishOrphaning, true
	}
	foreground := waitsFor(r, metav1.FinalizerDeleteDependents)
	if foreground && !s.hasDependents(r, true) {
		return finishForeground, true
	}
	var states [3]int
	orphaned := false
	for _, o := range r.meta.OwnerReferences {
		states[s.ownerState(r, o)]++
		owner := s.live[o.UID]
		orphaned = orphaned || owner.record != nil && waitsFor(owner.record, metav1.FinalizerOrphanDependents)
	}
	switch {
	case orphaned:
		return orphanDependent, true
	case r.meta.DeletionTimestamp != nil || len(r.meta.OwnerReferences) == 0:
		return 0, false
	case states[solid] > 0:
		return dropOwners, states[dangling]+states[waiting] > 0
	case states[waiting] > 0 && s.hasDependents(r, false):
		return deleteInForeground, true
	}
	return deleteDependent, true
}

func waitsFor(r *record, finalizer string) bool {
	return r.meta.DeletionTimestamp != nil && slices.Contains(r.meta.Finalizers, finalizer)
}

const (
	solid = iota
	dangling
	waiting
)

func (s *Server) ownerState(r *record, o metav1.OwnerReference) int {
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	if err != nil {
		return solid
	}
	k, known := s.registry.byGVK[gv.WithKind(o.Kind)]
	if !known || !s.served(k) {
		// The kind of the owner is unknown, so the server cannot check whether the owner exists. The server therefore
		// keeps the dependent object.
		return solid
	}
	owner := s.live[o.UID]
	switch {
	case owner.record == nil, owner.kind != k, owner.record.key.Name != o.Name,
		k.namespaced && owner.record.key.Namespace != r.key.Namespace:
		return dangling
	case waitsFor(owner.record, metav1.FinalizerDeleteDependents):
		return waiting
	}
	return solid
}

func (s *Server) hasDependents(owner *record, blocking bool) bool {
	for _, t := range s.tables {
		for _, r := range t {
			for _, o := range r.meta.OwnerReferences {
				if o.UID == owner.meta.UID && (!blocking || o.BlockOwnerDeletion != nil && *o.BlockOwnerDeletion) {
					return true
				}
			}
		}
	}
	return false
}
