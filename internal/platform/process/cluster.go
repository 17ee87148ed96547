package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"machinist.dev/machinist/internal/platform/process/fence"
	"machinist.dev/machinist/internal/platform/reachability"
)

// Cluster is access to one of the two clusters. All writes of its clients ask the fence first.
type Cluster struct {
	// Client reads the cached kinds from the cache, and in it this process's own writes through the same Client. Reads of
	// other kinds fail with ErrNotCached; writes may be of any kind. Until the cache was filled, reads and writes of the
	// cached kinds fail with ErrNotSynced.
	Client client.Client
	// Live reads and writes the API server itself. What it writes of the cached kinds, Client may not see yet.
	Live client.Client
	// Cache has the informers of the cached kinds, and refuses others with ErrNotCached. Indexes are added to it in the
	// setup function. Reads from it do not wait for this process's own writes.
	Cache cache.Cache
	// Config is how the cluster is reached. Whatever client is made from it asks the fence before it writes.
	Config *rest.Config

	// unfenced is for what a process writes that is not the leader: its lease, its events.
	unfenced *rest.Config
	// loaded is as the kubeconfig file said at the start; kubeconfig renews the credentials of what is made from it.
	loaded     *rest.Config
	kubeconfig *kubeconfig

	// denials are the rights that this process turned out to lack; reviews asks about them again.
	denials *denials
	reviews authorizationclient.SelfSubjectAccessReviewInterface

	mapper    meta.RESTMapper
	discovery *discovery.DiscoveryClient
	kinds     kinds
	declared  *declaredCache
	namespace string // the only one that is cached; empty means all
	filled    chan struct{}
	older     func(error)
}

type clusterOptions struct {
	// name is "control" or "target".
	name string
	// kubeconfig is nil where credentials need not be renewed.
	kubeconfig  *kubeconfig
	scheme      *runtime.Scheme
	kinds       []Kind
	namespace   string
	keeps       keeps // what is cached of the kinds; nil means all
	readTimeout time.Duration
	fieldOwner  string
	fence       *fence.Fence
	log         logr.Logger
	// older is called with an error when the cluster turns out to have been put back to older data; may be nil.
	older func(error)
}

// newCluster makes no request.
func newCluster(config *rest.Config, o clusterOptions) (*Cluster, error) {
	unfenced, fenced := o.kubeconfig.renew(rest.CopyConfig(config)), o.kubeconfig.renew(rest.CopyConfig(config))
	denials := newDenials(o.name, o.log)
	unfenced.Wrap(denials.watch)
	fenced.Wrap(denials.watch)
	fenced.Wrap(func(next http.RoundTripper) http.RoundTripper { return fence.Transport(next, o.fence) })
	c := &Cluster{Config: fenced, unfenced: unfenced, loaded: config, kubeconfig: o.kubeconfig, namespace: o.namespace,
		denials: denials, filled: make(chan struct{}), older: o.older}
	var err error
	if c.kinds, err = newKinds(o.kinds, o.scheme, o.namespace); err != nil {
		return nil, err
	}
	httpClient, err := rest.HTTPClientFor(fenced)
	if err != nil {
		return nil, err
	}
	// A probe of the API server does not queue behind other requests.
	unlimited := rest.CopyConfig(config)
	unlimited.RateLimiter, unlimited.QPS = nil, -1
	if c.discovery, err = discovery.NewDiscoveryClientForConfigAndClient(unlimited, httpClient); err != nil {
		return nil, err
	}
	if err := c.makeReviews(); err != nil {
		return nil, err
	}
	lazy, err := apiutil.NewDynamicRESTMapper(fenced, httpClient)
	if err != nil {
		return nil, err
	}
	c.mapper = knownFirst(lazy)

	forInformers := persistent(httpClient, o.log)
	cached, err := cache.New(fenced, cache.Options{
		HTTPClient: forInformers, Scheme: o.scheme, Mapper: c.mapper,
		NewInformer:                 informers{o.scheme, o.keeps, o.older}.newInformer,
		ByObject:                    c.kinds.byObject,
		DefaultTransform:            Transform,
		ReaderFailOnMissingInformer: true,
	})
	if err != nil {
		return nil, err
	}
	declared := &declaredCache{Cache: cached, kinds: c.kinds, everywhere: map[string]bool{}}
	c.Cache, c.declared = declared, declared

	base := client.Options{HTTPClient: httpClient, Scheme: o.scheme, Mapper: c.mapper, FieldOwner: o.fieldOwner}
	live, err := client.New(fenced, base)
	if err != nil {
		return nil, err
	}
	c.Live = pagedClient{live, listPage, declared}
	readsOwnWrites := true
	base.Cache = &client.CacheOptions{Reader: c.Cache, EnableReadYourWritesConsistency: &readsOwnWrites}
	consistent, err := client.New(fenced, base)
	if err != nil {
		return nil, err
	}
	c.Client = &cachedClient{Client: c.Live, consistent: consistent, cache: declared, kinds: c.kinds, synced: c.Synced,
		timeout: o.readTimeout}
	return c, nil
}

// makeReviews makes the client that asks about rights, also where this process is not the leader.
func (c *Cluster) makeReviews() error {
	unlimited := rest.CopyConfig(c.unfenced)
	unlimited.RateLimiter, unlimited.QPS = nil, -1
	reviews, err := authorizationclient.NewForConfig(unlimited)
	if err != nil {
		return err
	}
	c.reviews = reviews.SelfSubjectAccessReviews()
	return nil
}

// lacks returns a right that this process turned out to lack in the cluster, among those that count, and lacks still.
func (c *Cluster) lacks(ctx context.Context, counts func(right) bool) (right, bool) {
	return c.denials.first(ctx, c.reviews, counts)
}

// Loaded returns what the kubeconfig of the cluster says now, or why it says nothing yet.
func (c *Cluster) Loaded() (*rest.Config, error) {
	if c.kubeconfig == nil {
		return c.loaded, nil
	}
	config, _, err := c.kubeconfig.current()
	return config, err
}

// Synced reports whether the cache was filled. It stays filled, if stale, when the cluster becomes unreachable.
func (c *Cluster) Synced() bool {
	select {
	case <-c.filled:
		return true
	default:
		return false
	}
}

// Filled is closed when the cache was filled for the first time.
func (c *Cluster) Filled() <-chan struct{} { return c.filled }

// Ping reports whether the API server answers GET /readyz and lets this process read what it caches: nil if it does.
// How long to wait for it is up to ctx. The kubeconfig file is read again before that.
func (c *Cluster) Ping(ctx context.Context) error {
	c.kubeconfig.check()
	if err := c.answers(ctx); err != nil {
		return err
	}
	return c.mayRead(ctx)
}

// answers reports whether the API server answers GET /readyz: nil if it does, be it with 429, or with 403, which says
// that this identity may not ask for that. With 401 it says that it does not know who asks: then it answers nothing
// else either.
func (c *Cluster) answers(ctx context.Context) error {
	answer, err := c.discovery.RESTClient().Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Raw()
	switch {
	case err == nil, apierrors.IsForbidden(err), apierrors.IsTooManyRequests(err):
		return nil
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w: %w", reachability.ErrCredentialsRefused, c.kubeconfig.explainUnauthorized(err))
	case awaited(err) != nil:
		return awaited(err) // Without the request, whose address says nothing.
	case len(answer) > 0:
		return fmt.Errorf("the API server is not ready: %s", failedChecks(string(answer)))
	default:
		return err
	}
}

// ServerVersion asks for the version of the API server, such as v1.36.3. Every identity may do that by default.
func (c *Cluster) ServerVersion(ctx context.Context) (string, error) {
	answer, err := c.discovery.RESTClient().Get().AbsPath("/version").MaxRetries(0).Do(ctx).Raw()
	if err != nil {
		return "", fmt.Errorf("ask for the version of the API server: %w", err)
	}
	info := version.Info{}
	if err := json.Unmarshal(answer, &info); err != nil {
		return "", fmt.Errorf("read the version of the API server: %w", err)
	}
	return info.GitVersion, nil
}

// mayRead lists one object of each kind that decisions are made from. Whose rights were removed sees in its caches
// what was there before, for ever. An API server that lets nobody in particular ask for /readyz answers so to
// credentials that are missing altogether. An error of another kind says nothing about that.
func (c *Cluster) mayRead(ctx context.Context) error {
	for object := range c.kinds.byObject {
		f, err := formOf(object, c.kinds.scheme)
		if err != nil {
			return err
		}
		if f.of != asTyped {
			continue
		}
		mapping, err := c.mapper.RESTMapping(f.GroupKind(), f.Version)
		if err != nil {
			return fmt.Errorf("find the resource of %s: %w", f.Kind, err)
		}
		parts := []string{"apis", f.Group, f.Version}
		if f.Group == "" {
			parts = []string{"api", f.Version}
		}
		if c.namespace != "" && mapping.Scope.Name() == meta.RESTScopeNameNamespace {
			parts = append(parts, "namespaces", c.namespace)
		}
		request := c.discovery.RESTClient().Get().AbsPath(append(parts, mapping.Resource.Resource)...)
		answer, err := request.Param("limit", "1").SetHeader("Accept", acceptMetadataList).MaxRetries(0).Do(ctx).Raw()
		if missing, user, ok := parseDenied(answer); ok {
			return fmt.Errorf("%w: user %q may not %s", reachability.ErrCredentialsRefused, user, missing)
		}
		if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
			return fmt.Errorf("%w: list %s: %w", reachability.ErrCredentialsRefused, mapping.Resource.Resource, err)
		}
	}
	return nil
}

// acceptMetadataList asks for the metadata of objects instead of the whole.
const acceptMetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"

// failedChecks returns the names of what failed according to the answer of /readyz, which lists everything.
func failedChecks(answer string) string {
	var failed []string
	for line := range strings.Lines(answer) {
		if name, ok := strings.CutPrefix(line, "[-]"); ok {
			name, _, _ = strings.Cut(strings.TrimSpace(name), " ")
			failed = append(failed, name)
		}
	}
	if failed == nil {
		return "it does not say why"
	}
	return strings.Join(failed, ", ")
}

// makeInformers makes the informers of all cached kinds, without starting them, so that it does not depend on who
// asks for one first whether it is there.
func (c *Cluster) makeInformers(ctx context.Context) error {
	for object := range c.kinds.byObject {
		if _, err := c.Cache.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("make the informer of %T: %w", object, err)
		}
	}
	return nil
}

// run fills the cache and keeps it until ctx ends. It is called once, after makeInformers.
func (c *Cluster) run(ctx context.Context) {
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() {
		if c.Cache.WaitForCacheSync(ctx) {
			close(c.filled)
		}
	})
	// Its only error is that it was started before.
	_ = c.Cache.Start(ctx)
}

// missingObjects returns an error that names the kinds of which the cache has no list yet. It may be called after
// makeInformers.
func (c *Cluster) missingObjects(ctx context.Context) error {
	if c.Synced() {
		return nil
	}
	var missing []string
	for object := range c.kinds.byObject {
		informer, err := c.Cache.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return err
		}
		if f, err := formOf(object, c.kinds.scheme); err == nil && !informer.HasSynced() {
			missing = append(missing, f.String())
		}
	}
	slices.Sort(missing)
	text := "not listed yet: " + strings.Join(missing, ", ")
	if lacked, found := c.lacks(ctx, essential); found {
		text += "; this process may not " + lacked.String()
	}
	return errors.New(text)
}
