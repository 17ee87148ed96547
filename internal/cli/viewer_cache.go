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

// rememberFor is how long what is not watched is remembered: leases, and the record of orphans.
const rememberFor = 5 * time.Second

// viewerClient is a client of the fleet view. It reads Machinist's kinds from caches, which watch no more than the
// viewer may see, and remembers the rest for a while.
type viewerClient struct {
	client.WithWatch
	cache cache.Cache
	// kinds are those that are asked of the cache; an error is why one cannot be read.
	kinds map[string]error
	now   func() time.Time

	mu         sync.Mutex
	remembered map[string]remembered
}

type remembered struct {
	object client.Object
	err    error
	at     time.Time
}

// watchedKinds are the kinds that the view follows, with the names of their resources. Without the first there is
// nothing to see.
func watchedKinds() map[string]client.Object {
	return map[string]client.Object{
		"machines": &v1beta1.Machine{}, "machinesets": &v1beta1.MachineSet{}, "machinedeployments": &v1beta1.MachineDeployment{},
		"machinehealthchecks": &v1beta1.MachineHealthCheck{}, "machineclasses": &v1beta1.MachineClass{},
		"machinedisruptionbudgets": &v1beta1.MachineDisruptionBudget{},
	}
}

// newViewerClient returns the client for a namespace, "" for all, and calls changed whenever what it watches does. It
// returns when the caches have been filled.
func newViewerClient(ctx context.Context, config *rest.Config, live client.WithWatch, namespace string,
	now func() time.Time, changed func()) (*viewerClient, error) {
	v := &viewerClient{WithWatch: live, kinds: map[string]error{}, now: now, remembered: map[string]remembered{}}
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
		why := v.mayWatch(ctx, kind, name, namespace)
		v.kinds[kind.Kind] = why
		switch {
		case why == nil:
			informer, err := v.cache.GetInformer(ctx, object, cache.BlockUntilSynced(false))
			if err != nil {
				return nil, err
			}
			if _, err := informer.AddEventHandler(handler); err != nil {
				return nil, err
			}
		case name == "machines", !apierrors.IsForbidden(why) && !meta.IsNoMatchError(why):
			return nil, why
		}
	}
	go func() { _ = v.cache.Start(ctx) }()
	if !v.cache.WaitForCacheSync(ctx) {
		return nil, ctx.Err()
	}
	return v, nil
}

// mayWatch returns why the viewer cannot follow a kind, nil if that is possible.
func (v *viewerClient) mayWatch(ctx context.Context, kind schema.GroupVersionKind, resource, namespace string) error {
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
				fmt.Errorf("the verb %s is needed %s", verb, where))
		}
	}
	return nil
}

// known says for a kind whether it is read from the cache, and why it cannot be read.
func (v *viewerClient) known(o any) (cached bool, err error) {
	object, ok := o.(client.Object)
	if !ok {
		return false, nil
	}
	kind, err := apiutil.GVKForObject(object, v.Scheme())
	if err != nil || kind.Group != v1beta1.GroupVersion.Group {
		return false, nil //nolint:nilerr // A kind that is not known is none of those.
	}
	why, cached := v.kinds[kind.Kind]
	return cached, why
}

// Get implements client.Client.
func (v *viewerClient) Get(ctx context.Context, key client.ObjectKey, o client.Object,
	options ...client.GetOption) error {
	switch cached, err := v.known(o); {
	case err != nil:
		return err
	case cached:
		return v.cache.Get(ctx, key, o, options...)
	}
	switch o := o.(type) {
	case *coordinationv1.Lease:
		return remember(ctx, v, "lease", key, o)
	case *corev1.ConfigMap:
		return remember(ctx, v, "configmap", key, o)
	}
	return v.WithWatch.Get(ctx, key, o, options...)
}

// List implements client.Client. The objects of the cache are not copied: views only read them.
func (v *viewerClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	kind, err := apiutil.GVKForObject(list, v.Scheme())
	if err != nil {
		return err
	}
	why, cached := v.kinds[strings.TrimSuffix(kind.Kind, "List")]
	switch {
	case kind.Group != v1beta1.GroupVersion.Group || !cached:
		return v.WithWatch.List(ctx, list, options...)
	case why != nil:
		return why
	}
	return v.cache.List(ctx, list, append(options, client.UnsafeDisableDeepCopy)...)
}

// remember reads an object that is not watched, at most once in a while.
func remember[T interface {
	client.Object
	DeepCopyInto(T)
}](ctx context.Context, v *viewerClient, kind string, key client.ObjectKey, into T) error {
	name := kind + "/" + key.String()
	v.mu.Lock()
	before, there := v.remembered[name]
	v.mu.Unlock()
	if there && v.now().Sub(before.at) < rememberFor {
		if before.err == nil {
			before.object.(T).DeepCopyInto(into)
		}
		return before.err
	}
	err := v.WithWatch.Get(ctx, key, into)
	if err != nil && apierrors.ReasonForError(err) == metav1.StatusReasonUnknown {
		// The server does not answer: what is known stays, as in the caches.
		if there && before.err == nil {
			before.object.(T).DeepCopyInto(into)
			return nil
		}
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.remembered[name] = remembered{object: into.DeepCopyObject().(client.Object), err: err, at: v.now()}
	return err
}

// eventsOf returns the events about an object.
func (v *viewerClient) eventsOf(ctx context.Context, o client.Object) ([]corev1.Event, error) {
	var list corev1.EventList
	err := v.List(ctx, &list, &client.ListOptions{Namespace: o.GetNamespace(),
		Raw: &metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(o.GetUID()), Limit: mostEvents}})
	return list.Items, err
}

// mostEvents bounds the events that are read about one object.
const mostEvents = 200
