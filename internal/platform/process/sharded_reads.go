package process

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// otherShardTimeout limits a list of another shard's namespace, because a webhook must answer soon.
const otherShardTimeout = time.Second

// AllNamespacesReader returns a reader for the objects of all namespaces, including the namespaces of other shards.
// Webhooks use this reader, because the API server may send a request for any namespace to the webhook of any shard.
// List reads namespaces of this shard from the cache, and all other namespaces from the API server. Get reads only
// from the cache, so it does not find objects of other shards.
func (p *Process) AllNamespacesReader() client.Reader {
	if p.config.Shard().IsUndivided() {
		return p.control.Cache
	}
	return allNamespacesReader{Reader: p.control.Cache, live: p.control.LiveClient, owns: p.config.Shard().Owns}
}

type allNamespacesReader struct {
	client.Reader // reads the cache
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
