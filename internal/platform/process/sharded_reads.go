package process

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// elsewhereTimeout bounds a list of what another shard caches. A webhook has little time.
const elsewhereTimeout = time.Second

// Anywhere returns a reader for those who are asked about all namespaces, whatever the shard of this process: a webhook
// is called in any process. It lists from the cache what is in the shard, and at the API server what is not. What it
// gets, it gets from the cache: of another shard there is nothing.
func (o *Process) Anywhere() client.Reader {
	if o.config.Shard().All() {
		return o.control.Cache
	}
	return anywhere{Reader: o.control.Cache, live: o.control.Live, owns: o.config.Shard().Owns}
}

type anywhere struct {
	client.Reader // the cache
	live          client.Reader
	owns          func(namespace string) bool
}

// List implements client.Reader.
func (r anywhere) List(ctx context.Context, list client.ObjectList, o ...client.ListOption) error {
	if r.owns((&client.ListOptions{}).ApplyOptions(o).Namespace) {
		return r.Reader.List(ctx, list, o...)
	}
	ctx, cancel := context.WithTimeout(ctx, elsewhereTimeout)
	defer cancel()
	return r.live.List(ctx, list, o...)
}
