package process

import (
	"context"
	"fmt"
	"reflect"
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

// keeps decides which objects of a cluster an informer has. Nil keeps all.
type keeps func(object metav1.Object) bool

// inShard keeps the objects whose namespace is in a shard.
func inShard(s sharding.Shard) keeps {
	if s.All() {
		return nil
	}
	return func(object metav1.Object) bool { return s.Owns(object.GetNamespace()) }
}

// ofShard keeps the Nodes of a shard's Machines, and those that have no Machine yet. A Node that names a Machine of
// another shard is passes as well where one of ours is to become that Node: an instance may register under the name of
// one that is gone, whose annotations the Node still has. Of a Machine that learns its instance's name only after that,
// the next change of the Node counts, which a kubelet makes within minutes.
func (o *Process) ofShard(s sharding.Shard) keeps {
	if s.All() {
		return nil
	}
	return func(object metav1.Object) bool {
		node, ok := object.(*corev1.Node)
		return !ok || s.Owns(node.Annotations[v1beta1.NodeAnnotationClusterNamespace]) ||
			o.hasMachine(index.MachineByNodeName, node.Name) ||
			node.Spec.ProviderID != "" && o.hasMachine(index.MachineByProviderID, node.Spec.ProviderID)
	}
}

// hasMachine reports whether the cache has a Machine by an index, which not every process has.
func (o *Process) hasMachine(index, value string) bool {
	machines, err := o.control.declared.Shared(context.Background(), &v1beta1.MachineList{},
		client.MatchingFields{index: value})
	return err == nil && len(machines) > 0
}

// selected is a ListerWatcher that leaves out what does not pass, as if it did not exist. What is left out of a watch
// moves its version forward nevertheless, so that the cache is known to be complete up to there.
type selected struct {
	toolscache.ListerWatcherWithContext
	keeps keeps

	mu sync.Mutex
	// passed are the names of the objects that were let through last, of those kinds of which one may come to be left
	// out: it is deleted then. It is nil where that cannot be.
	passed map[string]bool
}

// newSelected returns lw where there is nothing to leave out. What passes of objects without a namespace may change.
func newSelected(lw toolscache.ListerWatcher, k keeps, namespaced bool) toolscache.ListerWatcher {
	if k == nil {
		return lw
	}
	s := &selected{ListerWatcherWithContext: toolscache.ToListerWatcherWithContext(lw), keeps: k}
	if !namespaced {
		s.passed = map[string]bool{}
	}
	return s
}

// ListWithContext implements toolscache.ListerWatcherWithContext.
func (s *selected) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := s.ListerWatcherWithContext.ListWithContext(ctx, o)
	if err != nil {
		return list, err
	}
	pointer, err := meta.GetItemsPtr(list)
	if err != nil {
		return nil, fmt.Errorf("list %T: %w", list, err)
	}
	all := reflect.ValueOf(pointer).Elem()
	passes := reflect.MakeSlice(all.Type(), 0, all.Len())
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.Continue == "" {
		clear(s.passed) // What was deleted since the last list is in no event.
	}
	for i := range all.Len() {
		object, ok := all.Index(i).Addr().Interface().(metav1.Object)
		if !ok {
			return nil, fmt.Errorf("list %T: an item is a %s", list, all.Type().Elem())
		}
		if s.pass(object) {
			passes = reflect.Append(passes, all.Index(i))
		}
	}
	// The array would hold all that was listed.
	all.Set(passes)
	return list, nil
}

// pass reports whether an object is let through, and remembers it.
func (s *selected) pass(object metav1.Object) bool {
	passes := s.keeps(object)
	switch {
	case s.passed == nil:
	case passes:
		s.passed[object.GetName()] = true
	default:
		delete(s.passed, object.GetName())
	}
	return passes
}

// WatchWithContext implements toolscache.ListerWatcherWithContext.
func (s *selected) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	w, err := s.ListerWatcherWithContext.WatchWithContext(ctx, o)
	if err != nil {
		return nil, err
	}
	return newSelection(w, s.judge), nil
}

// judge returns an event as the cache is to see it.
func (s *selected) judge(e watch.Event) watch.Event {
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
	was := s.passed[object.GetName()]
	if passes := s.pass(object); e.Type == watch.Deleted {
		delete(s.passed, object.GetName())
		if passes || was {
			return e
		}
	} else if passes {
		return e
	}
	if was {
		return watch.Event{Type: watch.Deleted, Object: e.Object}
	}
	return progress(e.Object, object.GetResourceVersion())
}

// progress is an event that says of a watch only how far it is.
func progress(example runtime.Object, version string) watch.Event {
	empty := reflect.New(reflect.TypeOf(example).Elem()).Interface().(runtime.Object)
	empty.GetObjectKind().SetGroupVersionKind(example.GetObjectKind().GroupVersionKind())
	if o, err := meta.Accessor(empty); err == nil {
		o.SetResourceVersion(version)
	}
	return watch.Event{Type: watch.Bookmark, Object: empty}
}

// List implements toolscache.ListerWatcher.
func (s *selected) List(o metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), o)
}

// Watch implements toolscache.ListerWatcher.
func (s *selected) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), o)
}

// selection is a watch that shows each event as it is judged. Unlike watch.Filter it ends when it is stopped, also
// while nobody takes the event that is next.
type selection struct {
	from    watch.Interface
	results chan watch.Event
	stopped chan struct{}
	stop    func()
}

func newSelection(from watch.Interface, judge func(watch.Event) watch.Event) *selection {
	s := &selection{from: from, results: make(chan watch.Event), stopped: make(chan struct{})}
	s.stop = sync.OnceFunc(func() {
		close(s.stopped)
		from.Stop()
	})
	go func() {
		defer close(s.results)
		for e := range from.ResultChan() {
			select {
			case s.results <- judge(e):
			case <-s.stopped:
				return
			}
		}
	}()
	return s
}

// ResultChan implements watch.Interface.
func (s *selection) ResultChan() <-chan watch.Event { return s.results }

// Stop implements watch.Interface.
func (s *selection) Stop() { s.stop() }
