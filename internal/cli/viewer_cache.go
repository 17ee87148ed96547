package cli

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"machinist.dev/machinist/api/v1beta1"
)

// readTTL is how long a read of unwatched objects is reused: Leases and the ConfigMap of orphans.
const readTTL = 5 * time.Second

// viewerClient is the client of the fleet view. If the user may watch a kind, the client reads objects of this kind
// from a cache. The client reads leases and ConfigMaps from the API server, at most once per readTTL.
type viewerClient struct {
	client.WithWatch
	cache cache.Cache
	// kinds has an entry for each watched kind. The value is an error if the kind cannot be watched.
	kinds map[string]error
	now   func() time.Time

	mu    sync.Mutex
	reads map[string]readResult
}

type readResult struct {
	object client.Object
	err    error
	at     time.Time
}

// watchedKinds maps each watched resource to an empty object. Only machines are required.
func watchedKinds() map[string]client.Object {
	return map[string]client.Object{
		"machines": &v1beta1.Machine{}, "machinesets": &v1beta1.MachineSet{}, "machinedeployments": &v1beta1.MachineDeployment{},
		"machinehealthchecks": &v1beta1.MachineHealthCheck{}, "machineclasses": &v1beta1.MachineClass{},
		"machinedisruptionbudgets": &v1beta1.MachineDisruptionBudget{},
	}
}

// newViewerClient returns a client for one namespace, or for all if namespace is empty. It waits until the caches are
// filled. changed is called after each change.
func newViewerClient(ctx context.Context, config *rest.Config, live client.WithWatch, namespace string,
	now func() time.Time, changed func()) (*viewerClient, error) {
	v := &viewerClient{WithWatch: live, kinds: map[string]error{}, now: now, reads: map[string]readResult{}}
	options := cache.Options{Scheme: live.Scheme(), Mapper: live.RESTMapper(),
		DefaultTransform: cache.TransformStripManagedFields()}
	if namespace != "" {
		options.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	var err error
	if v.cache, err = cache.New(config, options); err != nil {
		return nil, err
	}
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { changed() }, UpdateFunc: func(any, any) { changed() }, DeleteFunc: func(any) { changed() }}
	for name, object := range watchedKinds() {
		kind, err := apiutil.GVKForObject(object, live.Scheme())
		if err != nil {
			return nil, err
		}
		watchErr := v.checkWatch(ctx, kind, name, namespace)
		v.kinds[kind.Kind] = watchErr
		switch {
		case watchErr == nil:
			informer, err := v.cache.GetInformer(ctx, object, cache.BlockUntilSynced(false))
			if err != nil {
				return nil, err
			}
			if _, err := informer.AddEventHandler(handler); err != nil {
				return nil, err
			}
		case name == "machines", !apierrors.IsForbidden(watchErr) && !meta.IsNoMatchError(watchErr):
			return nil, watchErr
		}
	}
	go func() { _ = v.cache.Start(ctx) }()
	if !v.cache.WaitForCacheSync(ctx) {
		return nil, ctx.Err()
	}
	return v, nil
}

// checkWatch returns an error if a kind is not served or the user may not watch it.
func (v *viewerClient) checkWatch(ctx context.Context, kind schema.GroupVersionKind, resource, namespace string) error {
	if _, err := v.RESTMapper().RESTMapping(kind.GroupKind(), kind.Version); err != nil {
		return err
	}
	for _, verb := range []string{"list", "watch"} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: kind.Group,
				Resource: resource},
		}}
		if err := v.Create(ctx, review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			where := "in all namespaces; choose one with -n"
			if namespace != "" {
				where = "in namespace " + namespace
			}
			return apierrors.NewForbidden(schema.GroupResource{Group: kind.Group, Resource: resource}, "",
				fmt.Errorf("you need the permission to %s them %s", verb, where))
		}
	}
	return nil
}

// cacheState reports whether the kind of o is read from the cache. The error explains why the cache cannot be read.
func (v *viewerClient) cacheState(o any) (cached bool, err error) {
	object, ok := o.(client.Object)
	if !ok {
		return false, nil
	}
	kind, err := apiutil.GVKForObject(object, v.Scheme())
	if err != nil || kind.Group != v1beta1.GroupVersion.Group {
		return false, nil //nolint:nilerr // A kind outside the scheme is not in the cache.
	}
	watchErr, cached := v.kinds[kind.Kind]
	return cached, watchErr
}

// Get implements client.Client.
func (v *viewerClient) Get(ctx context.Context, key client.ObjectKey, o client.Object,
	options ...client.GetOption) error {
	switch cached, err := v.cacheState(o); {
	case err != nil:
		return err
	case cached:
		return v.cache.Get(ctx, key, o, options...)
	}
	switch o := o.(type) {
	case *coordinationv1.Lease:
		return readRarely(ctx, v, "lease", key, o)
	case *corev1.ConfigMap:
		return readRarely(ctx, v, "configmap", key, o)
	}
	return v.WithWatch.Get(ctx, key, o, options...)
}

// List implements client.Client. It does not copy cached objects, because views do not change them.
func (v *viewerClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	kind, err := apiutil.GVKForObject(list, v.Scheme())
	if err != nil {
		return err
	}
	watchErr, cached := v.kinds[strings.TrimSuffix(kind.Kind, "List")]
	switch {
	case kind.Group != v1beta1.GroupVersion.Group || !cached:
		return v.WithWatch.List(ctx, list, options...)
	case watchErr != nil:
		return watchErr
	}
	return v.cache.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...)
}

// readRarely reads an unwatched object at most once per readTTL. Otherwise, or while the API server does not answer, it
// returns the previous result.
func readRarely[T interface {
	client.Object
	DeepCopyInto(T)
}](ctx context.Context, v *viewerClient, kind string, key client.ObjectKey, into T) error {
	name := kind + "/" + key.String()
	v.mu.Lock()
	last, found := v.reads[name]
	v.mu.Unlock()
	if found && v.now().Sub(last.at) < readTTL {
		if last.err == nil {
			last.object.(T).DeepCopyInto(into)
		}
		return last.err
	}
	err := v.WithWatch.Get(ctx, key, into)
	if err != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
		// Keep the object during an outage, as the caches do.
		if found && last.err == nil {
			last.object.(T).DeepCopyInto(into)
			return nil
		}
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.reads[name] = readResult{object: into.DeepCopyObject().(client.Object), err: err, at: v.now()}
	return err
}

func (v *viewerClient) eventsOf(ctx context.Context, o client.Object) ([]corev1.Event, error) {
	var list corev1.EventList
	err := v.List(ctx, &list, &client.ListOptions{Namespace: o.GetNamespace(),
		Raw: &metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(o.GetUID()), Limit: maxEvents}})
	return list.Items, err
}

// maxEvents limits the events that are read for one object.
const maxEvents = 200
