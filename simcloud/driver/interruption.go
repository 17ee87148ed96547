package driver

import (
	"context"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
)

// Announcing is a Driver that also implements provider.Interrupter: it reports the instances that the cloud will
// reclaim. Announcing is a separate type, because Machinist lists the instances of such drivers every few seconds.
type Announcing struct{ *Driver }

var _ provider.Interrupter = Announcing{}

// Interruptions implements provider.Interrupter.
func (d Announcing) Interruptions(ctx context.Context, req provider.InterruptionsRequest) ([]provider.Interruption,
	error) {
	if req.ClusterID == "" {
		return nil, provider.Errorf(provider.InvalidArgument, "look for interruptions: the cluster ID is empty")
	}
	client, err := d.client(d.endpointOf("", req.Class.Spec), req.Class.Credentials)
	if err != nil {
		return nil, err
	}
	var found []provider.Interruption
	tags := map[string]string{provider.TagCluster: req.ClusterID}
	for in, err := range client.Instances(ctx, simcloud.ListInstancesOptions{Tags: tags, States: liveStates()}) {
		if err != nil {
			return nil, translate(err, "look for interruptions")
		}
		if in.ReclaimTime != nil && in.Tags[provider.TagCluster] == req.ClusterID {
			found = append(found, provider.Interruption{ProviderID: in.ProviderID, ReclaimTime: *in.ReclaimTime,
				Reason: provider.Preemption})
		}
	}
	return found, nil
}
