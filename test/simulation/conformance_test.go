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

// speed is how much faster the time of the world's cloud passes for the suite, which waits for it.
const speed = 6000

// front is what the world's cloud leaves out because no controller of the world asks for it: several calls at a time,
// contexts that end, a specification that can be wrong. All else the cloud answers.
type front struct {
	*World
	lock  sync.Mutex
	began time.Time
}

func newFront(t *testing.T, habits Habits) *front {
	t.Helper()
	w, err := New(Scheme())
	if err != nil {
		t.Fatal(err)
	}
	w.cloud.past = past{habits: habits, began: w.clock.at}
	return &front{World: w, began: time.Now()}
}

// tick lets the world's time come to where that of the suite is.
func (f *front) tick() { f.pass(max(0, time.Since(f.began)*speed-f.clock.Since(epoch))) }

// call lets the cloud answer, unless the context has ended.
func (f *front) call(ctx context.Context, do func(driver) error) error {
	if err := ctx.Err(); err != nil {
		code := provider.Canceled
		if errors.Is(err, context.DeadlineExceeded) {
			code = provider.DeadlineExceeded
		}
		return provider.Errorf(code, "%v", err)
	}
	f.lock.Lock()
	defer f.lock.Unlock()
	f.tick()
	return do(driver{process: f.processes[1], Cloud: f.cloud})
}

// made calls the cloud with a specification that is right.
func (f *front) made(ctx context.Context, class provider.Class, do func(driver) error) error {
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

// shown gives an instance the time at which the suite had it made.
func (f *front) shown(in *provider.Instance) *provider.Instance {
	if in != nil {
		in.LaunchTime = f.began.Add(in.LaunchTime.Sub(epoch) / speed)
	}
	return in
}

func (f *front) Name() string                { return providerName }
func (f *front) CreateSettle() time.Duration { return f.cloud.Settle / speed }

func (f *front) Validate(ctx context.Context, req provider.ValidateRequest) error {
	return f.made(ctx, req.Class, func(d driver) error { return d.Validate(ctx, req) })
}

func (f *front) Capacity(ctx context.Context, req provider.CapacityRequest) (out provider.Capacity, err error) {
	err = f.made(ctx, req.Class, func(d driver) (err error) {
		out, err = d.Capacity(ctx, req)
		return err
	})
	return out, err
}

func (f *front) Create(ctx context.Context, req provider.CreateRequest) (out *provider.Instance, err error) {
	err = f.made(ctx, req.Class, func(d driver) (err error) {
		out, err = d.Create(ctx, req)
		return err
	})
	return f.shown(out), err
}

func (f *front) Adopt(ctx context.Context, req provider.AdoptRequest) (out *provider.Instance, err error) {
	err = f.made(ctx, req.Class, func(d driver) (err error) {
		out, err = d.Adopt(ctx, req)
		return err
	})
	return f.shown(out), err
}

func (f *front) Get(ctx context.Context, req provider.GetRequest) (out *provider.Instance, err error) {
	err = f.call(ctx, func(d driver) (err error) {
		out, err = d.Get(ctx, req)
		return err
	})
	return f.shown(out), err
}

func (f *front) Update(ctx context.Context, req provider.UpdateRequest) (out provider.UpdateResult, err error) {
	err = f.made(ctx, req.Class, func(d driver) (err error) {
		out, err = d.Update(ctx, req)
		return err
	})
	return out, err
}

func (f *front) Delete(ctx context.Context, req provider.DeleteRequest) (out provider.DeleteResult, err error) {
	err = f.call(ctx, func(d driver) (err error) {
		out, err = d.Delete(ctx, req)
		return err
	})
	return out, err
}

func (f *front) List(ctx context.Context, req provider.ListRequest) (out provider.ListPage, err error) {
	err = f.call(ctx, func(d driver) (err error) {
		out, err = d.List(ctx, req)
		return err
	})
	for i := range out.Instances {
		f.shown(&out.Instances[i])
	}
	return out, err
}

// resources are the instances that are not gone, as nobody sees them late.
func (f *front) resources(context.Context) (all []string, err error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.tick()
	for _, in := range f.cloud.instances {
		all = append(all, "instance/"+in.ProviderID)
	}
	return all, nil
}

// launch makes an instance that is not Machinist's.
func (f *front) launch(_ context.Context, tags map[string]string) (string, func(context.Context) error, error) {
	f.lock.Lock()
	defer f.lock.Unlock()
	f.tick()
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

// The world's cloud keeps the contract of drivers: else the controllers would be tried by a cloud that no driver shows
// them. The semantics left out let calls fail, or show less than the suite waits for where none of its faults are
// injected: reads and tags that are late, entries that pages repeat.
func TestTheCloudConforms(t *testing.T) {
	for name, habits := range map[string]Habits{
		"none": nil, "states go back": {StateGoesBack}, "lists late": {ListsLate}, "reads stale": {ReadsStale},
		"parts remain": {PartsRemain}, "clock ahead": {ClockAhead}, "clock behind": {ClockBehind},
		"lists return": {ListsReturn}, "parts unattached": {PartsUnattached},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFront(t, habits)
			conformance.Run(t, conformance.Config{
				New:          func() (provider.Driver, error) { return f, nil },
				Class:        provider.Class{Spec: suiteSpec("a")},
				OtherSpec:    suiteSpec("bb"),
				InvalidSpecs: []conformance.InvalidSpec{{Name: "no image", Spec: suiteSpec(""), Field: "image"}},
				Timeout:      20 * time.Second,
				Cloud:        conformance.Cloud{Resources: f.resources, Launch: f.launch},
			})
		})
	}
}
