package cloud

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"machinist.dev/machinist/internal/platform/tracing"
	"machinist.dev/machinist/pkg/provider"
)

// Options configures a Cloud.
type Options struct {
	Driver provider.Driver
	// Fence returns an error if this process may no longer change anything. The type Cloud calls Fence right before
	// each driver call that changes something.
	Fence func() error
	// Limiter enforces the configured rate limit. Nil means no limit.
	Limiter Limiter
	// Metrics counts calls. Nil means no metrics.
	Metrics *Metrics
	// Tracer records traces of calls that belong to an operation. Nil means no traces.
	Tracer *tracing.Tracer
	Clock  clock.PassiveClock
}

// Limiter is the part of a rate limiter that Cloud uses. *rate.Limiter of golang.org/x/time/rate implements it.
type Limiter interface {
	Wait(ctx context.Context) error
}

// Cloud is a provider.Driver that wraps another driver and adds a fence, limits and metrics.
type Cloud struct {
	Options
	timeout time.Duration
}

var (
	_ provider.Driver   = (*Cloud)(nil)
	_ provider.Importer = (*Cloud)(nil)
	_ provider.Finder   = (*Cloud)(nil)
	_ provider.Joiner   = (*Cloud)(nil)
	_ provider.Power    = (*Cloud)(nil)
)

// New returns a Cloud that wraps o.Driver.
func New(o Options) *Cloud {
	return &Cloud{Options: o, timeout: provider.CallTimeout(o.Driver)}
}

// Name implements provider.Driver.
func (c *Cloud) Name() string { return c.Driver.Name() }

// CreateSettle implements provider.Settler. It returns the settle time of the driver, or the default.
func (c *Cloud) CreateSettle() time.Duration { return provider.CreateSettle(c.Driver) }

// CallTimeout implements provider.Timeouter.
func (c *Cloud) CallTimeout() time.Duration { return c.timeout }

// Validate implements provider.Driver. Validate makes no call to the cloud, so the rate limit does not apply.
func (c *Cloud) Validate(ctx context.Context, req provider.ValidateRequest) error {
	return c.Driver.Validate(ctx, req)
}

// Capacity implements provider.Driver.
func (c *Cloud) Capacity(ctx context.Context, req provider.CapacityRequest) (provider.Capacity, error) {
	return call(ctx, c, "Capacity", reads, func(ctx context.Context) (provider.Capacity, error) {
		return boundedCapacity(c.Driver.Capacity(ctx, req))
	})
}

// Create implements provider.Driver.
func (c *Cloud) Create(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
	return call(ctx, c, "Create", changes, func(ctx context.Context) (*provider.Instance, error) {
		return boundedInstance(c.Driver.Create(ctx, req))
	})
}

// Get implements provider.Driver.
func (c *Cloud) Get(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
	return call(ctx, c, "Get", reads, func(ctx context.Context) (*provider.Instance, error) {
		return boundedInstance(c.Driver.Get(ctx, req))
	})
}

// Update implements provider.Driver.
func (c *Cloud) Update(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
	return call(ctx, c, "Update", changes, func(ctx context.Context) (provider.UpdateResult, error) {
		return c.Driver.Update(ctx, req)
	})
}

// Delete implements provider.Driver.
func (c *Cloud) Delete(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
	return call(ctx, c, "Delete", changes, func(ctx context.Context) (provider.DeleteResult, error) {
		return c.Driver.Delete(ctx, req)
	})
}

// List implements provider.Driver.
func (c *Cloud) List(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
	return call(ctx, c, "List", reads, func(ctx context.Context) (provider.ListPage, error) {
		return c.Driver.List(ctx, req)
	})
}

// Adopt implements provider.Adopter. It returns an Unimplemented error if the driver cannot adopt instances.
func (c *Cloud) Adopt(ctx context.Context, req provider.AdoptRequest) (*provider.Instance, error) {
	adopter, ok := c.Driver.(provider.Adopter)
	if !ok {
		return nil, provider.Errorf(provider.Unimplemented, "provider %s cannot adopt existing instances", c.Name())
	}
	return call(ctx, c, "Adopt", changes, func(ctx context.Context) (*provider.Instance, error) {
		return boundedInstance(adopter.Adopt(ctx, req))
	})
}

// Joined implements provider.Joiner. It returns an Unimplemented error if the driver keeps no data that only the
// first boot needs.
func (c *Cloud) Joined(ctx context.Context, req provider.JoinedRequest) error {
	joiner, ok := c.Driver.(provider.Joiner)
	if !ok {
		return provider.Errorf(provider.Unimplemented, "provider %s keeps no data for the first boot", c.Name())
	}
	_, err := call(ctx, c, "Joined", changes, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, joiner.Joined(ctx, req)
	})
	return err
}

// SetPower implements provider.Power. It returns an Unimplemented error if the driver cannot switch instances off.
func (c *Cloud) SetPower(ctx context.Context, req provider.PowerRequest) (*provider.Instance, error) {
	power, ok := c.Driver.(provider.Power)
	if !ok {
		return nil, provider.Errorf(provider.Unimplemented, "provider %s cannot switch instances off and on", c.Name())
	}
	return call(ctx, c, "SetPower", changes, func(ctx context.Context) (*provider.Instance, error) {
		return boundedInstance(power.SetPower(ctx, req))
	})
}

// Interruptions implements provider.Interrupter. It returns an Unimplemented error if the driver cannot list
// interruptions.
func (c *Cloud) Interruptions(ctx context.Context, req provider.InterruptionsRequest) ([]provider.Interruption, error) {
	interrupter, ok := c.Driver.(provider.Interrupter)
	if !ok {
		return nil, provider.Errorf(provider.Unimplemented, "provider %s does not report interruptions", c.Name())
	}
	return call(ctx, c, "Interruptions", reads, func(ctx context.Context) ([]provider.Interruption, error) {
		return interrupter.Interruptions(ctx, req)
	})
}

func (c *Cloud) importer() (provider.Importer, error) {
	importer, ok := c.Driver.(provider.Importer)
	if !ok {
		return nil, provider.Errorf(provider.Unimplemented, "provider %s cannot take over instances of other systems", c.Name())
	}
	return importer, nil
}

// Locate implements provider.Importer. It returns an Unimplemented error if the driver does not support imports.
func (c *Cloud) Locate(ctx context.Context, req provider.LocateRequest) ([]provider.LocatedInstance, error) {
	importer, err := c.importer()
	if err != nil {
		return nil, err
	}
	return call(ctx, c, "Locate", reads, func(ctx context.Context) ([]provider.LocatedInstance, error) {
		return importer.Locate(ctx, req)
	})
}

// Import implements provider.Importer. Import makes no call to the cloud, so the rate limit does not apply.
func (c *Cloud) Import(ctx context.Context, req provider.ImportRequest) (imported provider.ImportedSpec, err error) {
	importer, err := c.importer()
	if err != nil {
		return provider.ImportedSpec{}, err
	}
	defer func() {
		if recover() != nil {
			err = provider.Errorf(provider.Internal, "driver panicked in Import")
		}
	}()
	return importer.Import(ctx, req)
}

// Release implements provider.Importer.
func (c *Cloud) Release(ctx context.Context, req provider.ReleaseRequest) error {
	importer, err := c.importer()
	if err != nil {
		return err
	}
	_, err = call(ctx, c, "Release", changes, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, importer.Release(ctx, req)
	})
	return err
}

// Disown implements provider.Importer.
func (c *Cloud) Disown(ctx context.Context, req provider.DisownRequest) error {
	importer, err := c.importer()
	if err != nil {
		return err
	}
	_, err = call(ctx, c, "Disown", changes, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, importer.Disown(ctx, req)
	})
	return err
}

// Find implements provider.Finder. It returns an Unimplemented error if the driver cannot find instances without a
// Machine, or cannot undo their adoption.
func (c *Cloud) Find(ctx context.Context, req provider.FindRequest) ([]provider.FoundInstance, error) {
	finder, ok := c.Driver.(provider.Finder)
	if _, undoes := c.Driver.(provider.Importer); !ok || !undoes {
		return nil, provider.Errorf(provider.Unimplemented, "provider %s cannot find instances without a Machine: create "+
			"one Machine for each instance", c.Name())
	}
	return call(ctx, c, "Find", reads, func(ctx context.Context) ([]provider.FoundInstance, error) {
		return finder.Find(ctx, req)
	})
}

// ListScope implements provider.Scoper. ListScope returns "" if the driver has no scopes. ListScope makes no call to
// the cloud, so the rate limit does not apply.
func (c *Cloud) ListScope(class provider.Class) (name string, err error) {
	scoper, ok := c.Driver.(provider.Scoper)
	if !ok {
		return "", nil
	}
	defer func() {
		if recover() != nil {
			name, err = "", provider.Errorf(provider.Internal, "driver panicked in ListScope")
		}
	}()
	return scoper.ListScope(class)
}

// Account implements provider.Accounter. Account makes no call to the cloud, so the rate limit does not apply.
func (c *Cloud) Account(class provider.Class) (name string, err error) {
	defer func() {
		if recover() != nil {
			name, err = "", provider.Errorf(provider.Internal, "driver panicked in Account")
		}
	}()
	return provider.AccountOf(c.Driver, class), nil
}

// CapacityPool implements provider.Pooler. CapacityPool makes no call to the cloud, so the rate limit does not apply.
func (c *Cloud) CapacityPool(class provider.Class) (name string, err error) {
	defer func() {
		if recover() != nil {
			name, err = "", provider.Errorf(provider.Internal, "driver panicked in CapacityPool")
		}
	}()
	return provider.CapacityPoolOf(c.Driver, class), nil
}

type effect bool

const (
	reads   effect = false
	changes effect = true
)

// call executes one call of the driver. The fence is checked after the wait for the limiter, immediately before the
// call.
func call[T any](ctx context.Context, c *Cloud, operation string, e effect,
	f func(context.Context) (T, error)) (result T, err error) {
	ctx, traced := c.Tracer.Begin(ctx, operation)
	defer func() { traced.End(tracedCode(err)) }()
	if c.Limiter != nil {
		began := c.Clock.Now()
		if err := c.Limiter.Wait(ctx); err != nil {
			return result, fmt.Errorf("wait for the cloud rate limit before %s: %w", operation, err)
		}
		traced.RecordRateLimit(c.Clock.Since(began))
	}
	if e == changes {
		if err := c.Fence(); err != nil {
			return result, fmt.Errorf("refused to send %s: %w", operation, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	start := c.Clock.Now()
	// A panic in a driver, for example because of one providerSpec, must not stop the process.
	defer func() {
		if p := recover(); p != nil {
			err = provider.Errorf(provider.Internal, "driver panicked in %s", operation)
			// Do not log the panic's value, because it may contain data that the driver received, such as credentials.
			logr.FromContextOrDiscard(ctx).Error(err, "Recovered from a panic", "stack", string(debug.Stack()))
		}
		c.Metrics.observe(c.Name(), operation, err, c.Clock.Since(start))
	}()
	result, err = f(ctx)
	return result, boundedError(err)
}

// tracedCode returns the code of an error for a trace. It returns Unknown for codes that the provider package does not
// define, because such a code may contain any text.
func tracedCode(err error) string {
	if err == nil {
		return ""
	}
	switch code := provider.CodeOf(err); code {
	case provider.NotFound, provider.AlreadyExists, provider.ResourceExhausted, provider.Unauthenticated,
		provider.PermissionDenied, provider.Throttled:
		return string(code)
	default:
		if code.Terminal() || code.Ambiguous() {
			return string(code)
		}
		return string(provider.Unknown)
	}
}

// Metrics counts and times the calls of a provider's driver.
type Metrics struct {
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

// NewMetrics creates and registers the metrics for the calls of a driver.
func NewMetrics(registry prometheus.Registerer, driver string) (*Metrics, error) {
	m := &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "machinist_provider_requests_total",
			Help: "Driver calls by provider, operation and resulting code.",
		}, []string{"provider", "operation", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "machinist_provider_request_duration_seconds",
			Help:    "Duration of driver calls in seconds, by provider and operation.",
			Buckets: []float64{.01, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60},
		}, []string{"provider", "operation"}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.duration} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("register provider metrics: %w", err)
		}
	}
	m.initialize(driver)
	return m, nil
}

// initialize creates the counters of common operations and codes with the value zero. Otherwise, Prometheus would not
// see the first error as an increase.
func (m *Metrics) initialize(name string) {
	for _, operation := range []string{"Create", "Get", "Update", "Delete", "List"} {
		for _, code := range []provider.Code{provider.OK, provider.InvalidArgument, provider.FailedPrecondition,
			provider.ResourceExhausted, provider.Unauthenticated, provider.PermissionDenied, provider.Throttled,
			provider.Unavailable, provider.DeadlineExceeded, provider.Internal, provider.Unknown} {
			m.requests.WithLabelValues(name, operation, string(code))
		}
	}
}

func (m *Metrics) observe(name, operation string, err error, took time.Duration) {
	if m == nil {
		return
	}
	m.requests.WithLabelValues(name, operation, string(provider.CodeOf(err))).Inc()
	m.duration.WithLabelValues(name, operation).Observe(took.Seconds())
}
