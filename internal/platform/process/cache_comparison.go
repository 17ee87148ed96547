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
	// comparePage bounds what the API server and this process hold at a time.
	comparePage = 500
	// comparePeriod is the time between two checks whether the cache has what it lacked.
	comparePeriod = 50 * time.Millisecond
)

// CaughtUp returns nil when the cache shows everything that the API server has at the time of the call, or later; how
// long to wait for it is up to ctx. It costs one list of metadata for each kind, and is for the end of an outage:
// that the API server answers does not mean that our watches do.
//
// The version of the cache alone does not tell. Versions count the writes of all kinds, and the one of a watch to which
// nothing happens moves about once a minute. So objects are compared as well.
//
// What is cached as metadata is not checked: it triggers controllers, and nothing is decided from it. Nor is a cache
// that was never filled: it cannot be read.
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
			return fmt.Errorf("find the informer of %s: %w", f.Kind, err)
		}
		indexed, ok := informer.(interface{ GetIndexer() toolscache.Indexer })
		if !ok {
			return fmt.Errorf("the informer of %s is a %T, and hides what it has", f.Kind, informer)
		}
		before := indexed.GetIndexer().LastStoreSyncResourceVersion()
		live, err := c.snapshot(ctx, f)
		if err != nil {
			return fmt.Errorf("list all %s for a comparison with the cache: %w", f.Kind, err)
		}
		if err := olderData(f.Kind, live.version, before); err != nil {
			if c.older != nil {
				c.older(err)
			}
			return err
		}
		if err := live.reached(ctx, indexed.GetIndexer()); err != nil {
			return fmt.Errorf("the cache of %s: %w", f.Kind, err)
		}
	}
	return nil
}

// snapshot is what the API server has of a kind at one moment.
type snapshot struct {
	version string
	objects map[string]string // the version of each by its key in the cache
}

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

// reached waits until a cache has what the snapshot has, or something later.
func (s snapshot) reached(ctx context.Context, cached toolscache.Store) error {
	tick := time.NewTicker(comparePeriod)
	defer tick.Stop()
	for {
		lacks := s.lacking(cached)
		if lacks == "" {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", lacks, context.Cause(ctx))
		}
	}
}

// lacking says what of the snapshot a cache does not show yet, nothing if it shows all.
func (s snapshot) lacking(cached toolscache.Store) string {
	if freshness.AtLeastAsNew(cached.LastStoreSyncResourceVersion(), s.version) {
		return ""
	}
	for key, version := range s.objects {
		object, there, err := cached.GetByKey(key)
		if err != nil || !there {
			return key + " is missing"
		}
		if !freshness.AtLeastAsNew(versionOf(object), version) {
			return key + " is old"
		}
	}
	for _, object := range cached.List() {
		key, err := toolscache.MetaNamespaceKeyFunc(object)
		if err != nil {
			continue
		}
		// What the snapshot has not, and is not newer than it, was deleted.
		if _, there := s.objects[key]; !there && freshness.AtLeastAsNew(s.version, versionOf(object)) {
			return key + " is still there"
		}
	}
	return ""
}

func versionOf(object any) string {
	if o, err := meta.Accessor(object); err == nil {
		return o.GetResourceVersion()
	}
	return ""
}
