package process

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/platform/freshness"
)

const (
	// comparePage is the number of objects in one page of a list.
	comparePage = 500
	// comparePeriod is the time between two comparisons of the cache with a snapshot.
	comparePeriod = 50 * time.Millisecond
)

// CaughtUp returns nil when the cache contains everything that the API server has at the time of the call. It waits as
// long as ctx allows, and costs one list of metadata per kind. It is called at the end of an outage, when the API
// server answers requests but the watches may still be interrupted.
//
// The resource version of the cache alone is not sufficient. Versions count the writes of all kinds, and the version of
// a watch without events advances only about once a minute. So objects are compared as well.
//
// Kinds that are cached as metadata are not compared, because they only trigger controllers. A cache that is not filled
// yet is not compared either, because it cannot be read.
func (c *Cluster) CaughtUp(ctx context.Context) error {
	if !c.Synced() {
		return nil
	}
	for object := range c.kinds.byObject {
		f, err := formOf(object, c.kinds.scheme)
		if err != nil {
			return err
		}
		if f.of != asTyped {
			continue
		}
		informer, err := c.Cache.GetInformer(ctx, object, ctrlcache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("get the informer of %s: %w", f.Kind, err)
		}
		indexed, ok := informer.(interface{ GetIndexer() toolscache.Indexer })
		if !ok {
			return fmt.Errorf("the informer of %s is a %T, which gives no access to its objects", f.Kind, informer)
		}
		before := indexed.GetIndexer().LastStoreSyncResourceVersion()
		live, err := c.snapshot(ctx, f)
		if err != nil {
			return fmt.Errorf("list all objects of kind %s to compare them with the cache: %w", f.Kind, err)
		}
		if err := olderData(f.Kind, live.version, before); err != nil {
			if c.onOlderData != nil {
				c.onOlderData(err)
			}
			return err
		}
		if err := live.waitFor(ctx, indexed.GetIndexer()); err != nil {
			return fmt.Errorf("wait for the cache of %s: %w", f.Kind, err)
		}
	}
	return nil
}

// snapshot contains the resource versions of all objects of a kind at one moment.
type snapshot struct {
	version string
	objects map[string]string // the version of each object, by its key in the cache
}

// snapshot lists all objects of a kind.
func (c *Cluster) snapshot(ctx context.Context, f form) (snapshot, error) {
	s := snapshot{objects: map[string]string{}}
	for token := ""; ; {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(f.GroupVersion().WithKind(f.Kind + "List"))
		if err := c.Live.List(ctx, list, client.InNamespace(c.namespace), client.Limit(comparePage),
			client.Continue(token)); err != nil {
			return snapshot{}, err
		}
		s.version = list.ResourceVersion
		for i := range list.Items {
			s.objects[toolscache.MetaObjectToName(&list.Items[i]).String()] = list.Items[i].ResourceVersion
		}
		if token = list.Continue; token == "" {
			return s, nil
		}
	}
}

// waitFor waits until a cache contains the objects of the snapshot in the same version or a later one.
func (s snapshot) waitFor(ctx context.Context, cached toolscache.Store) error {
	tick := time.NewTicker(comparePeriod)
	defer tick.Stop()
	for {
		difference := s.difference(cached)
		if difference == "" {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", difference, context.Cause(ctx))
		}
	}
}

// difference names an object that a cache lacks, or has in an older version or after its deletion. It returns "" if
// there is none.
func (s snapshot) difference(cached toolscache.Store) string {
	if freshness.AtLeastAsNew(cached.LastStoreSyncResourceVersion(), s.version) {
		return ""
	}
	for key, version := range s.objects {
		object, there, err := cached.GetByKey(key)
		if err != nil || !there {
			return key + " is missing"
		}
		if !freshness.AtLeastAsNew(versionOf(object), version) {
			return key + " is outdated"
		}
	}
	for _, object := range cached.List() {
		key, err := toolscache.MetaNamespaceKeyFunc(object)
		if err != nil {
			continue
		}
		// An object that is not newer than the snapshot, and not in it, was deleted.
		if _, there := s.objects[key]; !there && freshness.AtLeastAsNew(s.version, versionOf(object)) {
			return key + " was deleted and is still cached"
		}
	}
	return ""
}

// versionOf returns the resource version of an object.
func versionOf(object any) string {
	if o, err := meta.Accessor(object); err == nil {
		return o.GetResourceVersion()
	}
	return ""
}
