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

// readTTL is how long the result of reading an object that is not watched is reused: of leases and of the ConfigMap of
// orphans.
const readTTL = 5 * time.Second

// viewerClient is the client of the fleet view. It reads Machinist's kinds from caches, which watch only kinds that the
// user may watch. It reads leases and ConfigMaps from the API server, at most once in readTTL.
type viewerClient struct {
	client.WithWatch
	cache cache.Cache
	// kinds are the kinds in the cache. The error is the reason why a kind cannot be watched, or nil.
	kinds map[string]error
	now   func() time.Time

	mu    sync.Mutex
	reads map[string]readResult
}

// readResult is the result of reading one object.
type readResult struct {
	object client.Object
	err    error
	at     time.Time
}

// watchedKinds returns the kinds that the fleet view watches, by the names of their resources. All except machines are
// optional.
func watchedKinds() map[string]client.Object {
	return map[string]client.Object{
		"machines": &v1beta1.Machine{}, "machinesets": &v1beta1.MachineSet{}, "machinedeployments": &v1beta1.MachineDeployment{},
		"machinehealthchecks": &v1beta1.MachineHealthCheck{}, "machineclasses": &v1beta1.MachineClass{},
		"machinedisruptionbudgets": &v1beta1.MachineDisruptionBudget{},
	}
}

// newViewerClient returns the client for a namespace, or for all namespaces if it is empty. It calls changed at each
// change of a watched object. It returns after the caches are filled.
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

// checkWatch returns an error if a kind cannot be watched, because the server does not serve it or the user lacks the
// permission.
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

// cacheState reports whether an object's kind is read from the cache. The error is the reason why it cannot be read.
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

// List implements client.Client. It does not copy the objects of the cache, because views only read them.
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

// readRarely reads an object that is not watched, at most once in readTTL. While the API server does not answer, it
// returns the last result.
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
		// The server does not answer. Caches also keep their objects in this case.
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

// eventsOf returns the events about an object.
func (v *viewerClient) eventsOf(ctx context.Context, o client.Object) ([]corev1.Event, error) {
	var list corev1.EventList
	err := v.List(ctx, &list, &client.ListOptions{Namespace: o.GetNamespace(),
		Raw: &metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(o.GetUID()), Limit: maxEvents}})
	return list.Items, err
}

// maxEvents limits the events that are read for one object.
const maxEvents = 200
