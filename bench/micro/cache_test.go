package micro

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/fleet/machineset"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/wiring"
)

func scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(v1beta1.AddToScheme(s))
	return s
}

// cached is a client that reads from a cache. The writes of this client appear in the cache immediately.
type cached struct {
	client.Client // nil, because other methods must not be called
	cache         cache.Cache
	stores        map[schema.GroupVersionKind]toolscache.SharedIndexInformer
	scheme        *runtime.Scheme
	writes        *writes
}

func (c cached) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	return c.cache.Get(ctx, key, o, options...)
}

func (c cached) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	return c.cache.List(ctx, list, options...)
}

// writes records all writes. Reconcilers may write in parallel.
type writes struct {
	mu  sync.Mutex
	all []string
}

// add records a write and returns the number of writes so far.
func (w *writes) add(write string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, write)
	return len(w.all)
}

// liveClient is a client that returns the objects of the client cached. Like an API server, it sets the resource
// version of lists.
type liveClient struct{ cached }

func (l liveClient) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := l.cached.List(ctx, list, options...)
	list.SetResourceVersion("1")
	return err
}

func (c cached) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return c.store("patch", o)
}

func (c cached) Status() client.SubResourceWriter { return statuses{nil, c} }

func (c cached) store(verb string, o client.Object) error {
	version := 1 + c.writes.add(fmt.Sprintf("%s %T %s", verb, o, o.GetName()))
	kind, err := apiutil.GVKForObject(o, c.scheme)
	if err != nil {
		return err
	}
	o.SetResourceVersion(fmt.Sprint(version))
	return c.stores[kind].GetIndexer().Update(o.DeepCopyObject())
}

type statuses struct {
	client.SubResourceWriter // nil, because only some methods are called
	c                        cached
}

func (s statuses) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	return s.c.store("patch status", o)
}

// cacheOf fills controller-runtime's cache with the objects and adds all indexes of the processes.
func cacheOf(tb testing.TB, objects []client.Object) cached {
	tb.Helper()
	s := scheme()
	kinds := []client.Object{
		&v1beta1.Machine{}, &v1beta1.MachineSet{}, &v1beta1.MachineDeployment{}, &v1beta1.MachineClass{},
		&v1beta1.MachineHealthCheck{}, &v1beta1.MachineDisruptionBudget{}, &corev1.Node{}, wiring.MachineSets(),
	}
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1beta1.GroupVersion, corev1.SchemeGroupVersion})
	byKind := map[schema.GroupVersionKind][]client.Object{}
	kindOf := func(o runtime.Object) schema.GroupVersionKind {
		kind, err := apiutil.GVKForObject(o, s)
		if err != nil {
			tb.Fatal(err)
		}
		return kind
	}
	for _, o := range kinds {
		scope := meta.RESTScopeNamespace
		if _, ok := o.(*corev1.Node); ok {
			scope = meta.RESTScopeRoot
		}
		mapper.Add(kindOf(o), scope)
	}
	for _, o := range objects {
		byKind[kindOf(o)] = append(byKind[kindOf(o)], o)
	}
	stores := map[schema.GroupVersionKind]toolscache.SharedIndexInformer{}
	c, err := cache.New(&rest.Config{}, cache.Options{
		Scheme: s, Mapper: mapper, ReaderFailOnMissingInformer: true,
		NewInformer: func(_ toolscache.ListerWatcher, o runtime.Object, resync time.Duration,
			indexers toolscache.Indexers) toolscache.SharedIndexInformer {
			kind := kindOf(o)
			_, metadata := o.(*metav1.PartialObjectMetadata)
			lw := &toolscache.ListWatch{
				ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
					if metadata {
						return metadataOf(byKind[kind], kind), nil
					}
					list, err := s.New(kind.GroupVersion().WithKind(kind.Kind + "List"))
					if err != nil {
						return nil, err
					}
					items := make([]runtime.Object, len(byKind[kind]))
					for i, o := range byKind[kind] {
						items[i] = o
					}
					list.(metav1.ListInterface).SetResourceVersion("1")
					return list, meta.SetList(list, items)
				},
				WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
					return watch.NewFake(), nil
				},
			}
			informer := toolscache.NewSharedIndexInformer(listOnly{lw}, o, resync, indexers)
			if !metadata {
				stores[kind] = informer
			}
			return informer
		},
	})
	if err != nil {
		tb.Fatal(err)
	}
	ctx := tb.Context()
	for _, register := range []func(context.Context, client.FieldIndexer) error{
		index.RegisterMachines, index.RegisterSets, index.RegisterTarget, resolve.RegisterIndexes, machineset.RegisterIndexes,
	} {
		if err := register(ctx, c); err != nil {
			tb.Fatal(err)
		}
	}
	for _, o := range kinds {
		if _, err := c.GetInformer(ctx, o, cache.BlockUntilSynced(false)); err != nil {
			tb.Fatal(err)
		}
	}
	go func() { _ = c.Start(ctx) }()
	if !c.WaitForCacheSync(ctx) {
		tb.Fatal("the cache did not sync")
	}
	return cached{cache: c, stores: stores, scheme: s, writes: &writes{}}
}

func metadataOf(objects []client.Object, kind schema.GroupVersionKind) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}
	for _, o := range objects {
		item := meta.AsPartialObjectMetadata(o)
		item.SetGroupVersionKind(kind)
		list.Items = append(list.Items, *item)
	}
	return list
}

// listOnly lists the objects before it watches them, because a plain watch does not deliver existing objects here.
type listOnly struct{ *toolscache.ListWatch }

func (listOnly) IsWatchListSemanticsUnSupported() bool { return true }

var sizes = []int{100, 10_000}

func forEachSize(b *testing.B, run func(b *testing.B, n int)) {
	for _, n := range sizes {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			run(b, n)
		})
	}
}
