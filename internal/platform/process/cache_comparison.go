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

// CaughtUp returns nil when the cache contains everything that the API server has at the time of the call. It stops
// waiting when ctx ends. CaughtUp lists the metadata of each kind once. Call it at the end of an outage. At this
// time, the API server answers requests, but the watches may still be interrupted.
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

// missingEvent describes an event that a cache has not received, although a live list contains the effect of the event.
// It returns "" if there is no such event.
//
// The resource version of the cache may be lower than the resource version of the list. A resource version counts
// the writes of all kinds. If a watch has no events, its resource version advances only about once a minute.
// Events arrive in order. Therefore, if the cache is as new as every object in the list, it contains all changes of
// these objects. Deletions need another check, because a deleted object is not in the list.
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
		// If an object in the cache is not newer than the list, but is not in the list, the object was deleted.
		key := toolscache.MetaObjectToName(o).String()
		if !exists[key] && freshness.AtLeastAsNew(live.ResourceVersion, o.GetResourceVersion()) {
			return key + " was deleted"
		}
	}
	return ""
}
