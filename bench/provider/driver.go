package main

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
	simdriver "machinist.dev/machinist/simcloud/driver"
)

// driver is a cloud in memory. The type implements provider.Driver.
type driver struct {
	latency     time.Duration
	hosts       *hosts
	anyInstance bool

	mu        sync.Mutex
	instances map[string]*provider.Instance // by provider ID; the instances are immutable
	byMachine map[string]*provider.Instance // by cluster ID and UID of the machine
}

type spec struct {
	APIVersion   string `json:"apiVersion"`
	Kind         string `json:"kind"`
	InstanceType string `json:"instanceType"`
}

func parse(raw []byte) (s spec, err error) {
	err = provider.DecodeSpec(raw, "bench.machinist.dev/v1", "BenchMachine", &s)
	if err == nil && s.InstanceType == "" {
		err = provider.InvalidField("instanceType", "is required")
	}
	return s, err
}

func keyOf(cluster string, uid types.UID) string { return cluster + "/" + string(uid) }

func (d *driver) wait(ctx context.Context) error {
	if d.latency <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d.latency)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *driver) Name() string { return simdriver.Name }

func (d *driver) Validate(_ context.Context, req provider.ValidateRequest) error {
	_, err := parse(req.Class.Spec)
	return err
}

func (d *driver) Capacity(_ context.Context, req provider.CapacityRequest) (provider.Capacity, error) {
	s, err := parse(req.Class.Spec)
	return provider.Capacity{InstanceType: s.InstanceType}, err
}

func (d *driver) Create(ctx context.Context, req provider.CreateRequest) (*provider.Instance, error) {
	s, err := parse(req.Class.Spec)
	if err == nil {
		err = d.wait(ctx)
	}
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	key := keyOf(req.ClusterID, req.Machine.UID)
	in := d.byMachine[key]
	if in == nil {
		in = &provider.Instance{
			ProviderID: "sim:///" + req.Token, State: provider.StateRunning, NodeName: req.Machine.Name,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"},
				{Type: corev1.NodeHostName, Address: req.Machine.Name}},
			Type: s.InstanceType, Region: "bench-1", Zone: "bench-1a", LaunchTime: time.Now(),
			ClusterID: req.Tags[provider.TagCluster], MachineUID: types.UID(req.Tags[provider.TagMachineUID]),
			MachineKey: req.Tags[provider.TagMachine],
		}
		d.byMachine[key], d.instances[in.ProviderID] = in, in
		d.hosts.report("up", in.ProviderID, in.NodeName)
	}
	copied := *in
	return &copied, nil
}

func (d *driver) Get(ctx context.Context, req provider.GetRequest) (*provider.Instance, error) {
	if err := d.wait(ctx); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	in := d.instances[req.ProviderID]
	if req.ProviderID == "" {
		in = d.byMachine[keyOf(req.ClusterID, req.Machine.UID)]
	}
	if in == nil && d.anyInstance && req.ProviderID != "" {
		return &provider.Instance{ProviderID: req.ProviderID, State: provider.StateRunning, NodeName: req.Machine.Name,
			ClusterID: req.ClusterID, MachineUID: req.Machine.UID}, nil
	}
	if in == nil {
		return nil, provider.Errorf(provider.NotFound, "instance %q of machine %s does not exist", req.ProviderID,
			req.Machine.UID)
	}
	copied := *in
	return &copied, nil
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
	if err != nil {
		return provider.DeleteResult{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.instances, in.ProviderID)
	delete(d.byMachine, keyOf(in.ClusterID, in.MachineUID))
	d.hosts.report("down", in.ProviderID, in.NodeName)
	return provider.DeleteResult{Gone: true, Found: true}, nil
}

func (d *driver) List(ctx context.Context, req provider.ListRequest) (page provider.ListPage, err error) {
	if err := d.wait(ctx); err != nil {
		return page, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, in := range d.instances {
		if in.ClusterID == req.ClusterID {
			page.Instances = append(page.Instances, *in)
		}
	}
	return page, nil
}
