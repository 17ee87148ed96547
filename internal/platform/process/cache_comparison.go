package process

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/platform/freshness"
)

// comparePeriod is the time between two comparisons of the cache with the API server's objects.
const comparePeriod = 50 * time.Millisecond

// CaughtUp returns nil when the cache contains everything that the API server has at the time of the call. It waits as
// long as ctx allows, and costs one list of metadata per kind. It is called at the end of an outage, when the API
// server answers requests but the watches may still be interrupted.
//
// Kinds that are cached as metadata are not compared, because they only trigger controllers. A cache that is not filled
// yet is not compared either, because it cannot be read.
func (c *Cluster) CaughtUp(ctx context.Context) error {
	if !c.Synced() {
		return nil
	}
	for gvk, of := range c.kinds.declared {
		if of != asTyped {
			continue
		}
		cached, err := c.declared.indexer(ctx, form{gvk, of})
		if err != nil {
			return err
		}
		before := cached.LastStoreSyncResourceVersion()
		live := metadataListOf(gvk)
		if err := c.Live.List(ctx, live, client.InNamespace(c.namespace)); err != nil {
			return fmt.Errorf("list all objects of kind %s to compare them with the cache: %w", gvk.Kind, err)
		}
		if err := olderData(gvk.Kind, live.ResourceVersion, before); err != nil {
			if c.onOlderData != nil {
				c.onOlderData(err)
			}
			return err
		}
		missing := ""
		err = wait.PollUntilContextCancel(ctx, comparePeriod, true, func(context.Context) (bool, error) {
			missing = missingEvent(cached, live)
			return missing == "", nil
		})
		if err != nil {
			return fmt.Errorf("wait for the cache of %s: %s: %w", gvk.Kind, missing, err)
		}
	}
	return nil
}

// missingEvent describes an event that a cache has not received although the API server had its effect in a live list.
// It returns "" if there is none.
//
// The version of the cache need not reach that of the list. Versions count the writes of all kinds, and the version of
// a watch without events advances only about once a minute. A cache has seen all changes if it is as new as each live
// object, because its events are ordered. Only deletions leave no object.
func missingEvent(cached toolscache.Store, live *metav1.PartialObjectMetadataList) string {
	seen := cached.LastStoreSyncResourceVersion()
	if freshness.AtLeastAsNew(seen, live.ResourceVersion) {
		return ""
	}
	exists := make(map[string]bool, len(live.Items))
	for i := range live.Items {
		key := toolscache.MetaObjectToName(&live.Items[i]).String()
		if !freshness.AtLeastAsNew(seen, live.Items[i].ResourceVersion) {
			return key + " has changed"
		}
		exists[key] = true
	}
	for _, object := range cached.List() {
		o, err := meta.Accessor(object)
		if err != nil {
			continue
		}
		// An object that is not newer than the list, and not in it, was deleted.
		key := toolscache.MetaObjectToName(o).String()
		if !exists[key] && freshness.AtLeastAsNew(live.ResourceVersion, o.GetResourceVersion()) {
			return key + " was deleted"
		}
	}
	return ""
}
