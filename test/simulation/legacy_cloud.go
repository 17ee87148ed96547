package simulation

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"machinist.dev/machinist/pkg/provider"
)

// This file implements provider.Importer, the part of the cloud that migrations need.

var _ provider.Importer = driver{}

// Locate implements provider.Importer.
func (d driver) Locate(context.Context, provider.LocateRequest) (out []provider.LocatedInstance, err error) {
	err = d.do("locate", provider.Machine{}, true, func(bool) error {
		for _, in := range d.instances {
			if in.legacy.machine != "" {
				out = append(out, provider.LocatedInstance{Instance: *in.describe(), Machine: in.legacy.machine,
					MachineUID: in.legacy.uid, IsCollected: in.legacy.role})
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Import implements provider.Importer.
func (d driver) Import(_ context.Context, req provider.ImportRequest) (provider.ImportedSpec, error) {
	var old struct {
		Image, Token string
		Machine      struct{ Image string } // in Cluster API
	}
	if err := json.Unmarshal(req.Legacy.Spec.Reveal(), &old); err != nil {
		return provider.ImportedSpec{}, provider.Errorf(provider.InvalidArgument,
			"the legacy specification does not describe an instance")
	}
	if token, found := req.Legacy.Credentials.Get("token"); found {
		old.Token = string(token.Reveal())
	}
	return provider.ImportedSpec{Spec: fmt.Appendf(nil, `{"kind":"Fake","image":%q}`,
		cmp.Or(old.Image, old.Machine.Image)),
		Credentials: map[string][]byte{"token": []byte(old.Token)}}, nil
}

// retag is a request to change the tags of an instance. The request releases or disowns the instance.
type retag struct {
	disown     bool
	machine    provider.Machine
	providerID string
}

// Release implements provider.Importer.
func (d driver) Release(_ context.Context, req provider.ReleaseRequest) error {
	return d.do("release", req.Machine, false, func(late bool) error {
		return d.retag(retag{false, req.Machine, req.ProviderID}, late)
	})
}

// Disown implements provider.Importer.
func (d driver) Disown(_ context.Context, req provider.DisownRequest) error {
	return d.do("disown", req.Machine, false, func(late bool) error {
		return d.retag(retag{true, req.Machine, req.ProviderID}, late)
	})
}

func (d driver) retag(r retag, late bool) error {
	if late {
		d.tagging = append(d.tagging, lateTags{at: d.now().Add(d.Settle / 2), retag: &r})
		return nil
	}
	return d.Cloud.retag(r)
}

func (c *Cloud) retag(r retag) error {
	in, err := c.find(r.providerID, "", "", "", "")
	switch {
	case err != nil && r.disown, err == nil && r.disown && in.MachineUID == "":
		return nil
	case err != nil:
		return err
	case in.OwnedBy(clusterID, r.machine) != nil:
		return provider.Errorf(provider.FailedPrecondition, "instance %s belongs to another machine", r.providerID)
	case r.disown:
		in.ClusterID, in.MachineUID, in.MachineKey, in.spec = "", "", "", ""
	default:
		in.legacy.role = false
	}
	return nil
}
