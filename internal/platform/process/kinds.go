package process

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// ErrNotCached is returned by a cached read of a kind that the cluster does not cache. Read such a kind with
// Cluster.LiveClient.
var ErrNotCached = errors.New("this kind is not cached")

// Kind describes a cached kind of objects.
type Kind struct {
	// Object is an empty typed object of the kind, or a PartialObjectMetadata with its GroupVersionKind. For a
	// PartialObjectMetadata, only the metadata is cached.
	Object client.Object
	// Transform drops the unused parts of an object before it is stored. Nil means NewTransform.
	Transform cache.TransformFunc
	// Labels selects the objects that are cached. Nil selects all. Do not write other objects with Client, because
	// the next read would wait in vain for such an object.
	Labels labels.Selector
	// Namespaces restricts the cache to these namespaces, if the process must not list the kind in all namespaces. Each
	// namespace needs its own informer. Use it only for kinds that are cached as metadata, because reads do not wait
	// for this process's own writes. Nil means all namespaces. A process with Config.Namespace ignores this field.
	Namespaces []string
}

// form is a kind together with the Go representation of its objects: typed, unstructured or metadata only. Each form
// has its own informer.
type form struct {
	schema.GroupVersionKind
	of representation
}

type representation string

const (
	asTyped        representation = "typed"
	asMetadata     representation = "metadata"
	asUnstructured representation = "unstructured"
)

func (f form) String() string { return fmt.Sprintf("%s (%s)", f.Kind, f.of) }

func formOf(object runtime.Object, scheme *runtime.Scheme) (form, error) {
	gvk, err := apiutil.GVKForObject(object, scheme)
	if err != nil {
		return form{}, err
	}
	if _, isList := object.(client.ObjectList); isList {
		gvk.Kind = strings.TrimSuffix(gvk.Kind, "List")
	}
	switch object.(type) {
	case *metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList:
		return form{gvk, asMetadata}, nil
	case runtime.Unstructured:
		return form{gvk, asUnstructured}, nil
	default:
		return form{gvk, asTyped}, nil
	}
}

type kinds struct {
	scheme   *runtime.Scheme
	declared map[schema.GroupVersionKind]representation
	byObject map[client.Object]ctrlcache.ByObject
}

// newKinds checks the declared kinds. Kinds with large or secret content may be cached only as metadata.
func newKinds(list []Kind, scheme *runtime.Scheme, namespace string) (kinds, error) {
	k := kinds{scheme: scheme, declared: map[schema.GroupVersionKind]representation{},
		byObject: map[client.Object]ctrlcache.ByObject{}}
	for _, kind := range list {
		f, err := formOf(kind.Object, scheme)
		if err != nil {
			return kinds{}, fmt.Errorf("cache %T: %w", kind.Object, err)
		}
		switch {
		case f.of == asUnstructured:
			return kinds{}, fmt.Errorf("cache %s: the kind cannot be cached unstructured", f.GroupVersionKind)
		case f.of == asTyped && f.Group == corev1.GroupName && (f.Kind == "Secret" || f.Kind == "ConfigMap"):
			return kinds{}, fmt.Errorf("cache %s: the kind may only be cached as metadata", f.GroupVersionKind)
		case f.Group == corev1.GroupName && f.Kind == "Pod" && (f.of == asTyped || kind.Labels == nil):
			// A cache of all Pods of a cluster would need too much memory.
			return kinds{}, fmt.Errorf("cache %s: the kind may only be cached as metadata, selected by labels", f.GroupVersionKind)
		case kind.Namespaces != nil && (f.of != asMetadata || len(kind.Namespaces) == 0):
			return kinds{}, fmt.Errorf("cache %s: namespaces can only be selected for a kind that is cached as metadata, and not "+
				"none", f.GroupVersionKind)
		case k.declared[f.GroupVersionKind] != "":
			return kinds{}, fmt.Errorf("cache %s: the kind is declared twice", f.GroupVersionKind)
		}
		by := ctrlcache.ByObject{Transform: kind.Transform, Label: kind.Labels}
		if namespace != "" && namespaced(f.GroupVersionKind) {
			// client-go turns this selector into the path of the request. The option for namespaces would create
			// another type of cache, which cannot wait for this process's own writes.
			by.Field = fields.OneTermEqualSelector("metadata.namespace", namespace)
		} else if kind.Namespaces != nil {
			by.Namespaces = map[string]ctrlcache.Config{}
			for _, name := range kind.Namespaces {
				by.Namespaces[name] = ctrlcache.Config{}
			}
		}
		k.declared[f.GroupVersionKind] = f.of
		k.byObject[kind.Object] = by
	}
	return k, nil
}

// namespaced reports whether the objects of a cached kind belong to a namespace.
func namespaced(gvk schema.GroupVersionKind) bool {
	switch gvk.Kind {
	case "Node", "Namespace", "Provider", "ClusterRole", "ClusterRoleBinding", "CertificateSigningRequest",
		"ValidatingWebhookConfiguration", "MutatingWebhookConfiguration":
		return false
	default:
		return true
	}
}

// mapper adds the declared kinds to another mapper. Informers and indexes can then be created while the API server is
// unreachable.
func (k kinds) mapper(next meta.RESTMapper) meta.RESTMapper {
	known := meta.NewDefaultRESTMapper(nil)
	for gvk := range k.declared {
		if namespaced(gvk) {
			known.Add(gvk, meta.RESTScopeNamespace)
		} else {
			known.Add(gvk, meta.RESTScopeRoot)
		}
	}
	return meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{known, next}}
}

func (k kinds) check(object runtime.Object) (form, error) {
	f, err := formOf(object, k.scheme)
	if err != nil {
		return form{}, err
	}
	if k.declared[f.GroupVersionKind] != f.of {
		return form{}, fmt.Errorf("%w: %s", ErrNotCached, f)
	}
	return f, nil
}
