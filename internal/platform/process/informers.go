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
	// keeps selects the objects that are cached.
	keeps keeps
	// older is called when the API server has older data than before. It may be nil.
	older func(error)
}

// newInformer is cache.Options.NewInformer.
func (n informers) newInformer(lw toolscache.ListerWatcher, example runtime.Object, resync time.Duration,
	indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	if n.older != nil {
		lw = &sameHistory{ListerWatcherWithContext: toolscache.ToListerWatcherWithContext(lw),
			what: fmt.Sprintf("objects of type %T", example), older: n.older}
	}
	return toolscache.NewSharedIndexInformer(newSelected(lw, n.keeps, n.namespaced(example)), example, resync, indexers)
}

// namespaced reports whether objects like example have a namespace.
func (n informers) namespaced(example runtime.Object) bool {
	f, err := formOf(example, n.scheme)
	scope := scopes()[f.GroupVersionKind]
	return err == nil && scope != nil && scope.Name() == meta.RESTScopeNameNamespace
}
