package process

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
)

// informers builds the informers of a cluster's cache.
type informers struct {
	scheme *runtime.Scheme
	// keep selects the objects that are cached. Nil selects all.
	keep objectFilter
	// onOlderData is called when the API server has older data than before. It may be nil.
	onOlderData func(error)
}

// newInformer implements cache.Options.NewInformer.
func (n informers) newInformer(lw toolscache.ListerWatcher, example runtime.Object, resync time.Duration,
	indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	if n.onOlderData != nil {
		lw = &sameHistory{ListerWatcherWithContext: toolscache.ToListerWatcherWithContext(lw),
			what: fmt.Sprintf("objects of type %T", example), onOlderData: n.onOlderData}
	}
	filtered := newFilteredListWatch(lw, n.keep, n.namespaced(example))
	return toolscache.NewSharedIndexInformer(filtered, example, resync, indexers)
}

// namespaced reports whether objects like example belong to a namespace.
func (n informers) namespaced(example runtime.Object) bool {
	f, err := formOf(example, n.scheme)
	scope := scopes()[f.GroupVersionKind]
	return err == nil && scope != nil && scope.Name() == meta.RESTScopeNameNamespace
}
