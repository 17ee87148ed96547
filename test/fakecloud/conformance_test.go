package fakecloud_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/conformance"
	"machinist.dev/machinist/test/fakecloud"
)

const apiVersion, kind = "fake/v1", "Fake"

func spec(size string) []byte {
	return []byte(`{"apiVersion":"` + apiVersion + `","kind":"` + kind + `","size":"` + size + `"}`)
}

// checkedCloud adds checks of the context and the specification, which the tests of reconcilers do not need.
// checkedCloud also removes the instances of other clusters from lists, because they violate the contract.
type checkedCloud struct{ *fakecloud.Cloud }

func checkContext(ctx context.Context) error {
	switch err := ctx.Err(); {
	case errors.Is(err, context.DeadlineExceeded):
		return provider.Errorf(provider.DeadlineExceeded, "%v", err)
	case err != nil:
		return provider.Errorf(provider.Canceled, "%v", err)
	}
	return nil
}

func checkClass(ctx context.Context, class provider.Class) error {
	var s struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Size       string `json:"size"`
	}
	if err := provider.DecodeSpec(class.Spec, apiVersion, kind, &s); err != nil {
		return err
	}
	if s.Size == "" {
		return provider.InvalidField("size", "is required")
	}
	return checkContext(ctx)
}

func (c checkedCloud) Validate(ctx context.Context, req provider.ValidateRequest) error {
	return checkClass(ctx, req.Class)
}

func (c checkedCloud) Capacity(ctx context.Context, req provider.CapacityRequest) (provider.Capacity, error) {
	return provider.Capacity{InstanceType: "small"}, checkClass(ctx, req.Class)
}

func (c checkedCloud) Create(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
	if err := checkClass(ctx, req.Class); err != nil {
		return nil, err
	}
	return c.Cloud.Create(ctx, req)
}

func (c checkedCloud) Adopt(ctx context.Context, req provider.AdoptRequest) (*provider.Instance, error) {
	if err := checkClass(ctx, req.Class); err != nil {
		return nil, err
	}
	return c.Cloud.Adopt(ctx, req)
}

func (c checkedCloud) Get(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	return c.Cloud.Get(ctx, req)
}

func (c checkedCloud) SetPower(ctx context.Context, req provider.PowerRequest) (*provider.Instance, error) {
	if err := checkContext(ctx); err != nil {
		return nil, err
	}
	return c.Cloud.SetPower(ctx, req)
}

func (c checkedCloud) Delete(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
	if err := checkContext(ctx); err != nil {
		return provider.DeleteResult{}, err
	}
	return c.Cloud.Delete(ctx, req)
}

// Update returns UpdateNeedsReplacement, like a driver without in-place updates.
func (c checkedCloud) Update(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
	in, err := c.Get(ctx, provider.GetRequest{Machine: req.Machine, ClusterID: req.ClusterID, ProviderID: req.ProviderID,
		Scope: req.Scope, Class: req.Class})
	if err == nil {
		err = in.OwnedBy(req.ClusterID, req.Machine)
	}
	return provider.UpdateResult{Outcome: provider.UpdateNeedsReplacement, Instance: in,
		Reason: "updates in place are not supported"}, err
}

func (c checkedCloud) List(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
	if err := checkContext(ctx); err != nil {
		return provider.ListPage{}, err
	}
	page, err := c.Cloud.List(ctx, req)
	page.Instances = slices.DeleteFunc(page.Instances, func(in provider.Instance) bool {
		return in.ClusterID != req.ClusterID
	})
	return page, err
}

func TestCloudConforms(t *testing.T) {
	for name, set := range map[string]func(*fakecloud.Cloud){
		"without delays":         func(*fakecloud.Cloud) {},
		"slow boot and shutdown": func(c *fakecloud.Cloud) { c.Boot, c.Shutdown = 20*time.Millisecond, 20*time.Millisecond },
		"delayed tags": func(c *fakecloud.Cloud) {
			c.Boot, c.Shutdown, c.TagLookupDelay = 20*time.Millisecond, 20*time.Millisecond, 30*time.Millisecond
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cloud := fakecloud.New("fake", clock.RealClock{})
			cloud.Settle, cloud.PageSize = 100*time.Millisecond, 2
			set(cloud)
			conformance.Run(t, conformance.Config{
				New:          func() (provider.Driver, error) { return checkedCloud{cloud}, nil },
				Class:        provider.Class{Spec: spec("small")},
				OtherSpec:    spec("large"),
				InvalidSpecs: []conformance.InvalidSpec{{Name: "no size", Spec: spec(""), Field: "size"}},
				Timeout:      20 * time.Second,
				MinCases:     56,
				Cloud: conformance.Cloud{
					Resources: func(context.Context) (all []string, err error) {
						for _, in := range cloud.LiveInstances() {
							all = append(all, "instance/"+in.ProviderID)
						}
						return all, nil
					},
					UserData: func(_ context.Context, providerID string) ([]byte, error) {
						for _, in := range cloud.LiveInstances() {
							if in.ProviderID == providerID {
								return []byte(in.UserData), nil
							}
						}
						return nil, errors.New("no such instance")
					},
					Inject: func(_ context.Context, f conformance.Fault) (func(), error) {
						if f.Kind != conformance.SlowEffects {
							return nil, errors.ErrUnsupported
						}
						boot, shutdown := cloud.SetDelays(f.Duration, f.Duration)
						return func() { cloud.SetDelays(boot, shutdown) }, nil
					},
					Launch: func(_ context.Context, tags map[string]string) (string, func(context.Context) error, error) {
						in := provider.Instance{ProviderID: "fake:///" + string(types.UID(tags[provider.TagMachineUID])) + "-other",
							State: provider.StateRunning, NodeName: "other", LaunchTime: time.Now(), Type: "small"}
						fakecloud.Tag(&in, tags)
						cloud.Put("", in)
						return in.ProviderID, func(context.Context) error { cloud.Vanish(in.ProviderID); return nil }, nil
					},
				},
			})
		})
	}
}
