package standin

import (
	"context"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/driver"
)

// Cloud contains the instances of an old system.
type Cloud interface {
	// Instances returns the instances that exist and that the old system created.
	Instances(ctx context.Context) ([]Instance, error)
	// Create creates the instance of a Machine.
	Create(ctx context.Context, r Request) error
	// Delete deletes an instance. The instance may exist for some time afterwards.
	Delete(ctx context.Context, id string) error
}

// Request describes a new instance.
type Request struct {
	// Machine and UID identify the instance's Machine.
	Machine string
	UID     types.UID
	// Description is the providerSpec, or the spec of the infrastructure object in Cluster API.
	Description map[string]any
	// UserData is the user data of this instance. If UserData is nil, the Cloud's own user data is used.
	UserData []byte
}

// Instance is an instance of an old system.
type Instance struct {
	ID, ProviderID string
	// Machine is the name of the instance's Machine.
	Machine string
	// NodeName is the name of the instance's Node.
	NodeName           string
	Type, Region, Zone string
	// Deleting is true while the instance is being deleted.
	Deleting bool
	// Collected is true if the instance has the tags of instances that are deleted when they have no Machine.
	Collected bool
}

// Simulated returns the instances of an account of the simulated cloud. userData is the user data of new instances
// whose Request has none.
func Simulated(client *simcloud.Client, userData []byte) Cloud { return simulated{client, userData} }

type simulated struct {
	client   *simcloud.Client
	userData []byte
}

func (s simulated) Instances(ctx context.Context) (all []Instance, err error) {
	for in, err := range s.client.Instances(ctx,
		simcloud.ListInstancesOptions{HasTags: []string{driver.LegacyTagMachineUID}}) {
		if err != nil {
			return nil, err
		}
		if in.State == simcloud.StateTerminated {
			continue
		}
		_, collected := in.Tags[driver.LegacyTagRole]
		all = append(all, Instance{ID: in.ID, ProviderID: in.ProviderID, Machine: in.Tags[driver.LegacyTagMachine],
			NodeName: in.Hostname, Type: in.Type, Region: in.Region, Zone: in.Zone,
			Deleting: in.State == simcloud.StateShuttingDown, Collected: collected})
	}
	return all, nil
}

func (s simulated) Create(ctx context.Context, r Request) error {
	text := func(name string) string { value, _ := r.Description[name].(string); return value }
	tags := map[string]string{driver.LegacyTagMachine: r.Machine, driver.LegacyTagMachineUID: string(r.UID)}
	described, _ := r.Description["tags"].(map[string]any)
	for key, value := range described {
		tags[key], _ = value.(string)
	}
	userData := r.UserData
	if userData == nil {
		userData = s.userData
	}
	_, err := s.client.CreateInstance(ctx, simcloud.CreateInstanceRequest{Name: r.Machine, Region: text("region"),
		Type: text("size"), Image: text("image"), UserData: userData, Tags: tags})
	return err
}

func (s simulated) Delete(ctx context.Context, id string) error {
	_, err := s.client.DeleteInstance(ctx, id)
	return err
}
