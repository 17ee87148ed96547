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

const comparePeriod = 50 * time.Millisecond

// CaughtUp returns nil when the cache contains everything that the API server has at the time of the call. CaughtUp
// stops waiting when ctx ends. Call it at the end of an outage, because watches may still be interrupted when the API
// server answers again.
//
// CaughtUp lists the metadata of each kind once. CaughtUp skips caches that are not filled yet, and kinds that are
// cached as metadata, because metadata only triggers controllers.
func (c *Cluster) CaughtUp(ctx context.Context) error {
	if !c.IsSynced() {
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
		if err := c.LiveClient.List(ctx, live, client.InNamespace(c.namespace)); err != nil {
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

// missingEvent describes a change that a live list contains but the cache does not. It returns "" if the cache contains
// all changes.
//
// The versions of the cache and the list cannot be compared. A resource version counts the writes of all kinds, and an
// idle watch advances only about once a minute. Events arrive in order. If the cache's version is at least the version
// of each listed object, the cache therefore contains all changes of these objects. Deletions need another check,
// because the list does not contain deleted objects.
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
		// An object that is missing from a newer list was deleted.
		key := toolscache.MetaObjectToName(o).String()
		if !exists[key] && freshness.AtLeastAsNew(live.ResourceVersion, o.GetResourceVersion()) {
			return key + " was deleted"
		}
	}
	return ""
}
