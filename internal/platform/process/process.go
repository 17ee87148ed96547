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

// Options are what a process brings itself.
type Options struct {
	// Scheme knows every typed object that is used. Required.
	Scheme *runtime.Scheme
	// ControlKinds and TargetKinds are the kinds cached from each cluster; no others ever are. TargetKinds may be given
	// also where there is no target cluster.
	ControlKinds []Kind
	TargetKinds  []Kind
	// NoClusterID is set by a process that has nothing to do with instances: the cluster id is neither found out nor
	// recorded.
	NoClusterID bool
	// Required are the kinds that Run waits for in the control cluster before it does anything. Default: ControlKinds.
	Required []schema.GroupVersionKind
	// Controller has defaults for all controllers of the manager. Its CacheSyncTimeout is set by New.
	Controller config.Controller
	// WebhookServer serves admission webhooks; it is started if Manager().GetWebhookServer is called in the setup.
	WebhookServer webhook.Server
	// ReadTimeout bounds the wait of a cached read for this process's own writes. Default 5 s.
	ReadTimeout time.Duration
	// Logger is the process's. Default: controller-runtime's.
	Logger logr.Logger
	// Registerer takes the metrics. Default: controller-runtime's.
	Registerer prometheus.Registerer
	// Clock tells the fence the time. Default: the real one.
	Clock clock.WithTickerAndDelayedExecution
	// Flush sends what waits to be sent elsewhere, such as traces, when all work has ended. It must end within a second.
	// Default: there is nothing to send.
	Flush func()
	// Exit ends the process when the lease was lost. Default: os.Exit.
	Exit func(code int)
}

// Process is a process that runs controllers.
type Process struct {
	config    Config
	options   Options
	log       logr.Logger
	clock     clock.WithTickerAndDelayedExecution
	namespace string // of the lease and of the record of the cluster id

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

	// older takes the error of a cluster that was put back to older data.
	older chan error

	waitingFor atomic.Pointer[string]
	identity   atomic.Pointer[identity]
}

// controllerNeverTimesOut is longer than any process lives: what a controller waits for at its start, it gets or it
// is asked to stop.
const controllerNeverTimesOut = 10 * 365 * 24 * time.Hour

// New builds a Process. It makes no request. Its errors are those of Config.Validate, of kubeconfigs that cannot be
// loaded, of kinds that cannot be cached, and of addresses that cannot be bound.
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
	op := &Process{config: *c, options: o, log: o.Logger.WithName("operator"), clock: o.Clock, fence: fence.AlwaysOpen(),
		older: make(chan error, 1)}
	if c.LeaderElect {
		op.fence = fence.New(c.RenewDeadline, o.Clock)
	}
	op.probes, op.events = newProbes(op.log), newBroadcaster()
	for _, step := range []func() error{op.connect, op.makeLock, op.makeManager, op.addMetrics, op.makeWatch,
		op.addProbes} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return op, nil
}

// connect makes the two clusters.
func (o *Process) connect() error {
	c := &o.config
	var err error
	if o.namespace, err = c.leaderElectionNamespace(); err != nil {
		return err
	}
	build := func(flag, kubeconfig string, qps float32, burst int, kinds []Kind, namespace string,
		keeps keeps) (*Cluster, error) {
		config, file, err := restConfig(flag, kubeconfig, c.Name, qps, burst, o.log)
		if err != nil {
			return nil, err
		}
		name, _, _ := strings.Cut(flag, "-")
		return newCluster(config, clusterOptions{
			name: name, kubeconfig: file, scheme: o.options.Scheme, kinds: kinds, namespace: namespace, keeps: keeps,
			readTimeout: o.options.ReadTimeout, fieldOwner: c.Name, fence: o.fence, log: o.log,
			older: func(err error) { o.dataIsOlder(name, err) },
		})
	}
	if o.control, err = build("control-kubeconfig", c.ControlKubeconfig, c.ControlQPS, c.ControlBurst,
		o.options.ControlKinds, c.Namespace, inShard(c.Shard())); err != nil {
		return fmt.Errorf("control cluster: %w", err)
	}
	if c.TargetKubeconfig != None {
		if o.target, err = build("target-kubeconfig", c.TargetKubeconfig, c.TargetQPS, c.TargetBurst, o.options.TargetKinds,
			"", o.ofShard(c.Shard())); err != nil {
			return fmt.Errorf("target cluster: %w", err)
		}
	}
	if o.core, err = coreclient.NewForConfig(o.control.unfenced); err != nil {
		return fmt.Errorf("control cluster: %w", err)
	}
	return nil
}

// makeLock makes the lock of the lease, which feeds the fence.
func (o *Process) makeLock() error {
	if !o.config.LeaderElect {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find the host's name for the identity in the lease: %w", err)
	}
	config := o.control.kubeconfig.renew(leaseConfig(o.control.loaded, o.config.RenewDeadline))
	config.Wrap(o.control.denials.watch)
	leases, err := coordinationclient.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("lease client: %w", err)
	}
	lease := func(name, holder string) *fence.Lease {
		return &fence.Lease{Client: leases.Leases(o.namespace), Namespace: o.namespace, Name: name, Holder: holder,
			Duration: o.config.LeaseDuration, Labels: leaseLabels(o.config.Name), First: o.firstToHold(name)}
	}
	shard, name := o.config.Shard(), o.config.leaseName()
	own := lease(shard.LeaseName(name), host+"_"+string(uuid.NewUUID()))
	if shard.All() {
		o.lock = o.fence.Guard(own)
	} else {
		o.lock = o.fence.Guard(fence.NewJoint(own, lease(name, shard.Group())))
	}
	return nil
}

// leaseLabels say on a lease which program in which version holds it: the command line shows that. They are part of the
// requests that take and renew the lease.
func leaseLabels(program string) map[string]string {
	labels := map[string]string{"app.kubernetes.io/part-of": "machinist", "app.kubernetes.io/name": program}
	// A version such as v1.2.3+dirty is no value of a label.
	if value := strings.ReplaceAll(version.Release(), "+", "_"); len(validation.IsValidLabelValue(value)) == 0 {
		labels["app.kubernetes.io/version"] = value
	}
	return labels
}

// makeManager makes the manager of the control cluster. Its cache and probes are run by us.
func (o *Process) makeManager() error {
	c, controllers := &o.config, o.options.Controller
	controllers.CacheSyncTimeout = controllerNeverTimesOut
	forWork := max(c.GracefulShutdownTimeout-releaseWait, c.GracefulShutdownTimeout/2)
	metrics := metricsserver.Options{BindAddress: c.MetricsBindAddress, SecureServing: c.MetricsSecure,
		CertDir: c.MetricsCertDir}
	if off(c.MetricsBindAddress) {
		metrics.BindAddress = "0"
	}
	if c.MetricsSecure {
		metrics.FilterProvider = filterMetrics(o.clock)
	}
	options := manager.Options{
		Scheme:         o.options.Scheme,
		Logger:         o.options.Logger.WithSink(endingSink{o.options.Logger.GetSink()}),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return o.control.mapper, nil },
		NewCache:       func(*rest.Config, cache.Options) (cache.Cache, error) { return startedCache{o.control.Cache}, nil },
		NewClient:      func(*rest.Config, client.Options) (client.Client, error) { return o.control.Client, nil },

		LeaderElection:   c.LeaderElect,
		LeaderElectionID: c.leaseName(),
		LeaseDuration:    &c.LeaseDuration,
		RenewDeadline:    &c.RenewDeadline,
		RetryPeriod:      &c.RetryPeriod,
		// The lease is released by Run, once it is known that all work ended.
		LeaderElectionReleaseOnCancel: false,

		HealthProbeBindAddress:  "0",
		PprofBindAddress:        c.PprofBindAddress,
		Metrics:                 metrics,
		WebhookServer:           o.options.WebhookServer,
		BaseContext:             o.fence.Context,
		GracefulShutdownTimeout: &forWork,
		Controller:              controllers,
	}
	if o.lock != nil {
		options.LeaderElectionResourceLockInterface = o.lock
	}
	m, err := manager.New(o.control.unfenced, options)
	if err != nil {
		return fmt.Errorf("make the manager: %w", err)
	}
	o.manager = ownManager{Manager: m, probes: o.probes, events: o.events}
	return nil
}

// startedCache is a cache for a manager that must not start it: Run does, because the manager cannot be stopped while
// it waits for its caches, and because the cache must outlive the reconcilers.
type startedCache struct{ cache.Cache }

func (startedCache) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (o *Process) addProbes() error {
	control := &pinged{ping: func(ctx context.Context) error {
		if err := o.control.answers(ctx); err != nil {
			return err
		}
		if missing, found := o.control.lacks(ctx, essential); found {
			return notReady("this process may not " + missing.String())
		}
		return nil
	}}
	target := &pinged{ping: func(ctx context.Context) error {
		if err := o.target.answers(ctx); err != nil {
			return err
		}
		if missing, found := o.target.lacks(ctx, func(right) bool { return true }); found {
			return notReady("reachable, but this process may not " + missing.String())
		}
		return nil
	}}
	checks := []error{
		o.probes.add(o.probes.health, "lease", func(*http.Request) error {
			select {
			case <-o.fence.Lost():
				return notReady("lost")
			default:
				return nil
			}
		}),
		o.probes.add(o.probes.ready, "started", func(*http.Request) error {
			if what := o.waitingFor.Load(); what != nil {
				return notReady("waiting for " + *what)
			}
			return nil
		}),
		o.probes.add(o.probes.ready, "control", func(r *http.Request) error {
			return forProbes(control.reachable(r.Context()))
		}),
	}
	o.probes.note("target", func(r *http.Request) string {
		if o.target == nil {
			return "none"
		}
		switch err := target.reachable(r.Context()); {
		case err != nil:
			var shown notReady
			errors.As(forProbes(err), &shown)
			return string(shown)
		case !o.target.Synced():
			return "reachable, its cache is being filled"
		default:
			return "reachable"
		}
	})
	o.probes.note("frozen", func(*http.Request) string {
		if _, message := o.watch.Stopped(); message != "" {
			return message
		}
		return "no"
	})
	o.probes.note("cluster id", func(*http.Request) string {
		switch {
		case o.options.NoClusterID:
			return "not needed"
		case o.identity.Load() == nil:
			return "not known yet"
		case o.IdentityMismatch() != nil:
			return "not the one recorded, orphaned instances are left alone"
		default:
			return "as recorded"
		}
	})
	return errors.Join(append(checks, o.probes.listen(o.config.HealthProbeBindAddress))...)
}

// forProbes adds to the error of a check of a cluster the words that may be shown to anybody.
func forProbes(err error) error {
	var shown notReady
	switch missing, awaited := errors.AsType[*noKubeconfigError](err); {
	case err == nil || errors.As(err, &shown):
		return err
	case awaited:
		return errors.Join(notReady(missing.forProbes()), err)
	case errors.Is(err, reachability.ErrCredentialsRefused):
		return errors.Join(notReady("it refuses the credentials of this process"), err)
	default:
		return errors.Join(notReady("not reachable"), err)
	}
}

// makeWatch makes what looks whether the clusters answer.
func (o *Process) makeWatch() error {
	frozen, err := reachability.FrozenMetric(o.options.Registerer)
	if err != nil {
		return err
	}
	options := reachability.Options{
		Control: o.control, Period: o.config.StatusCheckPeriod, Timeout: o.config.StatusCheckTimeout,
		Leading: o.manager.Elected(), Clock: o.clock, Log: o.options.Logger.WithName("reachability"), Frozen: frozen,
	}
	if o.target != nil {
		options.Target = o.target
	}
	o.watch = reachability.New(options)
	return nil
}

func (o *Process) addMetrics() (err error) {
	if o.gauge, err = mismatchGauge(o.options.Registerer); err != nil {
		return err
	}
	return errors.Join(o.watchLeader(), o.watchExpiry())
}

// Manager returns the manager of the control cluster, to which controllers are added. Its client and cache are those
// of Control; its probes are served also while it does not run yet. Its GetConfig and GetAPIReader do not ask the
// fence: they are for what a process may do that is not the leader.
func (o *Process) Manager() manager.Manager { return o.manager }

// Control returns the control cluster.
func (o *Process) Control() *Cluster { return o.control }

// Target returns the target cluster, nil if there is none.
func (o *Process) Target() *Cluster { return o.target }

// Fence returns the fence of this process's lease.
func (o *Process) Fence() *fence.Fence { return o.fence }

// Reachability returns what is known of whether the clusters answer. It is kept as long as Run runs.
func (o *Process) Reachability() *reachability.Watch { return o.watch }

// OwnNamespace returns the namespace of the control cluster in which the process keeps what is its own, such as its
// lease.
func (o *Process) OwnNamespace() string { return o.namespace }

// ClusterID returns what marks the instances of this installation. It is known from the call of Run's setup function
// on, and empty before.
func (o *Process) ClusterID() string {
	if i := o.identity.Load(); i != nil {
		return i.id
	}
	return ""
}

// IdentityMismatch returns an error while the cluster id of this process is not the one that was recorded when
// Machinist first ran here, or is not known yet. Nothing must then be deleted at the cloud on the ground that it has
// no Machine.
func (o *Process) IdentityMismatch() error {
	if i := o.identity.Load(); i != nil {
		return i.mismatch()
	}
	return errors.New("the cluster id is not known yet")
}

// Of one object, a recorder keeps eventBurst events at once, and one more every 1/eventsPerSecond: a loop that fails
// must not fill the API server, and a rollout of a thousand machines must be reported completely.
const (
	eventBurst      = 250
	eventsPerSecond = 0.1
)

// newBroadcaster makes what writes events. Those that differ in their text only are different events. The recorders
// of events.k8s.io count such as repeats of the first, and what they say is lost; here that is so of none, and where
// more than ten come within ten minutes they are one whose text is that of the last, and says that it stands for
// others.
func newBroadcaster() record.EventBroadcaster {
	return record.NewBroadcasterWithCorrelatorOptions(record.CorrelatorOptions{BurstSize: eventBurst,
		QPS: eventsPerSecond})
}

// ownManager is a manager of which the probes and the events are ours.
type ownManager struct {
	manager.Manager
	probes *probes
	events record.EventBroadcaster
}

// GetEventRecorder implements manager.Manager.
func (m ownManager) GetEventRecorder(name string) recorder.EventRecorder {
	return fieldRecorder{m.events.NewRecorder(m.GetScheme(), corev1.EventSource{Component: name}), m.GetScheme()}
}
