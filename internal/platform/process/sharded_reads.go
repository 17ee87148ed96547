package process

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// otherShardTimeout is how long a list of another shard's namespace may take. A webhook must answer soon.
const otherShardTimeout = time.Second

// Anywhere returns a reader of all namespaces, including namespaces outside of the shard of this process. Webhooks
// use it, because the API server may call the webhook of any process. It lists a namespace of the shard from the
// cache, and any other namespace from the API server. Get only reads from the cache, so it does not find objects of
// other shards.
func (p *Process) Anywhere() client.Reader {
	if p.config.Shard().All() {
		return p.control.Cache
	}
	return allNamespacesReader{Reader: p.control.Cache, live: p.control.Live, owns: p.config.Shard().Owns}
}

type allNamespacesReader struct {
	client.Reader // the cache
	live          client.Reader
	owns          func(namespace string) bool
}

// List implements client.Reader.
func (r allNamespacesReader) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	if r.owns((&client.ListOptions{}).ApplyOptions(o).Namespace) {
		return r.Reader.List(ctx, list, o...)
	}
	ctx, cancel := context.WithTimeout(ctx, otherShardTimeout)
	defer cancel()
	return r.live.List(ctx, list, o...)
}
