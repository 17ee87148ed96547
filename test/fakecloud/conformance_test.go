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

// front is what the cloud leaves out because no reconciler asks for it: contexts that end and a specification that can
// be wrong. It also keeps from the suite what is crueller than the contract: lists have instances of other clusters.
type front struct{ *fakecloud.Cloud }

func alive(ctx context.Context) error {
	switch err := ctx.Err(); {
	case errors.Is(err, context.DeadlineExceeded):
		return provider.Errorf(provider.DeadlineExceeded, "%v", err)
	case err != nil:
		return provider.Errorf(provider.Canceled, "%v", err)
	}
	return nil
}

func valid(ctx context.Context, class provider.Class) error {
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
	return alive(ctx)
}

func (f front) Validate(ctx context.Context, req provider.ValidateRequest) error {
	return valid(ctx, req.Class)
}

func (f front) Capacity(ctx context.Context, req provider.CapacityRequest) (provider.Capacity, error) {
	return provider.Capacity{InstanceType: "small"}, valid(ctx, req.Class)
}

func (f front) Create(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
	if err := valid(ctx, req.Class); err != nil {
		return nil, err
	}
	return f.Cloud.Create(ctx, req)
}

func (f front) Adopt(ctx context.Context, req provider.AdoptRequest) (*provider.Instance, error) {
	if err := valid(ctx, req.Class); err != nil {
		return nil, err
	}
	return f.Cloud.Adopt(ctx, req)
}

func (f front) Get(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
	if err := alive(ctx); err != nil {
		return nil, err
	}
	return f.Cloud.Get(ctx, req)
}

func (f front) Delete(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
	if err := alive(ctx); err != nil {
		return provider.DeleteResult{}, err
	}
	return f.Cloud.Delete(ctx, req)
}

// Update answers as a driver that changes nothing in place: OnUpdate is each test's own.
func (f front) Update(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
	in, err := f.Get(ctx, provider.GetRequest{Machine: req.Machine, ClusterID: req.ClusterID, ProviderID: req.ProviderID,
		Scope: req.Scope, Class: req.Class})
	if err == nil {
		err = in.OwnedBy(req.ClusterID, req.Machine)
	}
	return provider.UpdateResult{Outcome: provider.UpdateNeedsReplacement, Reason: "nothing can be changed"}, err
}

func (f front) List(ctx context.Context, req provider.ListRequest) (provider.ListPage, error) {
	if err := alive(ctx); err != nil {
		return provider.ListPage{}, err
	}
	page, err := f.Cloud.List(ctx, req)
	page.Instances = slices.DeleteFunc(page.Instances, func(in provider.Instance) bool {
		return in.ClusterID != req.ClusterID
	})
	return page, err
}

// The cloud of the reconcilers' tests keeps the contract of drivers.
func TestTheCloudConforms(t *testing.T) {
	for name, set := range map[string]func(*fakecloud.Cloud){
		"at once":         func(*fakecloud.Cloud) {},
		"boots and stops": func(c *fakecloud.Cloud) { c.Boot, c.Shutdown = 20*time.Millisecond, 20*time.Millisecond },
		"blind": func(c *fakecloud.Cloud) {
			c.Boot, c.Shutdown, c.Blind = 20*time.Millisecond, 20*time.Millisecond, 30*time.Millisecond
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cloud := fakecloud.New("fake", clock.RealClock{})
			cloud.Settle, cloud.PageSize = 100*time.Millisecond, 2
			set(cloud)
			conformance.Run(t, conformance.Config{
				New:          func() (provider.Driver, error) { return front{cloud}, nil },
				Class:        provider.Class{Spec: spec("small")},
				OtherSpec:    spec("large"),
				InvalidSpecs: []conformance.InvalidSpec{{Name: "no size", Spec: spec(""), Field: "size"}},
				Timeout:      20 * time.Second,
				Cloud: conformance.Cloud{
					Resources: func(context.Context) (all []string, err error) {
						for _, in := range cloud.Live() {
							all = append(all, "instance/"+in.ProviderID)
						}
						return all, nil
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
