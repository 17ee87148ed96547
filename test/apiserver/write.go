package apiserver

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func (s *Server) create(k *kind, req request, o client.Object) (*record, error) {
	meta, body, err := k.decode(o)
	if err != nil {
		return nil, err
	}
	return s.insert(k, req, meta, body, managedFields{})
}

func (s *Server) insert(k *kind, req request, meta *metav1.ObjectMeta, body map[string]any,
	by managedFields) (*record, error) {
	if !k.namespaced && meta.Namespace != "" {
		return nil,
			apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	if err := s.checkNamespace(k, meta.Namespace, meta.Name); err != nil {
		return nil, err
	}
	if err := s.checkDefinition(k, meta.Name); err != nil {
		return nil, err
	}
	if meta.Name == "" && meta.GenerateName != "" {
		meta.Name = s.generateName(k, meta.Namespace, meta.GenerateName)
	}
	now := s.timestamp()
	meta.CreationTimestamp = now
	meta.DeletionTimestamp, meta.DeletionGracePeriodSeconds, meta.ManagedFields, meta.SelfLink = nil, nil, nil, ""
	body, errs := k.strategy.create(now, meta, body)
	errs = append(errs, validation.ValidateObjectMeta(meta, k.namespaced, validation.NameIsDNSSubdomain,
		field.NewPath("metadata"))...)
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(k.gvk.GroupKind(), meta.Name, errs)
	}
	if meta.ResourceVersion != "" {
		// The real server does not set a reason in this error.
		return nil, apierrors.FromObject(&metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
			Message: "resourceVersion should not be set on objects to be created"})
	}
	r := &record{key: client.ObjectKey{Namespace: meta.Namespace, Name: meta.Name}, managed: by}
	if err := k.build(r, nil, *meta, body); err != nil {
		return nil, err
	}
	if err := s.admit(k, req, admissionv1.Create, nil, r); err != nil {
		return nil, err
	}
	if s.get(k, r.key) != nil {
		return nil, apierrors.NewAlreadyExists(k.resource(), meta.Name)
	}
	if req.dryRun {
		r.meta.UID = "uid-dry-run"
		return r, nil
	}
	r.meta.UID = s.nextUID()
	_, r.defaultStatus = body["status"]
	r.defaultStatus = r.defaultStatus && k.strategy.custom()
	s.put(k, req, nil, r)
	return r, nil
}

// update replaces the metadata and content of a stored object, or only the part that the subresource covers.
func (s *Server) update(k *kind, req request, old *record, meta *metav1.ObjectMeta, body map[string]any,
	by managedFields) (*record, error) {
	switch {
	case meta.ResourceVersion == "" && !k.strategy.allowsUnconditionalUpdate():
		return nil, apierrors.NewInvalid(k.gvk.GroupKind(), old.key.Name, field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")})
	case meta.ResourceVersion != "" && meta.ResourceVersion != old.meta.ResourceVersion:
		return nil, versionConflict(k, old)
	}
	return s.replace(k, req, old, meta, body, by)
}

func (s *Server) replace(k *kind, req request, old *record, meta *metav1.ObjectMeta, body map[string]any,
	by managedFields) (*record, error) {
	now := s.timestamp()
	meta.ResourceVersion, meta.Generation = old.meta.ResourceVersion, old.meta.Generation
	meta.ManagedFields, meta.SelfLink = nil, ""
	meta, body, errs := k.strategy.update(now, req.sub, old, meta, body)
	if meta != old.meta {
		keepSystemFields(meta, old.meta)
		if !sameMeta(meta, old.meta) {
			path := field.NewPath("metadata")
			errs = append(errs, validation.ValidateObjectMeta(meta, k.namespaced, validation.NameIsDNSSubdomain, path)...)
			errs = append(errs, validation.ValidateObjectMetaUpdate(meta, old.meta, path)...)
		}
	}
	if len(errs) > 0 {
		return nil, apierrors.NewInvalid(k.gvk.GroupKind(), old.key.Name, errs)
	}
	by = by.afterWrite(old.meta, meta)
	r := &record{key: old.key, managed: by}
	if err := k.build(r, old, *meta, body); err != nil {
		return nil, err
	}
	if err := s.admit(k, req, admissionv1.Update, old, r); err != nil {
		return nil, err
	}
	if len(meta.Finalizers) == 0 && old.meta.DeletionTimestamp != nil && zeroOrNil(old.meta.DeletionGracePeriodSeconds) {
		if !req.dryRun {
			s.remove(k, req, old)
		}
		return r, nil
	}
	if !old.defaultStatus && sameMeta(r.meta, old.meta) && sameJSON(r.body, old.body) && by.equal(old.managed) {
		return old, nil
	}
	if !req.dryRun {
		s.put(k, req, old, r)
	}
	return r, nil
}

func keepSystemFields(meta, old *metav1.ObjectMeta) {
	if meta.UID == "" {
		meta.UID = old.UID
	}
	meta.CreationTimestamp = old.CreationTimestamp
	if old.DeletionTimestamp != nil {
		meta.DeletionTimestamp = old.DeletionTimestamp
	}
	if old.DeletionGracePeriodSeconds != nil && meta.DeletionGracePeriodSeconds == nil {
		meta.DeletionGracePeriodSeconds = old.DeletionGracePeriodSeconds
	}
}

func sameMeta(a, b *metav1.ObjectMeta) bool {
	return a.Name == b.Name && a.Namespace == b.Namespace && a.GenerateName == b.GenerateName && a.UID == b.UID &&
		a.Generation == b.Generation && a.CreationTimestamp.Equal(&b.CreationTimestamp) &&
		a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
		samePointed(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) &&
		maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		slices.Equal(a.Finalizers, b.Finalizers) &&
		slices.EqualFunc(a.OwnerReferences, b.OwnerReferences, sameOwner)
}

func sameOwner(a, b metav1.OwnerReference) bool {
	return a.APIVersion == b.APIVersion && a.Kind == b.Kind && a.Name == b.Name && a.UID == b.UID &&
		samePointed(a.Controller, b.Controller) && samePointed(a.BlockOwnerDeletion, b.BlockOwnerDeletion)
}

func samePointed[T comparable](a, b *T) bool {
	return a == b || (a != nil && b != nil && *a == *b)
}

func zeroOrNil(n *int64) bool { return n == nil || *n == 0 }

func conflict(k *kind, name string, why error) error {
	return apierrors.NewConflict(k.resource(), name, why)
}

func versionConflict(k *kind, old *record) error {
	return conflict(k, old.key.Name,
		fmt.Errorf("the object has been modified; please apply your changes to the latest version and try again"))
}
