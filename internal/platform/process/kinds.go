package process

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

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

// ErrNotCached is returned by a read from the cache of a kind that is not among the cluster's cached kinds. Read such a
// kind through Cluster.Live.
var ErrNotCached = errors.New("this kind is not cached")

// Kind is a kind of objects that is cached.
type Kind struct {
	// Object is an empty object of the kind. It is typed, or it is a PartialObjectMetadata with its GroupVersionKind set.
	// Of a PartialObjectMetadata, only the metadata is cached.
	Object client.Object
	// Transform drops the unused parts of an object before it is stored. Nil means Transform of this package.
	Transform cache.TransformFunc
	// Labels selects the objects that are cached. Nil selects all. Client must not write objects that are not selected,
	// because the next read would wait for them in vain.
	Labels labels.Selector
	// Namespaces are the only ones whose objects are cached, for a kind that may not be listed in all namespaces. It needs
	// one informer for each, and is only for kinds that are cached as metadata, because reads do not wait for this
	// process's own writes. Nil means all namespaces. A process with Config.Namespace ignores it.
	Namespaces []string
}

// form is a kind in one of its Go representations. Each form has its own informer.
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

// formOf returns the form of an object, or of the items of a list.
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

// kinds are the kinds that a cluster caches.
type kinds struct {
	scheme   *runtime.Scheme
	declared map[schema.GroupVersionKind]representation
	byObject map[client.Object]ctrlcache.ByObject
	// complete contains the kinds that are cached as a live list returns them.
	complete map[schema.GroupVersionKind]bool
}

// newKinds checks the declared kinds. Kinds that may be large or secret may only be cached as metadata.
func newKinds(list []Kind, scheme *runtime.Scheme, namespace string) (kinds, error) {
	k := kinds{scheme: scheme, declared: map[schema.GroupVersionKind]representation{},
		byObject: map[client.Object]ctrlcache.ByObject{}, complete: map[schema.GroupVersionKind]bool{}}
	known := scopes()
	for _, kind := range list {
		f, err := formOf(kind.Object, scheme)
		if err != nil {
			return kinds{}, fmt.Errorf("cache %T: %w", kind.Object, err)
		}
		scope, ok := known[f.GroupVersionKind]
		switch {
		case !ok:
			return kinds{}, fmt.Errorf("cache %s: the scope of the kind is not known, add it to scopes", f.GroupVersionKind)
		case f.of == asUnstructured:
			return kinds{}, fmt.Errorf("cache %s: the kind cannot be cached unstructured", f.GroupVersionKind)
		case f.of == asTyped && f.Group == corev1.GroupName && (f.Kind == "Secret" || f.Kind == "ConfigMap"):
			return kinds{}, fmt.Errorf("cache %s: the kind may only be cached as metadata", f.GroupVersionKind)
		case f.Group == corev1.GroupName && f.Kind == "Pod" && (f.of == asTyped || kind.Labels == nil):
			// All Pods of a cluster would need too much memory.
			return kinds{}, fmt.Errorf("cache %s: the kind may only be cached as metadata, selected by labels", f.GroupVersionKind)
		case kind.Namespaces != nil && (f.of != asMetadata || len(kind.Namespaces) == 0):
			return kinds{}, fmt.Errorf("cache %s: namespaces can only be selected for a kind that is cached as metadata, and not "+
				"none", f.GroupVersionKind)
		case k.declared[f.GroupVersionKind] != "":
			return kinds{}, fmt.Errorf("cache %s: the kind is declared twice", f.GroupVersionKind)
		}
		by := ctrlcache.ByObject{Transform: kind.Transform, Label: kind.Labels}
		if namespace != "" && scope.Name() == meta.RESTScopeNameNamespace {
			// client-go turns a selector of the namespace into the path of the request. The cache's own option for namespaces
			// creates another type of cache, which cannot wait for this process's own writes.
			by.Field = fields.OneTermEqualSelector("metadata.namespace", namespace)
		} else if kind.Namespaces != nil {
			by.Namespaces = map[string]ctrlcache.Config{}
			for _, name := range kind.Namespaces {
				by.Namespaces[name] = ctrlcache.Config{}
			}
		}
		k.declared[f.GroupVersionKind] = f.of
		k.byObject[kind.Object] = by
		k.complete[f.GroupVersionKind] = f.of == asTyped && kind.Transform == nil && kind.Labels == nil
	}
	return k, nil
}

// check returns the form of an object, or an error if that form is not cached.
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

// declaredCache is a cache that only creates informers of the declared kinds.
type declaredCache struct {
	ctrlcache.Cache
	kinds kinds
	// allNamespacesOnly contains the fields whose index cannot be restricted to one namespace. It does not change once the
	// cache is read.
	allNamespacesOnly map[string]bool
	// indexers caches the results of indexer by GroupVersionKind. controller-runtime allocates an object for each lookup
	// by kind.
	indexers sync.Map
}

func (c *declaredCache) Get(ctx context.Context, key client.ObjectKey, object client.Object,
	o ...client.GetOption) error {
	if _, err := c.kinds.check(object); err != nil {
		return err
	}
	return c.Cache.Get(ctx, key, object, o...)
}

func (c *declaredCache) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	if _, err := c.kinds.check(list); err != nil {
		return err
	}
	if err := c.checkOptions((&client.ListOptions{}).ApplyOptions(o)); err != nil {
		return err
	}
	return c.Cache.List(ctx, list, o...)
}

func (c *declaredCache) checkOptions(o *client.ListOptions) error {
	if o.Namespace == "" || o.FieldSelector == nil {
		return nil
	}
	for _, r := range o.FieldSelector.Requirements() {
		if c.allNamespacesOnly[r.Field] {
			return fmt.Errorf("the index %s cannot be restricted to a namespace", r.Field)
		}
	}
	return nil
}

func (c *declaredCache) GetInformer(ctx context.Context, object client.Object,
	o ...ctrlcache.InformerGetOption) (ctrlcache.Informer, error) {
	if _, err := c.kinds.check(object); err != nil {
		return nil, err
	}
	return c.Cache.GetInformer(ctx, object, o...)
}

func (c *declaredCache) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind,
	o ...ctrlcache.InformerGetOption) (ctrlcache.Informer, error) {
	if c.kinds.declared[gvk] != asTyped {
		return nil, fmt.Errorf("%w: %s", ErrNotCached, form{gvk, asTyped})
	}
	return c.Cache.GetInformerForKind(ctx, gvk, o...)
}

func (c *declaredCache) IndexField(ctx context.Context, object client.Object, field string,
	values client.IndexerFunc) error {
	if _, err := c.kinds.check(object); err != nil {
		return err
	}
	return c.Cache.IndexField(ctx, object, field, values)
}

// IndexFieldEverywhere adds an index over all namespaces only, unlike IndexField, which also adds one per namespace. A
// list by that field must not name a namespace.
func (c *declaredCache) IndexFieldEverywhere(ctx context.Context, object client.Object, field string,
	values client.IndexerFunc) error {
	f, err := c.kinds.check(object)
	if err != nil {
		return err
	}
	indexer, err := c.indexer(ctx, f)
	if err != nil {
		return err
	}
	err = indexer.AddIndexers(cache.Indexers{indexName(field): func(o any) ([]string, error) {
		object, ok := o.(client.Object)
		if !ok {
			return nil, fmt.Errorf("the index %s cannot index a %T", field, o)
		}
		var keys []string
		for _, value := range values(object) {
			keys = append(keys, indexKey("", value))
		}
		return keys, nil
	}})
	if err != nil {
		return fmt.Errorf("add the index %s: %w", field, err)
	}
	c.allNamespacesOnly[field] = true
	return nil
}
