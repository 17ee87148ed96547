package simulation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/conformance"
)

// speed is how much faster time passes in the cloud than in the test suite, which waits in real time.
const speed = 6000

// suiteDriver adds functions that only the conformance suite needs: concurrent calls, contexts that end, and invalid
// specs. All other calls go to the cloud.
type suiteDriver struct {
	*World
	lock  sync.Mutex
	began time.Time
}

func newSuiteDriver(t *testing.T, habits Habits) *suiteDriver {
	t.Helper()
	w, err := New(Scheme())
	if err != nil {
		t.Fatal(err)
	}
	w.cloud.past = past{habits: habits, began: w.clock.at}
	return &suiteDriver{World: w, began: time.Now()}
}

func (f *suiteDriver) advanceClock() { f.pass(max(0, time.Since(f.began)*speed-f.clock.Since(epoch))) }

func (f *suiteDriver) call(ctx context.Context, do func(driver) error) error {
	if err := ctx.Err(); err != nil {
		code := provider.Canceled
		if errors.Is(err, context.DeadlineExceeded) {
			code = provider.DeadlineExceeded
		}
		return provider.Errorf(code, "%v", err)
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	f.advanceClock()
	return do(driver{process: f.processes[1], Cloud: f.cloud})
}

func (f *suiteDriver) callWithSpec(ctx context.Context, class provider.Class, do func(driver) error) error {
	var spec struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Image      string `json:"image"`
	}
	if err := provider.DecodeSpec(class.Spec, apiVersion, kind, &spec); err != nil {
		return err
	}
	if spec.Image == "" {
		return provider.InvalidField("image", "is required")
	}
	return f.call(ctx, do)
}

// withSuiteTime converts the launch time of an instance to the clock of the suite.
func (f *suiteDriver) withSuiteTime(in *provider.Instance) *provider.Instance {
	if in != nil {
		in.LaunchTime = f.began.Add(in.LaunchTime.Sub(epoch) / speed)
	}
	return in
}

func (f *suiteDriver) Name() string                { return providerName }
func (f *suiteDriver) CreateSettle() time.Duration { return f.cloud.Settle / speed }

func (f *suiteDriver) Validate(ctx context.Context, req provider.ValidateRequest) error {
	return f.callWithSpec(ctx, req.Class, func(d driver) error { return d.Validate(ctx, req) })
}

func (f *suiteDriver) Capacity(ctx context.Context, req provider.CapacityRequest) (out provider.Capacity, err error) {
	err = f.callWithSpec(ctx, req.Class, func(d driver) (err error) {
		out, err = d.Capacity(ctx, req)
		return err
	})
	return out, err
}

func (f *suiteDriver) Create(ctx context.Context, req provider.CreateRequest) (out *provider.Instance, err error) {
	err = f.callWithSpec(ctx, req.Class, func(d driver) (err error) {
		out, err = d.Create(ctx, req)
		return err
	})
	return f.withSuiteTime(out), err
}

func (f *suiteDriver) Adopt(ctx context.Context, req provider.AdoptRequest) (out *provider.Instance, err error) {
	err = f.callWithSpec(ctx, req.Class, func(d driver) (err error) {
		out, err = d.Adopt(ctx, req)
		return err
	})
	return f.withSuiteTime(out), err
}

func (f *suiteDriver) Get(ctx context.Context, req provider.GetRequest) (out *provider.Instance, err error) {
	err = f.call(ctx, func(d driver) (err error) {
		out, err = d.Get(ctx, req)
		return err
	})
	return f.withSuiteTime(out), err
}

func (f *suiteDriver) Update(ctx context.Context, req provider.UpdateRequest) (out provider.UpdateResult, err error) {
	err = f.callWithSpec(ctx, req.Class, func(d driver) (err error) {
		out, err = d.Update(ctx, req)
		return err
	})
	return out, err
}

func (f *suiteDriver) Delete(ctx context.Context, req provider.DeleteRequest) (out provider.DeleteResult, err error) {
	err = f.call(ctx, func(d driver) (err error) {
		out, err = d.Delete(ctx, req)
		return err
	})
	return out, err
}

func (f *suiteDriver) List(ctx context.Context, req provider.ListRequest) (out provider.ListPage, err error) {
	err = f.call(ctx, func(d driver) (err error) {
		out, err = d.List(ctx, req)
		return err
	})
	for i := range out.Instances {
		f.withSuiteTime(&out.Instances[i])
	}
	return out, err
}

func (f *suiteDriver) resources(context.Context) (all []string, err error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.advanceClock()
	for _, in := range f.cloud.instances {
		all = append(all, "instance/"+in.ProviderID)
	}
	return all, nil
}

func (f *suiteDriver) launch(_ context.Context, tags map[string]string) (string, func(context.Context) error, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.advanceClock()
	f.cloud.serial++
	in := &instance{born: f.clock.at, spec: string(suiteSpec("a"))}
	in.Instance = provider.Instance{ProviderID: fmt.Sprintf("fake:///%d", f.cloud.serial), State: provider.StateRunning,
		NodeName: fmt.Sprint("other-", f.cloud.serial), Type: "small", Region: "r", Zone: "r-1", LaunchTime: f.clock.at,
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.1.0.1"}}, Scope: cloudScope,
		ClusterID: tags[provider.TagCluster], MachineUID: types.UID(tags[provider.TagMachineUID]),
		MachineKey: tags[provider.TagMachine]}
	f.cloud.instances = append(f.cloud.instances, in)
	return in.ProviderID, func(context.Context) error {
		f.lock.Lock()
		defer f.lock.Unlock()
		if in.dying.IsZero() {
			in.State, in.dying = provider.StateTerminating, f.clock.at
		}
		return nil
	}, nil
}

const apiVersion, kind = "fake/v1", "Fake"

func suiteSpec(image string) []byte {
	return []byte(fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"image":%q}`, apiVersion, kind, image))
}

// TestCloudConforms checks that the world's cloud obeys the driver contract. Otherwise, the simulation would test the
// controllers with an impossible cloud. The test leaves out some behavior of clouds: late reads, late tags, pages
// that repeat entries, and hidden creations. If the cloud behaves in one of these ways, calls fail or return less than
// the suite expects.
func TestCloudConforms(t *testing.T) {
	for name, habits := range map[string]Habits{
		"none": nil, "states go back": {StateGoesBack}, "lists late": {ListsLate}, "reads stale": {ReadsStale},
		"parts remain": {PartsRemain}, "clock ahead": {ClockAhead}, "clock behind": {ClockBehind},
		"lists return": {ListsReturn}, "parts unattached": {PartsUnattached},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newSuiteDriver(t, habits)
			conformance.Run(t, conformance.Config{
				New:          func() (provider.Driver, error) { return f, nil },
				Class:        provider.Class{Spec: suiteSpec("a")},
				OtherSpec:    suiteSpec("bb"),
				InvalidSpecs: []conformance.InvalidSpec{{Name: "no image", Spec: suiteSpec(""), Field: "image"}},
				Timeout:      20 * time.Second,
				MinCases:     42,
				Cloud:        conformance.Cloud{Resources: f.resources, Launch: f.launch},
			})
		})
	}
}
