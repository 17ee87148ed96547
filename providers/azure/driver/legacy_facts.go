package driver

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v7"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/machine"
)

const (
	// roleTags is how the names of the tags begin by which the collector of machine.sapcloud.io finds what is its own.
	roleTags = "kubernetes.io-role-"
	// machineUIDTag has the UID of the Machine of machine.k8s.io, machines.k8s.io and cluster.k8s.io.
	machineUIDTag = "Machine-UID"
)

// clusterTags are how the names of tags begin that say to which cluster a machine belongs.
func clusterTags() []string {
	return []string{"kubernetes.io-cluster-", "kubernetes.io_cluster.", "sigs.k8s.io_cluster-api-provider-azure"}
}

// facts are what Import needs of an instance.
type facts struct {
	Image             *machine.Image             `json:"image,omitempty"`
	Plan              *machine.Plan              `json:"plan,omitempty"`
	AvailabilitySetID string                     `json:"availabilitySetID,omitempty"`
	AdminUsername     string                     `json:"adminUsername,omitempty"`
	SSHPublicKey      string                     `json:"sshPublicKey,omitempty"`
	ClusterTags       map[string]string          `json:"clusterTags,omitempty"`
	Interfaces        []machine.NetworkInterface `json:"interfaces,omitempty"`
}

// maxFactsBytes is the contract's.
const maxFactsBytes = 8 << 10

// Locate implements provider.Importer. It goes through the resource group of the description: machines have the names
// of old Machines. Those of another cluster in the same group are left out where tags tell.
func (d *Driver) Locate(ctx context.Context, req provider.LocateRequest) ([]provider.Located, error) {
	t, err := newTranslation(req.Legacy, nil)
	if err != nil {
		return nil, err
	}
	group := t.old.String("resourceGroup")
	if !groupFormat.MatchString(group) {
		return nil, provider.Errorf(provider.InvalidArgument, "the old description names no resource group")
	}
	c, err := d.clients(provider.NewCredentials(t.credentials).In(req.Legacy.Credentials.Namespace()))
	if err != nil {
		return nil, err
	}
	// Parts come first: one that is made meanwhile belongs to a machine that is not here either.
	interfaces, err := everything(func(link string) ([]*armnetwork.Interface, string, error) {
		page, err := c.interfacePage(ctx, group, link)
		return page.Value, value(page.NextLink), err
	})
	if err != nil {
		return nil, translate(ctx, err, "list interfaces")
	}
	disks, err := everything(func(link string) ([]*armcompute.Disk, string, error) {
		page, err := c.diskPage(ctx, group, link)
		return page.Value, value(page.NextLink), err
	})
	if err != nil {
		return nil, translate(ctx, err, "list disks")
	}
	parts := map[string]*armnetwork.Interface{}
	collected := map[string]bool{}
	for _, n := range interfaces {
		parts[strings.ToLower(value(n.ID))] = n
		if n.Properties != nil && n.Properties.VirtualMachine != nil && collects(n.Tags) {
			collected[strings.ToLower(value(n.Properties.VirtualMachine.ID))] = true
		}
	}
	for _, disk := range disks {
		if collects(disk.Tags) {
			collected[strings.ToLower(value(disk.ManagedBy))] = true
		}
	}
	vms, err := everything(func(link string) ([]*armcompute.VirtualMachine, string, error) {
		return c.page(ctx, group, link)
	})
	if err != nil {
		return nil, err
	}
	var found []provider.Located
	for _, vm := range once(vms, vmID) {
		if !t.made(vm.Tags) {
			continue
		}
		in, err := c.convert(vm)
		if err != nil {
			return nil, err
		}
		at, _ := c.at(vm) // convert has read it.
		one := provider.Located{Instance: *in, Machine: at.name, Facts: factsOf(vm, parts),
			Collected: collects(vm.Tags) || collected[strings.ToLower(value(vm.ID))]}
		one.MachineUID = types.UID(tagged(vm.Tags, machineUIDTag))
		found = append(found, one)
	}
	return found, nil
}

// everything goes through all pages.
func everything[T any](read func(link string) (page []*T, next string, err error)) (all []*T, err error) {
	for link := ""; ; {
		page, next, err := read(link)
		if codeOf(err) == "ResourceGroupNotFound" {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if link = next; link == "" {
			return all, nil
		}
	}
}

// made reports whether the old system can have made a machine with the tags.
func (t *translation) made(tags map[string]*string) bool {
	if t.source != provider.SourceGardener && t.source != provider.SourceOpenShift {
		return tagged(tags, machineUIDTag) != ""
	}
	for key, text := range t.old.Map("tags") {
		isCluster := slices.ContainsFunc(clusterTags(), func(p string) bool { return strings.HasPrefix(key, p) })
		if isCluster && tagged(tags, key) != text {
			return false
		}
	}
	return true
}

// collects reports whether a collector would take what has the tags.
func collects(tags map[string]*string) bool {
	for key := range tags {
		if strings.HasPrefix(strings.ToLower(key), roleTags) {
			return true
		}
	}
	return false
}

// tagged is the value of a tag, whose name may come in another case.
func tagged(tags map[string]*string, name string) string {
	for key, text := range tags {
		if strings.EqualFold(key, name) {
			return value(text)
		}
	}
	return ""
}

// factsOf describes a machine and its interfaces.
func factsOf(vm *armcompute.VirtualMachine, parts map[string]*armnetwork.Interface) []byte {
	p := vm.Properties
	if p == nil {
		return nil
	}
	f := facts{ClusterTags: map[string]string{}}
	for key, text := range vm.Tags {
		if slices.ContainsFunc(clusterTags(), func(p string) bool { return strings.HasPrefix(key, p) }) {
			f.ClusterTags[key] = value(text)
		}
	}
	if plan := vm.Plan; plan != nil {
		f.Plan = &machine.Plan{Name: value(plan.Name), Product: value(plan.Product), Publisher: value(plan.Publisher)}
	}
	if p.StorageProfile != nil && p.StorageProfile.ImageReference != nil {
		f.Image = imageOf(p.StorageProfile.ImageReference)
	}
	if p.AvailabilitySet != nil {
		f.AvailabilitySetID = value(p.AvailabilitySet.ID)
	}
	if os := p.OSProfile; os != nil {
		f.AdminUsername = value(os.AdminUsername)
		if linux := os.LinuxConfiguration; linux != nil && linux.SSH != nil && len(linux.SSH.PublicKeys) > 0 {
			f.SSHPublicKey = strings.TrimSpace(value(linux.SSH.PublicKeys[0].KeyData))
		}
	}
	if p.NetworkProfile != nil {
		for _, reference := range p.NetworkProfile.NetworkInterfaces {
			if n := parts[strings.ToLower(value(reference.ID))]; n != nil && n.Properties != nil {
				f.Interfaces = append(f.Interfaces, interfaceOf(n.Properties))
			}
		}
	}
	raw, err := json.Marshal(f)
	if err != nil || len(raw) > maxFactsBytes {
		// A key of kilobytes, or dozens of pools: a person has to give them.
		f.SSHPublicKey, f.Interfaces = "", nil
		if raw, err = json.Marshal(f); err != nil || len(raw) > maxFactsBytes {
			return nil
		}
	}
	return raw
}

func imageOf(r *armcompute.ImageReference) *machine.Image {
	image := &machine.Image{GalleryImageID: value(r.ID), CommunityGalleryImageID: value(r.CommunityGalleryImageID),
		SharedGalleryImageID: value(r.SharedGalleryImageID)}
	if value(r.Publisher) != "" {
		image.Marketplace = &machine.MarketplaceImage{Publisher: value(r.Publisher), Offer: value(r.Offer),
			SKU: value(r.SKU), Version: value(r.Version)}
	}
	return image
}

func interfaceOf(p *armnetwork.InterfacePropertiesFormat) machine.NetworkInterface {
	out := machine.NetworkInterface{IPForwarding: value(p.EnableIPForwarding),
		AcceleratedNetworking: value(p.EnableAcceleratedNetworking)}
	if p.NetworkSecurityGroup != nil {
		out.SecurityGroupID = value(p.NetworkSecurityGroup.ID)
	}
	for _, ip := range p.IPConfigurations {
		if ip.Properties == nil {
			continue
		}
		if out.SubnetID == "" && ip.Properties.Subnet != nil {
			out.SubnetID = value(ip.Properties.Subnet.ID)
		}
		for _, pool := range ip.Properties.LoadBalancerBackendAddressPools {
			out.LoadBalancerBackendPoolIDs = append(out.LoadBalancerBackendPoolIDs, value(pool.ID))
		}
	}
	return out
}
