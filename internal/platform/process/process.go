package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"machinist.dev/machinist/internal/platform/process/fence"
	"machinist.dev/machinist/internal/platform/reachability"
	"machinist.dev/machinist/internal/platform/version"
)

// Options contains the settings that a program defines in its code. Users define the settings in Config.
type Options struct {
	// Scheme contains all typed objects that the process uses. Required.
	Scheme *runtime.Scheme
	// ControlKinds are the kinds that the process caches from the control cluster, and TargetKinds are the kinds that
	// it caches from the target cluster. Other kinds are not cached. If the process has no target cluster,
	// TargetKinds has no effect.
	ControlKinds []Kind
	TargetKinds  []Kind
	// NoClusterID is set for a process that does not manage instances. Such a process neither determines nor records
	// the cluster ID.
	NoClusterID bool
	// RequiredKinds contains the kinds that the control cluster must serve before Run continues. Default:
	// ControlKinds.
	RequiredKinds []schema.GroupVersionKind
	// Controller contains defaults for all controllers of the manager. New sets its CacheSyncTimeout.
	Controller config.Controller
	// WebhookServer serves admission webhooks. WebhookServer starts if the setup function calls
	// Manager().GetWebhookServer.
	WebhookServer webhook.Server
	// ReadTimeout is how long a cached read waits for this process's own writes. Default: 5 s.
	ReadTimeout time.Duration
	// Logger is the logger of the process. Default: controller-runtime's.
	Logger logr.Logger
	// Registerer registers the metrics. Default: controller-runtime's.
	Registerer prometheus.Registerer
	// Clock replaces the real clock in the fence, for tests. Default: the real clock.
	Clock clock.WithTickerAndDelayedExecution
	// Flush sends queued data such as traces. The function is called when all work has ended, and must return within
	// a second. Optional.
	Flush func()
	// Exit ends the process after it lost its Lease. Default: os.Exit.
	Exit func(code int)
}

// Process runs the controllers of a program, with the clients, caches, webhooks and leader election that they need.
type Process struct {
	config    Config
	options   Options
	log       logr.Logger
	clock     clock.WithTickerAndDelayedExecution
	namespace string // namespace of the Lease and of the record of the cluster ID

	control *Cluster
	target  *Cluster
	fence   *fence.Fence
	lock    *fence.Lock
	manager manager.Manager
	core    coreclient.CoreV1Interface
	probes  *probes
	events  record.EventBroadcaster
	gauge   prometheus.Gauge
	watch   *reachability.Watch

	olderData chan error

	waitingFor atomic.Pointer[string]
	identity   atomic.Pointer[identity]
}

const controllerNeverTimesOut = 10 * 365 * 24 * time.Hour

// New creates a Process. New sends no request to a cluster. New returns an error for an invalid Config, a kubeconfig
// that cannot be loaded, a kind that cannot be cached, or an address that cannot be bound.
func New(c *Config, o Options) (*Process, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if o.Logger.GetSink() == nil {
		o.Logger = ctrllog.Log
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Exit == nil {
		o.Exit = os.Exit
	}
	if o.Registerer == nil {
		o.Registerer = ctrlmetrics.Registry
	}
	o.ReadTimeout = cmp.Or(o.ReadTimeout, 5*time.Second)
	p := &Process{config: *c, options: o, log: o.Logger.WithName("process"), clock: o.Clock, fence: fence.AlwaysOpen(),
		olderData: make(chan error, 1)}
	if c.LeaderElect {
		p.fence = fence.New(c.RenewDeadline, o.Clock)
	}
	p.probes, p.events = newProbes(p.log), newBroadcaster()
	for _, step := range []func() error{p.connect, p.makeLock, p.makeManager, p.addMetrics, p.makeWatch,
		p.addProbes} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *Process) connect() error {
	c := &p.config
	var err error
	if p.namespace, err = c.leaderElectionNamespace(); err != nil {
		return err
	}
	build := func(flag, kubeconfig string, qps float32, burst int, kinds []Kind, namespace string,
		keep objectFilter) (*Cluster, error) {
		config, file, err := restConfig(flag, kubeconfig, c.Name, qps, burst, p.log)
		if err != nil {
			return nil, err
		}
		name, _, _ := strings.Cut(flag, "-")
		return newCluster(config, clusterOptions{
			name: name, kubeconfig: file, scheme: p.options.Scheme, kinds: kinds, namespace: namespace, keep: keep,
			readTimeout: p.options.ReadTimeout, fieldOwner: c.Name, fence: p.fence, log: p.log,
			onOlderData: func(err error) { p.reportOlderData(name, err) },
		})
	}
	if p.control, err = build("control-kubeconfig", c.ControlKubeconfig, c.ControlQPS, c.ControlBurst,
		p.options.ControlKinds, c.Namespace, inShard(c.Shard())); err != nil {
		return fmt.Errorf("control cluster: %w", err)
	}
	if c.TargetKubeconfig != NoCluster {
		if p.target, err = build("target-kubeconfig", c.TargetKubeconfig, c.TargetQPS, c.TargetBurst, p.options.TargetKinds,
			"", p.nodesOfShard(c.Shard())); err != nil {
			return fmt.Errorf("target cluster: %w", err)
		}
	}
	if p.core, err = coreclient.NewForConfig(p.control.unfencedConfig); err != nil {
		return fmt.Errorf("control cluster: %w", err)
	}
	return nil
}

func (p *Process) makeLock() error {
	if !p.config.LeaderElect {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find the host name for the holder identity of the Lease: %w", err)
	}
	config := p.control.kubeconfig.renew(leaseConfig(p.control.startupConfig, p.config.RenewDeadline))
	config.Wrap(p.control.denials.watch)
	leases, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create the client for Leases: %w", err)
	}
	lease := func(name, holder string) *fence.Lease {
		return &fence.Lease{Client: leases.Leases(p.namespace), Namespace: p.namespace, Name: name, Holder: holder,
			Duration: p.config.LeaseDuration, Labels: leaseLabels(p.config.Name), IsFirst: p.firstToHold(name)}
	}
	shard, name := p.config.Shard(), p.config.leaseName()
	own := lease(shard.LeaseName(name), host+"_"+string(uuid.NewUUID()))
	if shard.IsUndivided() {
		p.lock = p.fence.Guard(own)
	} else {
		p.lock = p.fence.Guard(fence.NewJoint(own, lease(name, shard.Group())))
	}
	return nil
}

// leaseLabels returns the labels of a Lease. The command line reads the program and the version of the holder from
// these labels.
func leaseLabels(program string) map[string]string {
	labels := map[string]string{"app.kubernetes.io/part-of": "machinist", "app.kubernetes.io/name": program}
	// A version such as v1.2.3+dirty is not a valid label value.
	if value := strings.ReplaceAll(version.Release(), "+", "_"); len(validation.IsValidLabelValue(value)) == 0 {
		labels["app.kubernetes.io/version"] = value
	}
	return labels
}

func (p *Process) makeManager() error {
	c, controllers := &p.config, p.options.Controller
	controllers.CacheSyncTimeout = controllerNeverTimesOut
	forWork := max(c.GracefulShutdownTimeout-releaseWait, c.GracefulShutdownTimeout/2)
	metrics := metricsserver.Options{BindAddress: c.MetricsBindAddress, SecureServing: c.MetricsSecure,
		CertDir: c.MetricsCertDir}
	if isDisabled(c.MetricsBindAddress) {
		metrics.BindAddress = "0"
	}
	if c.MetricsSecure {
		metrics.FilterProvider = filterMetrics(p.clock)
	}
	options := manager.Options{
		Scheme:         p.options.Scheme,
		Logger:         p.options.Logger.WithSink(endingSink{p.options.Logger.GetSink()}),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return p.control.mapper, nil },
		NewCache:       func(*rest.Config, cache.Options) (cache.Cache, error) { return startedCache{p.control.Cache}, nil },
		NewClient:      func(*rest.Config, client.Options) (client.Client, error) { return p.control.Client, nil },

		LeaderElection:   c.LeaderElect,
		LeaderElectionID: c.leaseName(),
		LeaseDuration:    &c.LeaseDuration,
		RenewDeadline:    &c.RenewDeadline,
		RetryPeriod:      &c.RetryPeriod,
		// Run releases the Lease when all work has ended.
		LeaderElectionReleaseOnCancel: false,

		HealthProbeBindAddress:  "0",
		PprofBindAddress:        c.PprofBindAddress,
		Metrics:                 metrics,
		WebhookServer:           p.options.WebhookServer,
		BaseContext:             p.fence.Context,
		GracefulShutdownTimeout: &forWork,
		Controller:              controllers,
	}
	if p.lock != nil {
		options.LeaderElectionResourceLockInterface = p.lock
	}
	m, err := manager.New(p.control.unfencedConfig, options)
	if err != nil {
		return fmt.Errorf("create the manager: %w", err)
	}
	p.manager = ownManager{Manager: m, probes: p.probes, events: p.events}
	return nil
}

// startedCache prevents the manager from starting the cache, because Run starts it. A manager cannot be stopped while
// it waits for a cache to fill. The cache must also outlive all reconcilers.
type startedCache struct{ cache.Cache }

func (startedCache) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (p *Process) addProbes() error {
	control := &cachedPing{ping: func(ctx context.Context) error {
		if err := p.control.checkReadyz(ctx); err != nil {
			return err
		}
		if missing, found := p.control.denials.firstMissing(ctx, essential); found {
			return notReady("this process may not " + missing.String())
		}
		return nil
	}}
	target := &cachedPing{ping: func(ctx context.Context) error {
		if err := p.target.checkReadyz(ctx); err != nil {
			return err
		}
		if missing, found := p.target.denials.firstMissing(ctx, func(right) bool { return true }); found {
			return notReady("reachable, but this process may not " + missing.String())
		}
		return nil
	}}
	checks := []error{
		p.probes.add(p.probes.health, "lease", func(*http.Request) error {
			select {
			case <-p.fence.LeaseLost():
				return notReady("lost")
			default:
				return nil
			}
		}),
		p.probes.add(p.probes.ready, "started", func(*http.Request) error {
			if what := p.waitingFor.Load(); what != nil {
				return notReady("waiting for " + *what)
			}
			return nil
		}),
		p.probes.add(p.probes.ready, "control", func(r *http.Request) error {
			return forProbes(control.reachable(r.Context()))
		}),
	}
	p.probes.note("target", func(r *http.Request) string {
		if p.target == nil {
			return "none"
		}
		switch err := target.reachable(r.Context()); {
		case err != nil:
			var shown notReady
			errors.As(forProbes(err), &shown)
			return string(shown)
		case !p.target.IsSynced():
			return "reachable, filling the cache"
		default:
			return "reachable"
		}
	})
	p.probes.note("frozen", func(*http.Request) string {
		if _, message := p.watch.StopReason(); message != "" {
			return message
		}
		return "no"
	})
	p.probes.note("cluster ID", func(*http.Request) string {
		switch {
		case p.options.NoClusterID:
			return "not needed"
		case p.identity.Load() == nil:
			return "not known yet"
		case p.IdentityMismatch() != nil:
			return "not the recorded one: orphaned instances are not removed"
		default:
			return "as recorded"
		}
	})
	return errors.Join(append(checks, p.probes.listen(p.config.HealthProbeBindAddress))...)
}

func forProbes(err error) error {
	var shown notReady
	switch missing, isMissing := errors.AsType[*noKubeconfigError](err); {
	case err == nil || errors.As(err, &shown):
		return err
	case isMissing:
		return errors.Join(notReady(missing.forProbes()), err)
	case errors.Is(err, reachability.ErrCredentialsRefused):
		return errors.Join(notReady("the API server refuses the credentials of this process"), err)
	default:
		return errors.Join(notReady("not reachable"), err)
	}
}

func (p *Process) makeWatch() error {
	frozen, err := reachability.FrozenMetric(p.options.Registerer)
	if err != nil {
		return err
	}
	options := reachability.Options{
		Control: p.control, Period: p.config.StatusCheckPeriod, Timeout: p.config.StatusCheckTimeout,
		Leading: p.manager.Elected(), Clock: p.clock, Log: p.options.Logger.WithName("reachability"), FrozenGauge: frozen,
	}
	if p.target != nil {
		options.Target = p.target
	}
	p.watch = reachability.New(options)
	return nil
}

func (p *Process) addMetrics() (err error) {
	if p.gauge, err = mismatchGauge(p.options.Registerer); err != nil {
		return err
	}
	return errors.Join(p.watchLeader(), p.watchExpiry())
}

// Manager returns the manager of the control cluster, to which controllers are added. Manager uses the client and the
// cache of Control. GetConfig and GetAPIReader do not check the fence. Use them only for requests that need no
// leadership.
func (p *Process) Manager() manager.Manager { return p.manager }

// Control returns the control cluster.
func (p *Process) Control() *Cluster { return p.control }

// Target returns the target cluster, or nil if there is none.
func (p *Process) Target() *Cluster { return p.target }

// Fence returns the fence of this process's Lease.
func (p *Process) Fence() *fence.Fence { return p.fence }

// Reachability returns the watch that checks whether the clusters answer. The watch checks the clusters only while Run
// is running.
func (p *Process) Reachability() *reachability.Watch { return p.watch }

// OwnNamespace returns the namespace of the control cluster that contains the process's own objects, such as its Lease.
func (p *Process) OwnNamespace() string { return p.namespace }

// ClusterID returns the ID that marks the instances of this installation. It is empty until Run calls the setup
// function.
func (p *Process) ClusterID() string {
	if i := p.identity.Load(); i != nil {
		return i.id
	}
	return ""
}

// IdentityMismatch returns an error while the cluster ID is unknown, or differs from the recorded cluster ID. Instances
// without a Machine must not be deleted during this time.
func (p *Process) IdentityMismatch() error {
	if i := p.identity.Load(); i != nil {
		return i.mismatch()
	}
	return errors.New("the cluster ID is not known yet")
}

// A recorder sends up to eventBurst events about one object at once, and eventsPerSecond events per second after
// that. The limit protects the API server from repeated events of a failing operation. The limit is high enough for
// all events of a rollout of a thousand machines.
const (
	eventBurst      = 250
	eventsPerSecond = 0.1
)

// newBroadcaster creates the broadcaster that writes events. Events with different texts stay separate. The
// broadcaster combines similar events only after ten of them within ten minutes. The combined event has the text of
// the last event. A recorder of events.k8s.io would combine events with different texts, and keep only the text of
// the first event.
func newBroadcaster() record.EventBroadcaster {
	return record.NewBroadcasterWithCorrelatorOptions(record.CorrelatorOptions{BurstSize: eventBurst,
		QPS: eventsPerSecond})
}

type ownManager struct {
	manager.Manager
	probes *probes
	events record.EventBroadcaster
}

// GetEventRecorder implements manager.Manager.
func (m ownManager) GetEventRecorder(name string) recorder.EventRecorder {
	return fieldRecorder{m.events.NewRecorder(m.GetScheme(), corev1.EventSource{Component: name}), m.GetScheme()}
}
