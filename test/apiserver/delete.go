package apiserver

import (
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// delete removes an object. If the object has finalizers or a grace period, delete only marks the object for
// deletion.
func (s *Server) delete(k *kind, req request, old *record, opts *metav1.DeleteOptions) error {
	if errs := validation.ValidateDeleteOptions(opts); len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	if p := opts.Preconditions; p != nil {
		if p.UID != nil && *p.UID != old.meta.UID {
			return conflict(k, old.key.Name,
				fmt.Errorf("the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated", *p.UID, old.meta.UID))
		}
		if p.ResourceVersion != nil && *p.ResourceVersion != old.meta.ResourceVersion {
			return conflict(k, old.key.Name,
				fmt.Errorf("the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified", *p.ResourceVersion, old.meta.ResourceVersion))
		}
	}
	// The definition controller deletes directly in the storage, without admission.
	if req.actor != DefinitionController {
		if err := s.admit(k, req, admissionv1.Delete, old, nil); err != nil {
			return err
		}
	}
	if done, err := s.terminateNamespace(k, req, old); done || err != nil {
		return err
	}
	meta := *old.meta
	graceful, pending := s.shorten(k, &meta, old.object, opts.GracePeriodSeconds)
	if pending {
		return nil
	}
	meta.Finalizers = collectorFinalizers(meta.Finalizers, opts)
	if !graceful {
		if len(meta.Finalizers) == 0 {
			if !req.dryRun {
				s.remove(k, req, old)
			}
			return nil
		}
		s.markDeleted(&meta)
	}
	if req.dryRun {
		return nil
	}
	stored := old
	if !sameMeta(&meta, old.meta) {
		stored = k.withMeta(old, meta)
		s.put(k, req, old, stored)
	}
	// The real server first marks a pod with the grace period 0 for deletion, and removes the pod in a second write.
	if graceful && len(meta.Finalizers) == 0 && *meta.DeletionGracePeriodSeconds == 0 {
		s.remove(k, req, stored)
	}
	return nil
}

func (k *kind) withMeta(old *record, meta metav1.ObjectMeta) *record {
	r := &record{key: old.key, object: k.shallowCopy(old.object), body: old.body, managed: old.managed}
	r.meta = metaOf(r.object)
	*r.meta = meta
	return r
}

// shorten sets or shortens the grace period of an object. The result graceful is true if the object is deleted
// gracefully. The result pending is true if an earlier request began the graceful deletion, and this request does not
// shorten the grace period.
func (s *Server) shorten(k *kind, meta *metav1.ObjectMeta, o client.Object, wanted *int64) (graceful, pending bool) {
	if wanted != nil && *wanted < 0 {
		wanted = ptr.To[int64](1)
	}
	grace, ok := k.strategy.grace(o, wanted)
	if !ok {
		return false, false
	}
	now := s.timestamp()
	if meta.DeletionTimestamp == nil {
		at := metav1.NewTime(now.Add(time.Duration(grace) * time.Second))
		meta.DeletionTimestamp, meta.DeletionGracePeriodSeconds = &at, &grace
		if meta.Generation > 0 {
			meta.Generation++
		}
		return true, false
	}
	current := meta.DeletionGracePeriodSeconds
	switch {
	case zeroOrNil(current):
		return false, false
	case wanted == nil || *wanted >= *current:
		return false, true
	}
	period := *wanted
	at := metav1.NewTime(meta.DeletionTimestamp.Add(time.Duration(period-*current) * time.Second))
	if at.Before(&now) {
		at = now
		if period != 0 {
			period = 1
		}
	}
	meta.DeletionTimestamp, meta.DeletionGracePeriodSeconds = &at, &period
	return true, false
}

// collectorFinalizers returns the finalizers that an object has after a deletion request. The finalizers depend on
// the propagation policy of the request.
func collectorFinalizers(finalizers []string, opts *metav1.DeleteOptions) []string {
	orphan := slices.Contains(finalizers, metav1.FinalizerOrphanDependents)
	foreground := !orphan && slices.Contains(finalizers, metav1.FinalizerDeleteDependents)
	switch {
	case opts.OrphanDependents != nil: // Old clients still set orphanDependents.
		orphan, foreground = *opts.OrphanDependents, false
	case opts.PropagationPolicy != nil:
		orphan = *opts.PropagationPolicy == metav1.DeletePropagationOrphan
		foreground = *opts.PropagationPolicy == metav1.DeletePropagationForeground
	}
	if orphan == slices.Contains(finalizers, metav1.FinalizerOrphanDependents) &&
		foreground == slices.Contains(finalizers, metav1.FinalizerDeleteDependents) {
		return finalizers
	}
	remaining := slices.DeleteFunc(slices.Clone(finalizers), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	})
	if orphan {
		remaining = append(remaining, metav1.FinalizerOrphanDependents)
	}
	if foreground {
		remaining = append(remaining, metav1.FinalizerDeleteDependents)
	}
	return remaining
}

func (s *Server) markDeleted(meta *metav1.ObjectMeta) {
	now := s.timestamp()
	if meta.DeletionTimestamp == nil && meta.Generation > 0 {
		meta.Generation++
	}
	if meta.DeletionTimestamp == nil || meta.DeletionTimestamp.After(now.Time) {
		meta.DeletionTimestamp = &now
	}
	meta.DeletionGracePeriodSeconds = new(int64)
}
