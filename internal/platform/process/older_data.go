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

// errOlderData is the error of a cluster whose etcd was put back to an older snapshot. All that this process has
// cached, and every version that it waits for, is of a history that does not exist any more: a watch from such a
// version reports nothing until as many writes have happened again, and a cache that lacks them looks newer than the
// API server.
var errOlderData = errors.New("the cluster's data was put back to an older state")

// olderData returns an error if a version that the API server gave for all it has now is older than one that was known
// before it was asked. An API server answers with no older version than any before.
func olderData(what, now, before string) error {
	if now == "" || before == "" || freshness.AtLeastAsNew(now, before) || !freshness.AtLeastAsNew(before, now) {
		return nil
	}
	return fmt.Errorf("%w: %s are at version %s, and were at %s before", errOlderData, what, now, before)
}

// sameHistory asks, before a watch goes on from a version, whether the API server has come to that version. It is one
// request for one object when a watch broke off, as it does when the API server is started with other data. A list
// after a watch that could not go on is judged as well.
type sameHistory struct {
	toolscache.ListerWatcherWithContext
	what string
	// older is called with the error.
	older func(error)

	mu sync.Mutex
	// seen is the latest version that the informer had, listed that of the last list: a watch that follows it needs no
	// question.
	seen, listed string
}

// judge returns an error if a version of the API server is older than one that the informer had, or that from.
func (h *sameHistory) judge(now, from string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.seen == "" || freshness.AtLeastAsNew(from, h.seen) {
		h.seen = from
	}
	if err := olderData(h.what, now, h.seen); err != nil {
		h.older(err)
		return err
	}
	if now != "" {
		h.seen, h.listed = now, now
	}
	return nil
}

// ListWithContext implements toolscache.ListerWatcherWithContext.
func (h *sameHistory) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	list, err := h.ListerWatcherWithContext.ListWithContext(ctx, o)
	if err == nil && o.ResourceVersion != "0" { // By that a reader asks for what a server has, be it old.
		_ = h.judge(versionOfList(list), "") // The process ends, and its informers with it.
	}
	return list, err
}

// WatchWithContext implements toolscache.ListerWatcherWithContext.
func (h *sameHistory) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if from := o.ResourceVersion; from != "" && from != "0" && !h.followsList(from) {
		now, err := h.ListerWatcherWithContext.ListWithContext(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			_ = h.judge("", from)
			return nil, err
		}
		if err := h.judge(versionOfList(now), from); err != nil {
			return nil, apierrors.NewResourceExpired(err.Error())
		}
	}
	return h.ListerWatcherWithContext.WatchWithContext(ctx, o)
}

func (h *sameHistory) followsList(version string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return version == h.listed
}

// List implements toolscache.ListerWatcher.
func (h *sameHistory) List(o metav1.ListOptions) (runtime.Object, error) {
	return h.ListWithContext(context.Background(), o)
}

// Watch implements toolscache.ListerWatcher.
func (h *sameHistory) Watch(o metav1.ListOptions) (watch.Interface, error) {
	return h.WatchWithContext(context.Background(), o)
}

func versionOfList(list runtime.Object) string {
	if l, err := meta.ListAccessor(list); err == nil {
		return l.GetResourceVersion()
	}
	return ""
}

// endWhenOlder cancels work when a cluster turns out to have older data, and ends with ended. The process is started
// anew, and reads everything again.
func (o *Process) endWhenOlder(cancel context.CancelCauseFunc, ended <-chan struct{}) {
	select {
	case err := <-o.older:
		o.log.Error(err, "All work is cancelled and the process ends, because it knows what is not true any more")
		cancel(err)
	case <-ended:
	}
}

// dataIsOlder has the process end for an error of olderData.
func (o *Process) dataIsOlder(cluster string, err error) {
	select {
	case o.older <- fmt.Errorf("the %s cluster: %w", cluster, err):
	default: // It ends already.
	}
}
