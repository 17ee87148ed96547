package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

type broken struct {
	*correct
	name     string
	settle   time.Duration
	validate func(context.Context, provider.ValidateRequest) error
	capacity func(context.Context, provider.CapacityRequest) (provider.Capacity, error)
	create   func(context.Context, provider.CreateRequest) (*provider.Instance, error)
	get      func(context.Context, provider.GetRequest) (*provider.Instance, error)
	list     func(context.Context, provider.ListRequest) (provider.ListPage, error)
	delete   func(context.Context, provider.DeleteRequest) (provider.DeleteResult, error)
	update   func(context.Context, provider.UpdateRequest) (provider.UpdateResult, error)
	adopt    func(context.Context, provider.AdoptRequest) (*provider.Instance, error)
	power    func(context.Context, provider.PowerRequest) (*provider.Instance, error)
	scope    func(provider.Class) (string, error)
	account  func(provider.Class) (string, error)
	pool     func(provider.Class) (string, error)
	ending   func(context.Context, provider.InterruptionsRequest) ([]provider.Interruption, error)
	locate   func(context.Context, provider.LocateRequest) ([]provider.LocatedInstance, error)
	imports  func(context.Context, provider.ImportRequest) (provider.ImportedSpec, error)
	release  func(context.Context, provider.ReleaseRequest) error
	disown   func(context.Context, provider.DisownRequest) error
	find     func(context.Context, provider.FindRequest) ([]provider.FoundInstance, error)
	joined   func(context.Context, provider.JoinedRequest) error
}

func (b *broken) Name() string { return b.name }

// CreateSettle returns a short time, so that tests are fast. Some broken drivers hide new instances for longer than
// CreateSettle, or forever.
func (b *broken) CreateSettle() time.Duration { return b.settle }

func (b *broken) Validate(ctx context.Context, req provider.ValidateRequest) error {
	return b.validate(ctx, req)
}

func (b *broken) Capacity(ctx context.Context, req provider.CapacityRequest) (provider.Capacity, error) {
	return b.capacity(ctx, req)
}

func (b *broken) Create(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
	return b.create(ctx, req)
}

func (b *broken) Get(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
	return b.get(ctx, req)
}

func (b *broken) List(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
	return b.list(ctx, req)
}

func (b *broken) Delete(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
	return b.delete(ctx, req)
}

func (b *broken) Update(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
	return b.update(ctx, req)
}

func (b *broken) Adopt(ctx context.Context, req provider.AdoptRequest) (*provider.Instance, error) {
	return b.adopt(ctx, req)
}

func (b *broken) SetPower(ctx context.Context, req provider.PowerRequest) (*provider.Instance, error) {
	return b.power(ctx, req)
}

func (b *broken) ListScope(class provider.Class) (string, error) { return b.scope(class) }

func (b *broken) Account(class provider.Class) (string, error) { return b.account(class) }

func (b *broken) CapacityPool(class provider.Class) (string, error) { return b.pool(class) }

func (b *broken) Interruptions(ctx context.Context, req provider.InterruptionsRequest) ([]provider.Interruption,
	error) {
	return b.ending(ctx, req)
}

func newBroken(c *fakeCloud) *broken {
	d := newCorrect(c)
	return &broken{
		correct: d, name: d.Name(), settle: 20 * time.Millisecond,
		validate: d.Validate, capacity: d.Capacity, create: d.Create, get: d.Get, list: d.List, delete: d.Delete,
		update: d.Update, adopt: d.Adopt, power: d.SetPower,
		scope: d.ListScope, account: d.Account, pool: d.CapacityPool, ending: d.Interruptions,
		locate: d.Locate, imports: d.Import, release: d.Release, disown: d.Disown, find: d.Find,
		joined: d.Joined,
	}
}

func (b *broken) Locate(ctx context.Context, req provider.LocateRequest) ([]provider.LocatedInstance, error) {
	return b.locate(ctx, req)
}

func (b *broken) Import(ctx context.Context, req provider.ImportRequest) (provider.ImportedSpec, error) {
	return b.imports(ctx, req)
}

func (b *broken) Release(ctx context.Context, req provider.ReleaseRequest) error {
	return b.release(ctx, req)
}

func (b *broken) Joined(ctx context.Context, req provider.JoinedRequest) error {
	return b.joined(ctx, req)
}

func (b *broken) Disown(ctx context.Context, req provider.DisownRequest) error {
	return b.disown(ctx, req)
}

type flaw struct {
	// caseName is the name of the case that must find the flaw.
	caseName string
	name     string
	// rule is a text that must be part of the case's failure message.
	rule string
	with func(b *broken)
	// earlierCases contains the names of cases to run first, before the case that must find the flaw.
	earlierCases []string
	// cloud is a function that prepares the fakeCloud. It is nil if the flaw is visible in every state of the cloud.
	cloud func(*fakeCloud)
	// config is a function that changes the configuration, or nil.
	config func(*Config)
}

func withoutIdempotency(b *broken) {
	b.checksFirst = false
	b.idempotency = func(provider.CreateRequest) string { return random(8) }
}

func code(b *broken, from, to provider.Code) {
	before := b.translate
	b.translate = func(err error) error {
		out := before(err)
		if e, ok := errors.AsType[*provider.Error](out); ok && e.Code == from {
			e.Code = to
		}
		return out
	}
}

// meeting returns a function that makes two calls overlap: it blocks the first caller until a second caller arrives,
// for at most 10 seconds. Later callers do not block.
func meeting() func() {
	var callers atomic.Int32
	second := make(chan struct{})
	return func() {
		switch callers.Add(1) {
		case 1:
			patience := time.NewTimer(10 * time.Second)
			defer patience.Stop()
			select {
			case <-second:
			case <-patience.C:
			}
		case 2:
			close(second)
		}
	}
}

func flaws() []flaw {
	return slices.Concat(classAndCreateFlaws(), findFlaws(), deleteAndUpdateFlaws(), conductAndFaultFlaws(), cutFlaws(),
		lateFlaws(), answerFlaws(), partFlaws(), acceptedFlaws(), optionalFlaws(), importFlaws(),
		finderFlaws(), powerFlaws(), progressFlaws())
}

func TestEveryCaseFindsItsFlaws(t *testing.T) {
	found := map[string]bool{}
	for _, f := range flaws() {
		found[f.caseName] = true
		t.Run(f.caseName+"/"+f.name, func(t *testing.T) {
			t.Parallel()
			c := newFakeCloud()
			if f.cloud != nil {
				f.cloud(c)
			}
			config := configOf(c, func() provider.Driver {
				b := newBroken(c)
				if f.with != nil {
					f.with(b)
				}
				return b
			})
			// Because of the flaw, an expected event never happens. The case then waits for the whole timeout, so the
			// timeout must be short.
			config.Timeout = time.Second
			if f.config != nil {
				f.config(&config)
			}
			report := record(t, config, append(f.earlierCases, f.caseName)...)
			if all := strings.Join(report.failures, "\n"); !report.failed || !strings.Contains(all, f.rule) {
				t.Errorf("want a failure that contains %q, got:\n%s", f.rule, all)
			}
		})
	}
	for _, c := range cases() {
		if !found[c.name] {
			t.Errorf("there is no flaw that lets the case %s fail", c.name)
		}
	}
}

// A driver of the type broken passes all cases if no flaw is enabled. If a case fails in another test, the cause is
// therefore the enabled flaw.
func TestBrokenDriverWithoutFlawPasses(t *testing.T) {
	t.Parallel()
	c := newFakeCloud()
	config := configOf(c, func() provider.Driver {
		b := newBroken(c)
		b.settle = time.Minute
		return b
	})
	for _, tc := range cases() {
		if report := record(t, config, tc.name); report.failed || report.skipped {
			t.Errorf("%s: skipped %v, failures %v", tc.name, report.skipped, report.failures)
		}
	}
}
