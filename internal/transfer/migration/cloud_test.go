package migration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
)

// fakeCloud contains the instances of an old fleet. Each old description becomes a providerSpec with the same size and
// region.
type fakeCloud struct {
	mu      sync.Mutex
	located []provider.LocatedInstance
	// emptyAccount is a text in the providerSpec of classes whose account has no instances.
	emptyAccount string
	// owners maps provider IDs to the Machine UIDs in the tags.
	owners map[string]types.UID
	calls  []string
	// found contains the instances that Find returns, and findError its error.
	found     []provider.FoundInstance
	findError error

	imported    func(provider.ImportRequest) (provider.ImportedSpec, error)
	validated   func(spec string) error
	locateError error
	settle      time.Duration
}

func (c *fakeCloud) Name() string                { return "sim" }
func (c *fakeCloud) CreateSettle() time.Duration { return c.settle }

func (c *fakeCloud) Validate(_ context.Context, req provider.ValidateRequest) error {
	if c.validated == nil {
		return nil
	}
	return c.validated(string(req.Class.Spec))
}

func (c *fakeCloud) Locate(context.Context, provider.LocateRequest) ([]provider.LocatedInstance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.located), c.locateError
}

func (c *fakeCloud) Import(_ context.Context, req provider.ImportRequest) (provider.ImportedSpec, error) {
	if c.imported != nil {
		return c.imported(req)
	}
	credentials := map[string][]byte{}
	for _, key := range req.Legacy.Credentials.Keys() {
		value, _ := req.Legacy.Credentials.Get(key)
		credentials[key] = value.Reveal()
	}
	return provider.ImportedSpec{Spec: importedSpec(req.Legacy), Credentials: credentials}, nil
}

func importedSpec(legacy provider.Legacy) []byte {
	var old map[string]any
	if err := json.Unmarshal(legacy.Spec.Reveal(), &old); err != nil {
		panic(err)
	}
	properties, _ := old["properties"].(map[string]any)
	hardware, _ := properties["hardwareProfile"].(map[string]any)
	spec := map[string]any{"apiVersion": "sim.machinist.dev/v1", "kind": "SimMachine"}
	for _, size := range []any{old["vmSize"], hardware["vmSize"], old["size"]} {
		if size != nil {
			spec["size"] = size
		}
	}
	if location := old["location"]; location != nil {
		spec["region"] = location
	}
	data, err := json.Marshal(spec)
	if err != nil {
		panic(err)
	}
	return data
}

func (c *fakeCloud) List(_ context.Context, req provider.ListRequest) (page provider.ListPage, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []provider.Instance
	for _, in := range c.located {
		all = append(all, in.Instance)
	}
	for _, in := range c.found {
		all = append(all, in.Instance)
	}
	for _, owned := range all {
		if uid := c.owners[owned.ProviderID]; uid != "" {
			owned.ClusterID, owned.MachineUID = req.ClusterID, uid
			page.Instances = append(page.Instances, owned)
		}
	}
	return page, nil
}

func (c *fakeCloud) Find(_ context.Context, req provider.FindRequest) ([]provider.FoundInstance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.emptyAccount != "" && strings.Contains(string(req.Class.Spec), c.emptyAccount) {
		return nil, nil
	}
	found := slices.Clone(c.found)
	for i := range found {
		if uid := c.owners[found[i].Instance.ProviderID]; uid != "" {
			found[i].Instance.ClusterID, found[i].Instance.MachineUID = "cluster", uid
		}
	}
	return found, c.findError
}

func (c *fakeCloud) Release(_ context.Context, req provider.ReleaseRequest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owners[req.ProviderID] != req.Machine.UID {
		return provider.Errorf(provider.FailedPrecondition, "instance %s does not belong to %s", req.ProviderID,
			req.Machine.UID)
	}
	for i := range c.located {
		if c.located[i].Instance.ProviderID == req.ProviderID {
			c.located[i].IsCollected = false
		}
	}
	c.calls = append(c.calls, "release "+req.ProviderID)
	return nil
}

func (c *fakeCloud) Disown(_ context.Context, req provider.DisownRequest) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if owner := c.owners[req.ProviderID]; owner != "" && owner != req.Machine.UID {
		return provider.Errorf(provider.FailedPrecondition, "instance %s belongs to %s", req.ProviderID, owner)
	}
	delete(c.owners, req.ProviderID)
	c.calls = append(c.calls, "disown "+req.ProviderID)
	return nil
}

func (c *fakeCloud) adoptInstance(providerID string, uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.owners[providerID]; other != "" && other != uid {
		panic(fmt.Sprintf("instance %s already belongs to %s", providerID, other))
	}
	c.owners[providerID] = uid
}

func instanceOf(name string, uid types.UID) provider.LocatedInstance {
	return provider.LocatedInstance{
		Instance:   provider.Instance{ProviderID: "sim:///" + name, State: provider.StateRunning, NodeName: name},
		MachineUID: uid, Machine: name, IsCollected: true, Facts: []byte(`{}`),
	}
}
