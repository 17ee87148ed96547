package certificate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"machinist.dev/machinist/internal/platform/expiry"
)

// Options are the dependencies and settings of a Keeper. All fields except Lifetimes are required.
type Options struct {
	// Secret is the name of the Secret with the certificate. The Keeper creates the Secret if it does not exist.
	Secret client.ObjectKey
	// Configuration is the name of the ValidatingWebhookConfiguration. The installer of the webhooks creates it,
	// possibly after the Keeper starts. If Mutating is true, a MutatingWebhookConfiguration with the same name is
	// maintained too.
	Configuration string
	Mutating      bool
	// Hosts are the DNS names or IP addresses at which API servers reach the webhooks.
	Hosts []string
	// Writer writes to the control cluster. Only the leader uses it.
	Writer client.Client
	Clock  clock.PassiveClock
	Log    logr.Logger
	// Lifetimes of certificates. The default is DefaultLifetimes.
	Lifetimes Lifetimes
}

// Keeper maintains one serving certificate.
type Keeper struct {
	Options
	cache   cache.Cache
	reader  client.Reader // reads from the cache
	writes  *rate.Limiter
	serving atomic.Pointer[tls.Certificate]
	// hasCertificate is closed when the process has its first serving certificate.
	hasCertificate chan struct{}
	setFirst       sync.Once
	// trusted becomes true when the configuration contains the authority of the certificate.
	trusted atomic.Bool
	// nextAuthority is the next authority as PEM data. bundledSince is when this process first saw it in all bundles.
	nextAuthority string
	bundledSince  time.Time
}

// A renewal takes several consecutive writes. If another program reverts each write, the Keeper writes only once per
// writePeriod.
const (
	writePeriod = 10 * time.Second
	writeBurst  = 10
)

// firstWait is how long a TLS handshake waits for the first certificate. A starting process accepts connections before
// it has read the Secret. If a connection fails, the API server admits the object without the webhook.
const firstWait = 2 * time.Second

// New returns a Keeper. Call Register to start it with a manager.
func New(o Options) *Keeper {
	if o.Lifetimes == (Lifetimes{}) {
		o.Lifetimes = DefaultLifetimes()
	}
	return &Keeper{Options: o, hasCertificate: make(chan struct{}),
		writes: rate.NewLimiter(rate.Every(writePeriod), writeBurst)}
}

// Register adds the Keeper to a manager. The process does not wait until the Keeper's cache is filled. If the process
// lacks the permission to read the Secret and the configurations, it serves no webhook but does all its other work.
func (k *Keeper) Register(mgr manager.Manager) error {
	only := func(name string) fields.Selector { return fields.OneTermEqualSelector(metav1.ObjectNameField, name) }
	var err error
	cached := map[client.Object]cache.ByObject{
		&corev1.Secret{}: {Namespaces: map[string]cache.Config{k.Secret.Namespace: {FieldSelector: only(k.Secret.Name)}}},
	}
	for _, kind := range k.kinds() {
		cached[kind] = cache.ByObject{Field: only(k.Configuration)}
	}
	k.cache, err = cache.New(mgr.GetConfig(), cache.Options{
		Scheme: mgr.GetScheme(), HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper(), ByObject: cached,
	})
	if err != nil {
		return fmt.Errorf("create the cache for the certificate of webhooks: %w", err)
	}
	if err := mgr.Add(presenter{k}); err != nil {
		return err
	}
	k.reader = k.cache
	c, err := controller.NewTyped("webhook-certificate", mgr,
		controller.Options{Reconciler: k, MaxConcurrentReconciles: 1})
	if err != nil {
		return err
	}
	for _, kind := range append([]client.Object{&corev1.Secret{}}, k.kinds()...) {
		if err := c.Watch(source.Kind(k.cache, kind, handler.EnqueueRequestsFromMapFunc(
			func(context.Context, client.Object) []reconcile.Request { return k.request() }))); err != nil {
			return err
		}
	}
	// A missing Secret triggers no event. Enqueue the first request here.
	return c.Watch(source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		q.Add(k.request()[0])
		return nil
	}))
}

func (k *Keeper) request() []reconcile.Request {
	return []reconcile.Request{{NamespacedName: k.Secret}}
}

// Reconcile executes the next step of the plan.
func (k *Keeper) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	secret := &corev1.Secret{}
	if err := k.reader.Get(ctx, k.Secret, secret); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	configurations, err := k.configurations(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	o := observed{data: secret.Data, now: k.Clock.Now()}
	for _, webhook := range webhooksOf(configurations) {
		o.bundles = append(o.bundles, webhook.client.CABundle)
	}
	o.bundledSince = k.nextBundledSince(o)
	// A plan may generate keys, which is expensive. Check the rate limit of writes first.
	if k.writes.TokensAt(o.now) < 1 {
		k.Log.Info("Another program repeatedly changes the certificate of the webhook: delaying the next correction", "delay",
			writePeriod.String(), "secret", k.Secret, "configuration", k.Configuration)
		return reconcile.Result{RequeueAfter: writePeriod}, nil
	}
	p, err := plan(o, k.Hosts, k.Lifetimes)
	if err != nil {
		return reconcile.Result{}, err
	}
	if p.data == nil && p.bundles == nil {
		return reconcile.Result{RequeueAfter: p.recheckAfter}, nil
	}
	k.writes.AllowN(o.now, 1)
	switch {
	case p.data != nil:
		return reconcile.Result{}, k.writeSecret(ctx, secret, p.data)
	default:
		return reconcile.Result{}, k.writeBundles(ctx, configurations, p.bundles)
	}
}

// nextBundledSince returns the time when this process first saw that all bundles contain the next authority.
func (k *Keeper) nextBundledSince(o observed) time.Time {
	next := string(o.data[nextCACert])
	cert, err := parse([]byte(next))
	bundled := err == nil && len(o.bundles) > 0
	for _, bundle := range o.bundles {
		bundled = bundled && slices.ContainsFunc(authorities(bundle), cert.Equal)
	}
	switch {
	case !bundled:
		k.nextAuthority, k.bundledSince = "", time.Time{}
	case k.nextAuthority != next:
		k.nextAuthority, k.bundledSince = next, o.now
	}
	return k.bundledSince
}

func (k *Keeper) writeSecret(ctx context.Context, seen *corev1.Secret, data map[string][]byte) error {
	if seen.ResourceVersion == "" {
		err := k.Writer.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: k.Secret.Namespace, Name: k.Secret.Name},
			Type:       corev1.SecretTypeOpaque, Data: data,
		})
		if apierrors.IsAlreadyExists(err) {
			// The cache is stale. An event follows.
			return nil
		}
		return err
	}
	k.Log.Info("Writing the certificate of the webhook", "secret", k.Secret)
	secret := seen.DeepCopy()
	secret.Data = data
	return ignoreConflict(k.Writer.Patch(ctx, secret,
		client.MergeFromWithOptions(seen, client.MergeFromWithOptimisticLock{})))
}

// ignoreConflict drops conflicts. The conflicting write triggers another reconciliation.
func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// GetCertificate returns the certificate for a TLS handshake. It waits up to firstWait for the first certificate.
func (k *Keeper) GetCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if cert := k.serving.Load(); cert != nil {
		return cert, nil
	}
	ctx, cancel := context.WithTimeout(hello.Context(), firstWait)
	defer cancel()
	select {
	case <-k.hasCertificate:
		return k.serving.Load(), nil
	case <-ctx.Done():
		return nil, k.noCertificate()
	}
}

func (k *Keeper) noCertificate() error {
	return fmt.Errorf("the Secret %s does not contain a certificate yet", k.Secret)
}

// Lifetime returns the period during which the presented certificate is valid.
func (k *Keeper) Lifetime() expiry.Lifetime {
	if cert := k.serving.Load(); cert != nil && cert.Leaf != nil {
		return expiry.Lifetime{Begin: cert.Leaf.NotBefore, End: cert.Leaf.NotAfter}
	}
	return expiry.Lifetime{}
}

// Ready is a readiness probe. Ready succeeds when there is a certificate and the webhook configuration trusts it.
// Before that, API servers cannot call the webhook and refuse objects. Later changes of the configuration do not
// affect readiness, because the leader corrects them.
func (k *Keeper) Ready(r *http.Request) error {
	if k.serving.Load() == nil {
		return k.noCertificate()
	}
	if k.trusted.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	if err := k.checkTrust(ctx); err != nil {
		return err
	}
	k.trusted.Store(true)
	return nil
}

// checkTrust returns an error while a webhook does not trust the certificate. Without a configuration no webhook is
// called, so the result is nil.
func (k *Keeper) checkTrust(ctx context.Context) error {
	secret := &corev1.Secret{}
	if err := k.reader.Get(ctx, k.Secret, secret); err != nil {
		return err
	}
	authority, err := parse(secret.Data[caCert])
	if err != nil {
		return fmt.Errorf("%s of the Secret %s: %w", caCert, k.Secret, err)
	}
	configurations, err := k.configurations(ctx)
	if err != nil {
		return err
	}
	for _, webhook := range webhooksOf(configurations) {
		if !slices.ContainsFunc(authorities(webhook.client.CABundle), authority.Equal) {
			return fmt.Errorf("the webhook %s of the configuration %s does not trust the certificate yet", webhook.name,
				k.Configuration)
		}
	}
	return nil
}

// presenter runs the cache and watches the Secret in every replica.
type presenter struct{ *Keeper }

// NeedLeaderElection returns false because all replicas serve.
func (presenter) NeedLeaderElection() bool { return false }

func (p presenter) Start(ctx context.Context) error {
	informer, err := p.cache.GetInformer(ctx, &corev1.Secret{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch the certificate of webhooks: %w", err)
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { p.present(object) },
		UpdateFunc: func(_, object any) { p.present(object) },
	}); err != nil {
		return fmt.Errorf("watch the certificate of webhooks: %w", err)
	}
	for _, kind := range p.kinds() {
		if _, err := p.cache.GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch the configuration of webhooks: %w", err)
		}
	}
	return p.cache.Start(ctx)
}

// present loads the certificate in the Secret into the webhook server. If this certificate is invalid, the server
// continues to use the previous certificate.
func (p presenter) present(object any) {
	secret, ok := object.(*corev1.Secret)
	if !ok {
		return
	}
	cert, err := tls.X509KeyPair(secret.Data[certKey], secret.Data[privateKey])
	if err != nil {
		// Do not log err: it could contain parts of the key.
		p.Log.Error(errors.New("the certificate and the key do not match or are invalid"),
			"Cannot use the certificate in the Secret of the webhook: still presenting the previous one", "secret", p.Secret)
		return
	}
	p.serving.Store(&cert)
	p.setFirst.Do(func() { close(p.hasCertificate) })
}
