package process

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
)

type informers struct {
	scheme *runtime.Scheme
	keep   objectFilter
	// onOlderData is called when the API server has older data than before. It may be nil.
	onOlderData func(error)
}

// newInformer implements cache.Options.NewInformer.
func (n informers) newInformer(lw toolscache.ListerWatcher, example runtime.Object, resync time.Duration,
	indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	var source toolscache.ListerWatcherWithContext = retryingListWatch{toolscache.ToListerWatcherWithContext(lw)}
	if n.onOlderData != nil {
		source = &sameHistory{ListerWatcherWithContext: source, what: fmt.Sprintf("objects of type %T", example),
			onOlderData: n.onOlderData}
	}
	if n.keep != nil {
		f, err := formOf(example, n.scheme)
		source = newFilteredListWatch(source, n.keep, err == nil && namespaced(f.GroupVersionKind))
	}
	return toolscache.NewSharedIndexInformer(&toolscache.ListWatch{ListWithContextFunc: source.ListWithContext,
		WatchFuncWithContext: source.WatchWithContext}, example, resync, indexers)
}
