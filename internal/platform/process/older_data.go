package process

import (
	"context"
	"errors"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"

	"machinist.dev/machinist/internal/platform/freshness"
)

// errOlderData means that the etcd of a cluster was restored from an older snapshot. The cached objects and resource
// versions of this process no longer match the data of the cluster. A watch from a cached version gets no events until
// new writes have reached the same version again, so the cache would miss these writes.
var errOlderData = errors.New("the data of the cluster was restored to an older state")

// olderData returns an error if the data of the API server is older than before. currentVersion is the resource version
// of a complete list. earlierVersion is a resource version that was known before this list began. An API server returns
// an older version only after a restore.
func olderData(what, currentVersion, earlierVersion string) error {
	if currentVersion == "" || earlierVersion == "" || freshness.AtLeastAsNew(currentVersion, earlierVersion) ||
		!freshness.AtLeastAsNew(earlierVersion, currentVersion) {
		return nil
	}
	return fmt.Errorf("%w: %s are at version %s, but were at version %s before", errOlderData, what, currentVersion,
		earlierVersion)
}

// sameHistory is a ListerWatcher that ends the process if the API server has older data than before. A restart with
// other data interrupts a watch, and the next watch continues from a known version. Before this watch, sameHistory
// lists one object to check that the API server has reached that version. It also checks the next list after a failed
// watch.
type sameHistory struct {
	toolscache.ListerWatcherWithContext
	what        string // the objects, for the error
	onOlderData func(error)

	mu sync.Mutex
	// seenVersion is the latest version that the informer has received. listedVersion is the version of its last
	// list. A watch that starts at the version of the last list needs no check.
	seenVersion, listedVersion string
}

// checkVersion returns an error if currentVersion, the version of the API server, is older than a version that the
// informer has received. The informer has also received the version receivedVersion. If currentVersion is empty,
// checkVersion only records receivedVersion.
func (h *sameHistory) checkVersion(currentVersion, receivedVersion string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seenVersion == "" || freshness.AtLeastAsNew(receivedVersion, h.seenVersion) {
		h.seenVersion = receivedVersion
	}
	if err := olderData(h.what, currentVersion, h.seenVersion); err != nil {
		h.onOlderData(err)
		return err
	}
	if currentVersion != "" {
		h.seenVersion, h.listedVersion = currentVersion, currentVersion
	}
	return nil
}

// ListWithContext implements toolscache.ListerWatcherWithContext.
func (h *sameHistory) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := h.ListerWatcherWithContext.ListWithContext(ctx, o)
	if err == nil && o.ResourceVersion != "0" { // With "0", an API server may answer with old data from its cache.
		_ = h.checkVersion(versionOfList(list), "") // After an error, the process ends together with its informers.
	}
	return list, err
}

// WatchWithContext implements toolscache.ListerWatcherWithContext.
func (h *sameHistory) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if from := o.ResourceVersion; from != "" && from != "0" && !h.followsList(from) {
		now, err := h.ListerWatcherWithContext.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			_ = h.checkVersion("", from)
			return nil, err
		}
		if err := h.checkVersion(versionOfList(now), from); err != nil {
			return nil, apierrors.NewResourceExpired(err.Error())
		}
	}
	return h.ListerWatcherWithContext.WatchWithContext(ctx, o)
}

func (h *sameHistory) followsList(version string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return version == h.listedVersion
}

func versionOfList(list runtime.Object) string {
	if l, err := meta.ListAccessor(list); err == nil {
		return l.GetResourceVersion()
	}
	return ""
}

// cancelOnOlderData cancels all work when a cluster has older data than before, so that the process ends. After its
// restart, the process reads everything again. If the process ends first, the function returns without a cancellation.
func (p *Process) cancelOnOlderData(cancel context.CancelCauseFunc, ended <-chan struct{}) {
	select {
	case err := <-p.olderData:
		p.log.Error(err, "Cancelling all work and ending the process, because its caches contain data that no longer exists")
		cancel(err)
	case <-ended:
	}
}

func (p *Process) reportOlderData(cluster string, err error) {
	select {
	case p.olderData <- fmt.Errorf("the %s cluster: %w", cluster, err):
	default: // The process is already ending.
	}
}
