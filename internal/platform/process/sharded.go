package process

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/sharding"
)

// objectFilter decides which objects an informer caches. Nil means all.
type objectFilter func(object metav1.Object) bool

func inShard(s sharding.Shard) objectFilter {
	if s.IsUndivided() {
		return nil
	}
	return func(object metav1.Object) bool { return s.Owns(object.GetNamespace()) }
}

// nodesOfShard returns a filter for the Nodes of a shard's Machines and all Nodes without a Machine.
//
// A Node may have the annotations of a Machine of another shard, although it is now the Node of a Machine of this
// shard. Such outdated annotations exist when an instance registers under the name of a deleted instance, because the
// Node still has the old annotations. The filter also accepts a Node with such old annotations. If the Machine does
// not know the name of its instance yet, the filter accepts only a later event of the Node. A kubelet changes its
// Node within minutes.
func (p *Process) nodesOfShard(s sharding.Shard) objectFilter {
	if s.IsUndivided() {
		return nil
	}
	return func(object metav1.Object) bool {
		node, ok := object.(*corev1.Node)
		return !ok || s.Owns(node.Annotations[v1beta1.NodeAnnotationClusterNamespace]) ||
			p.hasMachine(index.MachineByNodeName, node.Name) ||
			node.Spec.ProviderID != "" && p.hasMachine(index.MachineByProviderID, node.Spec.ProviderID)
	}
}

// hasMachine reports whether the cache contains a Machine that has the given value in the given index. It returns false
// if this process does not have the index.
func (p *Process) hasMachine(index, value string) bool {
	machines, err := p.control.declared.ListShared(context.Background(), &v1beta1.MachineList{},
		client.MatchingFields{index: value})
	return err == nil && len(machines) > 0
}

// filteredListWatch is a ListerWatcher that hides the objects that do not pass a filter. An event of a hidden object
// still advances the resource version of the watch, so the cache is known to be complete up to this version.
type filteredListWatch struct {
	toolscache.ListerWatcherWithContext
	keep objectFilter

	mu sync.Mutex
	// passedNames contains the names of the objects that passed the filter at their last event. When such an object
	// no longer passes the filter, the cache must delete it. The map is nil if the filter always returns the same
	// result for an object.
	passedNames map[string]bool
}

// newFilteredListWatch returns a ListerWatcher that filters the objects of lw. For an object in a namespace, the filter
// must always return the same result. For a cluster-scoped object, its result may change over time.
func newFilteredListWatch(lw toolscache.ListerWatcherWithContext, keep objectFilter,
	namespaced bool) *filteredListWatch {
	s := &filteredListWatch{ListerWatcherWithContext: lw, keep: keep}
	if !namespaced {
		s.passedNames = map[string]bool{}
	}
	return s
}

// ListWithContext implements toolscache.ListerWatcherWithContext.
func (s *filteredListWatch) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := s.ListerWatcherWithContext.ListWithContext(ctx, o)
	if err != nil {
		return list, err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return nil, fmt.Errorf("list %T: %w", list, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.Continue == "" {
		clear(s.passedNames) // Objects that were deleted since the last list have no event.
	}
	return list, meta.SetList(list, slices.DeleteFunc(items, func(item runtime.Object) bool {
		object, err := meta.Accessor(item)
		return err == nil && !s.pass(object)
	}))
}

func (s *filteredListWatch) pass(object metav1.Object) bool {
	passes := s.keep(object)
	switch {
	case s.passedNames == nil:
	case passes:
		s.passedNames[object.GetName()] = true
	default:
		delete(s.passedNames, object.GetName())
	}
	return passes
}

// WatchWithContext implements toolscache.ListerWatcherWithContext.
func (s *filteredListWatch) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := s.ListerWatcherWithContext.WatchWithContext(ctx, o)
	if err != nil {
		return nil, err
	}
	// Unlike with watch.Filter, this goroutine ends with the watch, even if the next event is never received.
	results := make(chan watch.Event)
	filtered := watch.NewProxyWatcher(results)
	go func() {
		defer close(results)
		defer w.Stop()
		for {
			select {
			case e, open := <-w.ResultChan():
				if !open {
					return
				}
				select {
				case results <- s.translate(e):
				case <-filtered.StopChan():
					return
				}
			case <-filtered.StopChan():
				return
			}
		}
	}()
	return filtered, nil
}

func (s *filteredListWatch) translate(e watch.Event) watch.Event {
	switch e.Type {
	case watch.Added, watch.Modified, watch.Deleted:
	default:
		return e
	}
	object, err := meta.Accessor(e.Object)
	if err != nil {
		return e
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	passedBefore := s.passedNames[object.GetName()]
	if passes := s.pass(object); e.Type == watch.Deleted {
		delete(s.passedNames, object.GetName())
		if passes || passedBefore {
			return e
		}
	} else if passes {
		return e
	}
	if passedBefore {
		return watch.Event{Type: watch.Deleted, Object: e.Object}
	}
	return bookmark(e.Object, object.GetResourceVersion())
}

func bookmark(example runtime.Object, version string) watch.Event {
	empty := reflect.New(reflect.TypeOf(example).Elem()).Interface().(runtime.Object)
	empty.GetObjectKind().SetGroupVersionKind(example.GetObjectKind().GroupVersionKind())
	if o, err := meta.Accessor(empty); err == nil {
		o.SetResourceVersion(version)
	}
	return watch.Event{Type: watch.Bookmark, Object: empty}
}
