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

// Cluster is the access to one of the two clusters. Its clients check the fence before each write.
type Cluster struct {
	// Client reads the cached kinds from the cache, and waits until the cache contains what this process wrote through
	// Client. A read of another kind fails with ErrNotCached. Any kind can be written. Until the cache is filled, reads
	// and writes of cached kinds fail with ErrNotSynced.
	Client client.Client
	// Live reads from and writes to the API server directly. Client may not yet see what Live writes of the cached kinds.
	Live client.Client
	// Cache contains the informers of the cached kinds, and refuses other kinds with ErrNotCached. The setup function adds
	// indexes to it. Reads from it do not wait for this process's own writes.
	Cache cache.Cache
	// Config is the configuration for clients of the cluster. Each client made from it checks the fence before it writes.
	Config *rest.Config

	// unfenced is the configuration for writes that do not require leadership: of the Lease and of events.
	unfenced *rest.Config
	// loaded is the configuration as read from the kubeconfig file at start. kubeconfig renews the credentials of all
	// clients.
	loaded     *rest.Config
	kubeconfig *kubeconfig

	// denials are the rights that the API server denied to this process.
	denials *denials

	mapper    meta.RESTMapper
	discovery *discovery.DiscoveryClient
	probe     client.Reader // does not queue behind other requests
	kinds     kinds
	declared  *declaredCache
	namespace string        // the only cached one; empty means all
	filled    chan struct{} // closed when the cache was filled for the first time
	// onOlderData is as in clusterOptions.
	onOlderData func(error)
}

type clusterOptions struct {
	// name is "control" or "target".
	name string
	// kubeconfig is nil if the credentials need not be renewed.
	kubeconfig  *kubeconfig
	scheme      *runtime.Scheme
	kinds       []Kind
	namespace   string
	keep        objectFilter // selects the objects of the kinds that are cached; nil means all
	readTimeout time.Duration
	fieldOwner  string
	fence       *fence.Fence
	log         logr.Logger
	// onOlderData is called with an error when the cluster was restored to older data. It may be nil.
	onOlderData func(error)
}

// newCluster builds a Cluster. It makes no request.
func newCluster(config *rest.Config, o clusterOptions) (*Cluster, error) {
	unfenced, fenced := o.kubeconfig.renew(rest.CopyConfig(config)), o.kubeconfig.renew(rest.CopyConfig(config))
	denials := newDenials(o.name, config.Host, o.log)
	unfenced.Wrap(denials.watch)
	fenced.Wrap(denials.watch)
	fenced.Wrap(func(next http.RoundTripper) http.RoundTripper { return fence.Transport(next, o.fence) })
	c := &Cluster{Config: fenced, unfenced: unfenced, loaded: config, kubeconfig: o.kubeconfig, namespace: o.namespace,
		denials: denials, filled: make(chan struct{}), onOlderData: o.onOlderData}
	var err error
	if c.kinds, err = newKinds(o.kinds, o.scheme, o.namespace); err != nil {
		return nil, err
	}
	httpClient, err := rest.HTTPClientFor(fenced)
	if err != nil {
		return nil, err
	}
	// A probe of the API server must not queue behind other requests.
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
	c.Live = pagedClient{live, listPage}
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

// makeReviews creates the clients that ask about the rights of this process. They work also without leadership.
func (c *Cluster) makeReviews() error {
	unlimited := rest.CopyConfig(c.unfenced)
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

// Loaded returns the configuration in the cluster's kubeconfig file as it is now. It fails if the file has not been
// usable yet.
func (c *Cluster) Loaded() (*rest.Config, error) {
	if c.kubeconfig == nil {
		return c.loaded, nil
	}
	config, _, err := c.kubeconfig.current()
	return config, err
}

// Synced reports whether the cache was filled once. It stays filled, although outdated, when the cluster becomes
// unreachable.
func (c *Cluster) Synced() bool {
	select {
	case <-c.filled:
		return true
	default:
		return false
	}
}

// Filled returns a channel that is closed when the cache was filled for the first time.
func (c *Cluster) Filled() <-chan struct{} { return c.filled }

// Ping returns nil if the API server answers GET /readyz and lets this process read the kinds that it caches. It waits
// as long as ctx allows. It reads the kubeconfig file again first.
func (c *Cluster) Ping(ctx context.Context) error {
	c.kubeconfig.check()
	if err := c.answers(ctx); err != nil {
		return err
	}
	return c.mayRead(ctx)
}

// answers returns nil if the API server answers GET /readyz. The status 429 counts as an answer. The status 403 counts
// too, because the API server denies this identity only that path. With 401 the API server does not know the identity,
// and will not answer any other request either.
func (c *Cluster) answers(ctx context.Context) error {
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

// ServerVersion returns the version of the API server, such as v1.36.3. By default every identity may read it.
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

// mayRead lists one object of each kind from which controllers decide. A process that lost a right would otherwise
// decide from a cache that no longer changes. This also detects missing credentials where the API server lets anonymous
// clients read /readyz. Errors other than a refusal are ignored.
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

// metadataListOf returns an empty list of the metadata of a kind.
func metadataListOf(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	return list
}

// failedChecks returns the names of the failed checks in an answer of /readyz, which lists all checks.
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

// makeInformers creates the informers of all cached kinds without starting them. Otherwise a kind's informer would
// exist only after its first use.
func (c *Cluster) makeInformers(ctx context.Context) error {
	for object := range c.kinds.byObject {
		if _, err := c.Cache.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("create the informer of %T: %w", object, err)
		}
	}
	return nil
}

// run fills the cache and keeps it up to date until ctx ends. It is called once, after makeInformers.
func (c *Cluster) run(ctx context.Context) {
	var waiting sync.WaitGroup
	defer waiting.Wait()
	waiting.Go(func() {
		if c.Cache.WaitForCacheSync(ctx) {
			close(c.filled)
		}
	})
	// Start only fails if it was called before.
	_ = c.Cache.Start(ctx)
}

// missingObjects returns an error that names the kinds that have not been listed yet. It may be called after
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
	if denied, found := c.denials.firstMissing(ctx, essential); found {
		text += "; this process may not " + denied.String()
	}
	return errors.New(text)
}
