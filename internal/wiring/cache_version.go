package wiring

import (
	"context"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// CacheVersion returns a function that tells up to which resource version the manager's cache of a kind is complete,
// "" if that is not known.
func CacheVersion(mgr manager.Manager, kind client.Object) func() string {
	return func() string {
		informer, err := mgr.GetCache().GetInformer(context.Background(), kind)
		if err != nil {
			return ""
		}
		stored, ok := informer.(interface{ GetStore() toolscache.Store })
		if !ok {
			return ""
		}
		return stored.GetStore().LastStoreSyncResourceVersion()
	}
}
