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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"machinist.dev/machinist/internal/platform/process/fence"
	"machinist.dev/machinist/internal/platform/reachability"
)

// Cluster provides access to the control cluster or the target cluster. The clients in its fields check the fence
// before each write.
type Cluster struct {
	// Client reads the cached kinds from the cache, and waits until the cache contains its own writes. A read of
	// another kind fails with ErrNotCached. Writes are possible for every kind. Until the cache is filled, reads and
	// writes of cached kinds fail with ErrNotSynced.
	Client client.Client
	// LiveClient reads and writes without a cache. After a write with LiveClient, a read with Client may still return
	// the old object.
	LiveClient client.Client
	// Cache contains the informers of the cached kinds. Other kinds fail with ErrNotCached. The setup function adds
	// indexes to this cache. A read from Cache does not wait for this process's own writes.
	Cache cache.Cache
	// Config is the configuration for other clients of the cluster. Clients with this configuration check the fence
	// before each write.
	Config *rest.Config

	// unfencedConfig is the configuration for writes without leadership: those of the Lease and of events.
	unfencedConfig *rest.Config
	// startupConfig is the kubeconfig at startup. kubeconfig reads the file again, so that all clients use renewed
	// credentials.
	startupConfig *rest.Config
	kubeconfig    *kubeconfig

	denials *denials

	mapper      meta.RESTMapper
	discovery   *discovery.DiscoveryClient
	probe       client.Reader // a client whose requests do not queue behind other requests
	kinds       kinds
	declared    *declaredCache
	namespace   string        // the only cached namespace; empty means all
	cacheFilled chan struct{} // closed when the cache was filled for the first time
	onOlderData func(error)
}

type clusterOptions struct {
	name        string
	kubeconfig  *kubeconfig
	scheme      *runtime.Scheme
	kinds       []Kind
	namespace   string
	keep        objectFilter // selects the objects of the kinds that are cached; nil means all
	readTimeout time.Duration
	fieldOwner  string
	fence       *fence.Fence
	log         logr.Logger
	// onOlderData is called when the cluster was restored to older data. It may be nil.
	onOlderData func(error)
}

func newCluster(config *rest.Config, o clusterOptions) (*Cluster, error) {
	unfenced, fenced := o.kubeconfig.renew(rest.CopyConfig(config)), o.kubeconfig.renew(rest.CopyConfig(config))
	denials := newDenials(o.name, config.Host, o.log)
	unfenced.Wrap(denials.watch)
	fenced.Wrap(denials.watch)
	fenced.Wrap(func(next http.RoundTripper) http.RoundTripper { return fence.Transport(next, o.fence) })
	c := &Cluster{Config: fenced, unfencedConfig: unfenced, startupConfig: config, kubeconfig: o.kubeconfig,
		namespace: o.namespace,
		denials:   denials, cacheFilled: make(chan struct{}), onOlderData: o.onOlderData}
	var err error
	if c.kinds, err = newKinds(o.kinds, o.scheme, o.namespace); err != nil {
		return nil, err
	}
	httpClient, err := rest.HTTPClientFor(fenced)
	if err != nil {
		return nil, err
	}
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
	c.mapper = c.kinds.mapper(lazy)

	cached, err := cache.New(fenced, cache.Options{
		HTTPClient: httpClient, Scheme: o.scheme, Mapper: c.mapper,
		NewInformer:                 informers{o.scheme, o.keep, o.onOlderData}.newInformer,
		ByObject:                    c.kinds.byObject,
		DefaultTransform:            NewTransform(),
		ReaderFailOnMissingInformer: true,
	})
	if err != nil {
		return nil, err
	}
	declared := &declaredCache{Cache: cached, kinds: c.kinds}
	c.Cache, c.declared = declared, declared

	base := client.Options{HTTPClient: httpClient, Scheme: o.scheme, Mapper: c.mapper, FieldOwner: o.fieldOwner}
	if c.probe, err = client.New(unlimited, base); err != nil {
		return nil, err
	}
	live, err := client.New(fenced, base)
	if err != nil {
		return nil, err
	}
	c.LiveClient = pagedClient{live, listPage}
	readsOwnWrites := true
	base.Cache = &client.CacheOptions{Reader: c.Cache, EnableReadYourWritesConsistency: &readsOwnWrites}
	consistent, err := client.New(fenced, base)
	if err != nil {
		return nil, err
	}
	c.Client = &cachedClient{Client: c.LiveClient, consistent: consistent, cache: declared, kinds: c.kinds,
		synced:  c.IsSynced,
		timeout: o.readTimeout}
	return c, nil
}

// makeReviews creates the clients that ask the cluster about the rights of this process. These clients work without
// leadership.
func (c *Cluster) makeReviews() error {
	unlimited := rest.CopyConfig(c.unfencedConfig)
	unlimited.RateLimiter, unlimited.QPS = nil, -1
	rights, err := authorizationclient.NewForConfig(unlimited)
	if err != nil {
		return err
	}
	users, err := authenticationclient.NewForConfig(unlimited)
	if err != nil {
		return err
	}
	c.denials.rights, c.denials.users = rights.SelfSubjectAccessReviews(), users.SelfSubjectReviews()
	return nil
}

// LoadedConfig returns the current configuration in the kubeconfig file. It returns an error if the file has never
// been usable.
func (c *Cluster) LoadedConfig() (*rest.Config, error) {
	if c.kubeconfig == nil {
		return c.startupConfig, nil
	}
	config, _, err := c.kubeconfig.current()
	return config, err
}

// IsSynced reports whether the cache has been filled. The cache stays filled when the cluster becomes unreachable,
// but its content becomes outdated.
func (c *Cluster) IsSynced() bool {
	select {
	case <-c.cacheFilled:
		return true
	default:
		return false
	}
}

// CacheFilled returns a channel that is closed when the cache has been filled for the first time.
func (c *Cluster) CacheFilled() <-chan struct{} { return c.cacheFilled }

// Ping returns nil if the API server answers GET /readyz and lets this process read the cached kinds. Ping stops
// waiting when ctx ends. Ping first reads the kubeconfig file again.
func (c *Cluster) Ping(ctx context.Context) error {
	c.kubeconfig.check()
	if err := c.checkReadyz(ctx); err != nil {
		return err
	}
	return c.mayRead(ctx)
}

// checkReadyz returns nil if the API server answers GET /readyz. The statuses 429 and 403 count as answers: 403 only
// refuses access to this path. The status 401 is an error, because the API server then rejects these credentials for
// every request.
func (c *Cluster) checkReadyz(ctx context.Context) error {
	answer, err := c.discovery.RESTClient().Get().AbsPath("/readyz").MaxRetries(0).Do(ctx).Raw()
	switch {
	case err == nil, apierrors.IsForbidden(err), apierrors.IsTooManyRequests(err):
		return nil
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w: %w", reachability.ErrCredentialsRefused, c.kubeconfig.explainUnauthorized(err))
	case missingKubeconfig(err) != nil:
		return missingKubeconfig(err) // The error of the request would show a placeholder address.
	case len(answer) > 0:
		return fmt.Errorf("the API server is not ready: %s", failedChecks(string(answer)))
	default:
		return err
	}
}

// ServerVersion returns the version of the API server, such as v1.36.3. By default, every client may read this version.
func (c *Cluster) ServerVersion(ctx context.Context) (string, error) {
	answer, err := c.discovery.RESTClient().Get().AbsPath("/version").MaxRetries(0).Do(ctx).Raw()
	if err != nil {
		return "", fmt.Errorf("get the version of the API server: %w", err)
	}
	info := version.Info{}
	if err := json.Unmarshal(answer, &info); err != nil {
		return "", fmt.Errorf("parse the version of the API server: %w", err)
	}
	return info.GitVersion, nil
}

// mayRead checks whether this process may list each kind on which controllers depend. A process without this right
// would use a cache that no longer changes. The check also detects missing credentials if anonymous clients may read
// /readyz. mayRead returns an error only if the API server refuses a request with the status 401 or 403.
func (c *Cluster) mayRead(ctx context.Context) error {
	for gvk, of := range c.kinds.declared {
		if of != asTyped {
			continue
		}
		err := c.probe.List(ctx, metadataListOf(gvk), client.InNamespace(c.namespace), client.Limit(1))
		if apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err) {
			return fmt.Errorf("%w: list objects of kind %s: %w", reachability.ErrCredentialsRefused, gvk.Kind, err)
		}
	}
	return nil
}

func metadataListOf(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	return list
}

func failedChecks(answer string) string {
	var failed []string
	for line := range strings.Lines(answer) {
		if name, ok := strings.CutPrefix(line, "[-]"); ok {
			name, _, _ = strings.Cut(strings.TrimSpace(name), " ")
			failed = append(failed, name)
		}
	}
	if failed == nil {
		return "the answer names no failed check"
	}
	return strings.Join(failed, ", ")
}

// makeInformers creates the informers of all cached kinds without starting them. By default, the first use of a kind
// would create its informer.
func (c *Cluster) makeInformers(ctx context.Context) error {
	for object := range c.kinds.byObject {
		if _, err := c.Cache.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("create the informer of %T: %w", object, err)
		}
	}
	return nil
}

func (c *Cluster) run(ctx context.Context) {
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() {
		if c.Cache.WaitForCacheSync(ctx) {
			close(c.cacheFilled)
		}
	})
	// Start returns an error only if it was called before.
	_ = c.Cache.Start(ctx)
}

// missingObjects returns an error with the kinds that have not been listed yet. Call it after makeInformers.
func (c *Cluster) missingObjects(ctx context.Context) error {
	if c.IsSynced() {
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
	if denied, found := c.denials.firstMissing(ctx, essential); found {
		text += "; this process may not " + denied.String()
	}
	return errors.New(text)
}
