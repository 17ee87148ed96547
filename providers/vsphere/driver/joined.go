package driver

import (
	"context"

	"github.com/vmware/govmomi/vim25/types"

	"machinist.dev/machinist/pkg/provider"
)

var _ provider.Joiner = (*Driver)(nil)

// Joined implements provider.Joiner. Joined removes the user data from the extra configuration, which other users of
// the vCenter can read. A virtual machine whose node has joined has run, so Joined also removes keyNew.
func (d *Driver) Joined(ctx context.Context, req provider.JoinedRequest) error {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return err
	}
	s, err := d.sessionFor(req.Class, req.Scope)
	if err != nil {
		return err
	}
	vm, err := s.getByID(ctx, req.ProviderID, req.Class)
	if err != nil {
		return err
	}
	if err := s.convert(vm).OwnedBy(own.cluster, own.machine); err != nil {
		return err
	}
	removed := map[string]string{keyNew: ""}
	for _, variable := range []string{guestUserData, guestIgnition} {
		removed[variable], removed[variable+".encoding"] = "", ""
	}
	done, err := s.reconfigure(ctx, vm, types.VirtualMachineConfigSpec{ExtraConfig: options(removed)})
	if err == nil && !done {
		err = provider.Errorf(provider.Aborted, "remove the user data of virtual machine %s: vCenter has not done this yet", vm.name)
	}
	return err
}
