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

// step is one write that a background controller would do to an object.
type step struct {
	kind *kind
	key  client.ObjectKey
	do   action
}

type action int

const (
	// deleteDependent deletes an object none of whose owners is left.
	deleteDependent action = iota
	// deleteInForeground deletes an object whose owner waits for it and which has dependents itself.
	deleteInForeground
	// dropOwners removes the references to owners that are gone or wait for their dependents from an object that has
	// another one.
	dropOwners
	// orphanDependent removes the reference to an owner that is deleted without its dependents.
	orphanDependent
	// finishOrphaning and finishForeground let go an owner that has no dependents any more to wait for.
	finishOrphaning
	finishForeground
	// countPods brings the status of a disruption budget up to date.
	countPods
	// deleteContent deletes an object since its Namespace is being deleted, and finishNamespace lets that go when it is
	// empty.
	deleteContent
	finishNamespace
	// deleteUndefined deletes an object since the definition of its kind is being deleted, and finishDefinition lets that
	// go when there is none left.
	deleteUndefined
	finishDefinition
)

// The actors of the background controllers' writes.
const (
	GarbageCollector     = "garbage-collector"
	DisruptionController = "disruption-controller"
	NamespaceController  = "namespace-controller"
)

// Pending returns how many steps of the background controllers are due.
func (s *Server) Pending() int {
	s.findSteps()
	return len(s.pending)
}

// Step runs the i-th of the steps that are due, in a fixed order, and says what it did, "" if there is no i-th.
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
		return GarbageCollector + " drops owners of " + what, change(func(meta *metav1.ObjectMeta) {
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
		return GarbageCollector + " has orphaned the dependents of " +
			what, change(withoutFinalizer(metav1.FinalizerOrphanDependents))
	case finishForeground:
		return GarbageCollector + " has deleted the dependents of " +
			what, change(withoutFinalizer(metav1.FinalizerDeleteDependents))
	case deleteContent:
		policy := metav1.DeletePropagationBackground
		return NamespaceController + " deletes " + what, s.delete(p.kind, request{actor: NamespaceController, verb: "delete"},
			r, &metav1.DeleteOptions{PropagationPolicy: &policy})
	case finishNamespace:
		s.finishNamespace(p.kind, request{actor: NamespaceController, verb: "delete"}, r)
		return NamespaceController + " lets go " + what, nil
	case deleteUndefined:
		policy := metav1.DeletePropagationBackground
		return DefinitionController + " deletes " + what, s.delete(p.kind,
			request{actor: DefinitionController, verb: "delete"}, r, &metav1.DeleteOptions{PropagationPolicy: &policy})
	case finishDefinition:
		return DefinitionController + " lets go " + what,
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

// findSteps finds out anew what is due, if anything was written since that can matter.
func (s *Server) findSteps() {
	changes := s.Changes(s.pendingAt)
	s.pendingAt = s.Revision()
	if !slices.ContainsFunc(changes, s.matters) {
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
	s.findEnds()
	s.findUndefined()
	// What admission refuses is tried again when the policy is gone.
	s.pending = slices.DeleteFunc(s.pending, func(p step) bool { return s.refused(p) })
}

// matters says whether a write can make a step due, or undo that.
func (s *Server) matters(c Change) bool {
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

// collect says what the garbage collector would do to an object.
func (s *Server) collect(r *record) (action, bool) {
	if waitsFor(r, metav1.FinalizerOrphanDependents) && !s.anyDependent(r, false) {
		return finishOrphaning, true
	}
	foreground := waitsFor(r, metav1.FinalizerDeleteDependents)
	if foreground && !s.anyDependent(r, true) {
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
		return dropOwners, states[gone]+states[waiting] > 0
	case states[waiting] > 0 && s.anyDependent(r, false):
		return deleteInForeground, true
	}
	return deleteDependent, true
}

// waitsFor says whether an object is being deleted and waits for the garbage collector to remove the finalizer.
func waitsFor(r *record, finalizer string) bool {
	return r.meta.DeletionTimestamp != nil && slices.Contains(r.meta.Finalizers, finalizer)
}

// What an owner is to its dependents.
const (
	solid = iota
	gone
	// waiting for its dependents to be deleted before it.
	waiting
)

func (s *Server) ownerState(r *record, o metav1.OwnerReference) int {
	gv, err := schema.ParseGroupVersion(o.APIVersion)
	if err != nil {
		return solid
	}
	k, known := s.registry.byGVK[gv.WithKind(o.Kind)]
	if !known || !s.served(k) {
		// What the server knows nothing of is none of its business.
		return solid
	}
	owner := s.live[o.UID]
	switch {
	case owner.record == nil, owner.kind != k, owner.record.key.Name != o.Name,
		k.namespaced && owner.record.key.Namespace != r.key.Namespace:
		return gone
	case waitsFor(owner.record, metav1.FinalizerDeleteDependents):
		return waiting
	}
	return solid
}

// anyDependent says whether any object names the owner, or any that blocks its deletion.
func (s *Server) anyDependent(owner *record, blocking bool) bool {
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
