package main

import (
	"context"
	"path"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
)

// driver implements provider.Driver. Each machine of the cloud is an instance of this provider.
type driver struct{ cloud cloud }

func (d *driver) Name() string { return "folder" }

func (d *driver) Validate(_ context.Context, req provider.ValidateRequest) error {
	_, err := parse(req.Class.Spec)
	return err
}

func (d *driver) Capacity(_ context.Context, req provider.CapacityRequest) (provider.Capacity, error) {
	spec, err := parse(req.Class.Spec)
	return provider.Capacity{InstanceType: spec.Size}, err
}

func (d *driver) Create(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
	spec, err := parse(req.Class.Spec)
	if err != nil {
		return nil, err
	}
	get := provider.GetRequest{Machine: req.Machine, ClusterID: req.ClusterID}
	if in, err := d.Get(ctx, get); !provider.IsNotFound(err) {
		return in, err // Any attempt may have created the instance, or the lookup failed.
	}
	// The token is the ID of the machine, so that a second call with the same token creates nothing.
	if err := d.cloud.create(ctx, machine{ID: req.Token, Name: req.Machine.Name, Size: spec.Size,
		Tags: req.Tags}); err != nil {
		return nil, err
	}
	return d.Get(ctx, get)
}

func (d *driver) Get(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
	machines, err := d.cloud.list(ctx)
	for _, m := range machines {
		in := convert(m)
		if in.ProviderID == req.ProviderID || req.ProviderID == "" && in.OwnedBy(req.ClusterID, req.Machine) == nil {
			return &in, nil
		}
	}
	if err == nil {
		err = provider.Errorf(provider.NotFound, "there is no instance %q of machine %s", req.ProviderID, req.Machine.UID)
	}
	return nil, err
}

func convert(m machine) provider.Instance {
	return provider.Instance{
		ProviderID: "folder:///" + m.ID, State: provider.StateRunning, NodeName: m.Name, Type: m.Size,
		ClusterID: m.Tags[provider.TagCluster], MachineUID: types.UID(m.Tags[provider.TagMachineUID]),
		MachineKey: m.Tags[provider.TagMachine],
	}
}

func (d *driver) Update(ctx context.Context, req provider.UpdateRequest) (provider.UpdateResult, error) {
	in, err := d.Get(ctx, provider.GetRequest{ProviderID: req.ProviderID})
	if err == nil {
		err = in.OwnedBy(req.ClusterID, req.Machine)
	}
	return provider.UpdateResult{Outcome: provider.UpdateNeedsReplacement, Reason: "a machine cannot be changed"}, err
}

func (d *driver) Delete(ctx context.Context, req provider.DeleteRequest) (provider.DeleteResult, error) {
	in, err := d.Get(ctx, provider.GetRequest(req))
	if provider.IsNotFound(err) {
		return provider.DeleteResult{Gone: true}, nil
	}
	if err == nil {
		err = in.OwnedBy(req.ClusterID, req.Machine)
	}
	if err == nil {
		err = d.cloud.delete(ctx, path.Base(in.ProviderID))
	}
	return provider.DeleteResult{Gone: err == nil, Found: err == nil}, err
}

func (d *driver) List(ctx context.Context, req provider.ListRequest) (page provider.ListPage, err error) {
	machines, err := d.cloud.list(ctx)
	for _, m := range machines {
		if in := convert(m); in.ClusterID != "" && in.ClusterID == req.ClusterID {
			page.Instances = append(page.Instances, in)
		}
	}
	return page, err
}
