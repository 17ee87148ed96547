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

// ErrNotCached is wrapped by the error of reading from the cache a kind that is not among the cluster's cached kinds.
// Such a read goes through Cluster.Live.
var ErrNotCached = errors.New("this kind is not cached")

// Kind is a kind of object that is cached.
type Kind struct {
	// Object is an empty object of the kind: typed, or a PartialObjectMetadata with its GroupVersionKind set, of which
	// only the metadata is cached.
	Object client.Object
	// Transform drops what is not used before an object is stored. Nil drops the managed fields only.
	Transform cache.TransformFunc
	// Labels chooses the objects that are cached. Nil means all. Client must not write what it does not choose: the next
	// read would wait for that write in vain.
	Labels labels.Selector
}

// form is a kind in one of its Go representations, each of which has an informer of its own.
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

// formOf returns the form of an object; for a list, that of its items.
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

// kinds are what a cluster caches.
type kinds struct {
	scheme   *runtime.Scheme
	declared map[schema.GroupVersionKind]representation
	byObject map[client.Object]ctrlcache.ByObject
	// whole are the kinds that are cached as a live list returns them.
	whole map[schema.GroupVersionKind]bool
}

// newKinds checks the declared kinds. What may be large and secret is never cached whole.
func newKinds(list []Kind, scheme *runtime.Scheme, namespace string) (kinds, error) {
	k := kinds{scheme: scheme, declared: map[schema.GroupVersionKind]representation{},
		byObject: map[client.Object]ctrlcache.ByObject{}, whole: map[schema.GroupVersionKind]bool{}}
	known := scopes()
	for _, kind := range list {
		f, err := formOf(kind.Object, scheme)
		if err != nil {
			return kinds{}, fmt.Errorf("cache %T: %w", kind.Object, err)
		}
		scope, ok := known[f.GroupVersionKind]
		switch {
		case !ok:
			return kinds{}, fmt.Errorf("cache %s: its scope is not known, add it to scopes", f.GroupVersionKind)
		case f.of == asUnstructured:
			return kinds{}, fmt.Errorf("cache %s: cannot be cached unstructured", f.GroupVersionKind)
		case f.of == asTyped && f.Group == corev1.GroupName && (f.Kind == "Secret" || f.Kind == "ConfigMap"):
			return kinds{}, fmt.Errorf("cache %s: may only be cached as metadata", f.GroupVersionKind)
		case f.Group == corev1.GroupName && f.Kind == "Pod" && (f.of == asTyped || kind.Labels == nil):
			// All Pods of a cluster fit into no budget of memory.
			return kinds{}, fmt.Errorf("cache %s: may only be cached as metadata selected by labels", f.GroupVersionKind)
		case k.declared[f.GroupVersionKind] != "":
			return kinds{}, fmt.Errorf("cache %s: declared twice", f.GroupVersionKind)
		}
		by := ctrlcache.ByObject{Transform: kind.Transform, Label: kind.Labels}
		if namespace != "" && scope.Name() == meta.RESTScopeNameNamespace {
			// A selector for the namespace becomes its path in the request. The cache's own option for namespaces makes
			// another kind of cache, on which reading one's own writes is not supported.
			by.Field = fields.OneTermEqualSelector("metadata.namespace", namespace)
		}
		k.declared[f.GroupVersionKind] = f.of
		k.byObject[kind.Object] = by
		k.whole[f.GroupVersionKind] = f.of == asTyped && kind.Transform == nil && kind.Labels == nil
	}
	return k, nil
}

// check returns the form of an object if it is cached, else an error.
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

// declaredCache is a cache that makes no informer but those of the declared kinds, whoever asks for one.
type declaredCache struct {
	ctrlcache.Cache
	kinds kinds
	// everywhere are the fields by which objects of one namespace cannot be found. They are all known before the cache
	// is read.
	everywhere map[string]bool
	// indexers has what indexer found, by GroupVersionKind: to be reported by kind, controller-runtime makes an object
	// of it.
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
		if c.everywhere[r.Field] {
			return fmt.Errorf("the index %s is not kept by namespace", r.Field)
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

// IndexFieldEverywhere is IndexField without an index in each namespace: a list by that field must not name one.
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
			return nil, fmt.Errorf("the index %s has no values of a %T", field, o)
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
	c.everywhere[field] = true
	return nil
}
