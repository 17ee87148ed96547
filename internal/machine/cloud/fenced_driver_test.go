package cloud

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/utils/clock"

	"machinist.dev/machinist/pkg/provider"
)

type scripted struct {
	provider.Driver
	create func(context.Context) (*provider.Instance, error)
	calls  []string
}

func (s *scripted) Name() string { return "scripted" }

func (s *scripted) Create(ctx context.Context, _ provider.CreateRequest) (*provider.Instance, error) {
	s.calls = append(s.calls, "Create")
	if s.create != nil {
		return s.create(ctx)
	}
	return &provider.Instance{}, nil
}

func (s *scripted) Update(context.Context, provider.UpdateRequest) (provider.UpdateResult, error) {
	s.calls = append(s.calls, "Update")
	return provider.UpdateResult{}, nil
}

func (s *scripted) Delete(context.Context, provider.DeleteRequest) (provider.DeleteResult, error) {
	s.calls = append(s.calls, "Delete")
	return provider.DeleteResult{}, nil
}

func (s *scripted) Adopt(context.Context, provider.AdoptRequest) (*provider.Instance, error) {
	s.calls = append(s.calls, "Adopt")
	return nil, nil
}

func (s *scripted) SetPower(context.Context, provider.PowerRequest) (*provider.Instance, error) {
	s.calls = append(s.calls, "SetPower")
	return nil, nil
}

func (s *scripted) Get(context.Context, provider.GetRequest) (*provider.Instance, error) {
	s.calls = append(s.calls, "Get")
	return nil, nil
}

// Rule: writes-check-lease.
func TestFencedProcessMayReadButNotWrite(t *testing.T) {
	fenced := errors.New("fenced")
	driver := &scripted{}
	c := New(Options{Driver: driver, Fence: func() error { return fenced }, Clock: clock.RealClock{}})
	ctx := context.Background()
	_, createErr := c.Create(ctx, provider.CreateRequest{})
	_, updateErr := c.Update(ctx, provider.UpdateRequest{})
	_, deleteErr := c.Delete(ctx, provider.DeleteRequest{})
	_, adoptErr := c.Adopt(ctx, provider.AdoptRequest{})
	_, powerErr := c.SetPower(ctx, provider.PowerRequest{})
	for operation, err := range map[string]error{"Create": createErr, "Update": updateErr, "Delete": deleteErr,
		"Adopt": adoptErr, "SetPower": powerErr} {
		if !errors.Is(err, fenced) {
			t.Errorf("%s: error = %v, want the error of the fence", operation, err)
		}
	}
	if len(driver.calls) != 0 {
		t.Errorf("the driver was called although the process is fenced: %v", driver.calls)
	}
	if _, err := c.Get(ctx, provider.GetRequest{}); err != nil || len(driver.calls) != 1 {
		t.Errorf("Get with a closed fence: %v, calls %v; want one call without an error", err, driver.calls)
	}
}

// closing is a Limiter in whose Wait method the process loses its Lease: then the fence refuses changes.
type closing struct{ fenced *bool }

func (l closing) Wait(context.Context) error { *l.fenced = true; return nil }

// Rule: writes-check-lease.
func TestFenceIsCheckedAfterTheRateLimit(t *testing.T) {
	driver, fenced := &scripted{}, false
	c := New(Options{Driver: driver, Clock: clock.RealClock{}, Limiter: closing{&fenced}, Fence: func() error {
		if fenced {
			return errors.New("fenced")
		}
		return nil
	}})
	if _, err := c.Create(context.Background(), provider.CreateRequest{}); err == nil || len(driver.calls) != 0 {
		t.Errorf("Create: error %v, calls %v; want an error and no call", err, driver.calls)
	}
}

// Rule: driver-panic-harms-one-call.
func TestEveryCallHasADeadline(t *testing.T) {
	driver := &scripted{create: func(ctx context.Context) (*provider.Instance, error) {
		deadline, ok := ctx.Deadline()
		if !ok || time.Until(deadline) > provider.DefaultCallTimeout {
			t.Errorf("deadline = %v, %v; want one within %s", deadline, ok, provider.DefaultCallTimeout)
		}
		return nil, nil
	}}
	c := New(Options{Driver: driver, Fence: func() error { return nil }, Clock: clock.RealClock{}})
	if _, err := c.Create(context.Background(), provider.CreateRequest{}); err != nil {
		t.Fatal(err)
	}
}

// Rule: driver-panic-harms-one-call.
func TestPanicInADriverIsACountedError(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics, err := NewMetrics(registry, "scripted")
	if err != nil {
		t.Fatal(err)
	}
	// If a series first appeared with the value 1, Prometheus would not see an increase. So the series must exist
	// before the first error.
	if n := testutil.CollectAndCount(metrics.requests); n == 0 {
		t.Error("there are no series before the first call")
	}
	driver := &scripted{create: func(context.Context) (*provider.Instance, error) { panic("secret") }}
	c := New(Options{Driver: driver, Fence: func() error { return nil }, Clock: clock.RealClock{}, Metrics: metrics})
	_, err = c.Create(context.Background(), provider.CreateRequest{})
	if provider.CodeOf(err) != provider.Internal {
		t.Errorf("error = %v, want code Internal", err)
	}
	if got := testutil.ToFloat64(metrics.requests.WithLabelValues("scripted", "Create", "Internal")); got != 1 {
		t.Errorf("machinist_provider_requests_total = %v, want 1", got)
	}
}

type scoped struct {
	*scripted
	scope func() (string, error)
}

func (s *scoped) ListScope(provider.Class) (string, error) { return s.scope() }

// Rule: one-list-per-scope.
func TestListScopeReturnsErrorsAndPanicsOfTheDriver(t *testing.T) {
	for name, tc := range map[string]struct {
		driver provider.Driver
		want   string
		code   provider.Code
	}{
		"a name":    {&scoped{&scripted{}, func() (string, error) { return "account", nil }}, "account", provider.OK},
		"no Scoper": {&scripted{}, "", provider.OK},
		"a panic":   {&scoped{&scripted{}, func() (string, error) { panic("secret") }}, "", provider.Internal},
		"an error": {&scoped{&scripted{}, func() (string, error) { return "", provider.InvalidField("region", "is wrong") }},
			"", provider.InvalidArgument},
	} {
		c := New(Options{Driver: tc.driver, Clock: clock.RealClock{}})
		if got, err := c.ListScope(provider.Class{}); got != tc.want || provider.CodeOf(err) != tc.code {
			t.Errorf("%s: ListScope = %q, %v", name, got, err)
		}
	}
}

type importing struct {
	*scripted
	fail func() error
}

func (i *importing) Adopt(context.Context, provider.AdoptRequest) (*provider.Instance, error) {
	return nil, i.fail()
}

func (i *importing) SetPower(context.Context, provider.PowerRequest) (*provider.Instance, error) {
	return nil, i.fail()
}

func (i *importing) Interruptions(context.Context, provider.InterruptionsRequest) ([]provider.Interruption, error) {
	return nil, i.fail()
}

func (i *importing) Locate(context.Context, provider.LocateRequest) ([]provider.LocatedInstance, error) {
	return nil, i.fail()
}

func (i *importing) Import(context.Context, provider.ImportRequest) (provider.ImportedSpec, error) {
	return provider.ImportedSpec{}, i.fail()
}

func (i *importing) Release(context.Context, provider.ReleaseRequest) error { return i.fail() }

func (i *importing) Disown(context.Context, provider.DisownRequest) error { return i.fail() }

// Rule: driver-panic-harms-one-call.
func TestOptionalCallsReturnErrorsAndPanicsOfTheDriver(t *testing.T) {
	ctx := t.Context()
	for want, driver := range map[provider.Code]provider.Driver{
		provider.Unimplemented: struct{ provider.Driver }{&scripted{}},
		provider.NotFound:      &importing{fail: func() error { return provider.Errorf(provider.NotFound, "no instance") }},
		provider.Internal:      &importing{fail: func() error { panic("secret") }},
	} {
		c := New(Options{Driver: driver, Fence: func() error { return nil }, Clock: clock.RealClock{}})
		_, adoptErr := c.Adopt(ctx, provider.AdoptRequest{})
		_, powerErr := c.SetPower(ctx, provider.PowerRequest{})
		_, interruptionsErr := c.Interruptions(ctx, provider.InterruptionsRequest{})
		_, locateErr := c.Locate(ctx, provider.LocateRequest{})
		_, importErr := c.Import(ctx, provider.ImportRequest{})
		for operation, err := range map[string]error{"Adopt": adoptErr, "SetPower": powerErr,
			"Interruptions": interruptionsErr, "Locate": locateErr, "Import": importErr, "Release": c.Release(ctx, provider.ReleaseRequest{}),
			"Disown": c.Disown(ctx, provider.DisownRequest{})} {
			if provider.CodeOf(err) != want {
				t.Errorf("%s: %v, want %s", operation, err, want)
			}
		}
	}
}
