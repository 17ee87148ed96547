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
	"machinist.dev/machinist/pkg/provider/httpapi"
	"machinist.dev/machinist/providers/azure/machine"
)

const (
	// roleTags is the prefix of tags that the collector of machine.sapcloud.io looks for.
	roleTags = "kubernetes.io-role-"
	// machineUIDTag contains the UID of the Machine of machine.k8s.io, machines.k8s.io or cluster.k8s.io.
	machineUIDTag = "Machine-UID"
	// clusterAPITag and the name of the Cluster are the name of a tag that Cluster API sets.
	clusterAPITag = "sigs.k8s.io_cluster-api-provider-azure_cluster_"
)

// clusterTags returns the prefixes of the tags that name the cluster of a machine.
func clusterTags() []string {
	return []string{"kubernetes.io-cluster-", "kubernetes.io_cluster.", "sigs.k8s.io_cluster-api-provider-azure"}
}

// facts contains the properties of an instance that Import needs.
type facts struct {
	Image             *machine.Image             `json:"image,omitempty"`
	Plan              *machine.Plan              `json:"plan,omitempty"`
	AvailabilitySetID string                     `json:"availabilitySetID,omitempty"`
	AdminUsername     string                     `json:"adminUsername,omitempty"`
	SSHPublicKey      string                     `json:"sshPublicKey,omitempty"`
	ClusterTags       map[string]string          `json:"clusterTags,omitempty"`
	Interfaces        []machine.NetworkInterface `json:"interfaces,omitempty"`
}

// maxFactsBytes is the limit of the provider contract.
const maxFactsBytes = 8 << 10

// Locate implements provider.Importer. Locate searches only the resource group that the old description names. Old
// systems name a virtual machine after its Machine. Locate ignores machines whose tags name another cluster.
func (d *Driver) Locate(ctx context.Context, req provider.LocateRequest) ([]provider.LocatedInstance, error) {
	t, err := newTranslation(req.Legacy, nil)
	if err != nil {
		return nil, err
	}
	group := t.old.String("resourceGroup")
	if t.source == provider.SourceClusterAPI {
		group = t.old.Object("cluster").String("resourceGroup")
	}
	if !groupFormat.MatchString(group) {
		return nil, provider.Errorf(provider.InvalidArgument, "the old description names no resource group")
	}
	c, err := d.clients(provider.NewCredentials(t.credentials).InNamespace(req.Legacy.Credentials.Namespace()))
	if err != nil {
		return nil, err
	}
	// These lists may lack the parts of a virtual machine that is created during this call.
	interfaces, err := c.interfacesIn(ctx, group)
	if err != nil {
		return nil, err
	}
	disks, err := allPages(ctx, func(ctx context.Context, link string) ([]*armcompute.Disk, string, error) {
		page, err := c.diskPage(ctx, group, link)
		if err != nil {
			return nil, "", err
		}
		next, err := c.nextLink("list disks", page.NextLink)
		return page.Value, next, err
	})
	if err != nil {
		return nil, translate(ctx, err, "list disks")
	}
	collected := map[string]bool{}
	for _, n := range interfaces {
		if n.Properties != nil && n.Properties.VirtualMachine != nil && hasRoleTag(n.Tags) {
			collected[strings.ToLower(value(n.Properties.VirtualMachine.ID))] = true
		}
	}
	for _, disk := range disks {
		if hasRoleTag(disk.Tags) {
			collected[strings.ToLower(value(disk.ManagedBy))] = true
		}
	}
	vms, err := c.machinesIn(ctx, group)
	if err != nil {
		return nil, err
	}
	var found []provider.LocatedInstance
	for _, vm := range vms {
		if !t.mayHaveCreated(vm.Tags) {
			continue
		}
		in, err := c.convert(vm)
		if err != nil {
			return nil, err
		}
		at, _ := c.locationOf(vm) // convert has already checked the ID.
		located := provider.LocatedInstance{Instance: *in, Machine: at.name, Facts: factsOf(vm, interfaces),
			IsCollected: hasRoleTag(vm.Tags) || collected[strings.ToLower(value(vm.ID))]}
		located.MachineUID = types.UID(tagValue(vm.Tags, machineUIDTag))
		if vm.Tags[provider.TagCluster] == nil && !isMarked(vm.Tags) {
			located.NotAdoptable = "the virtual machine" + missingTag(in.ProviderID)
		}
		found = append(found, located)
	}
	return found, nil
}

// machinesIn returns all virtual machines in a resource group.
func (c *clients) machinesIn(ctx context.Context, group string) ([]*armcompute.VirtualMachine, error) {
	all, err := allPages(ctx, func(ctx context.Context, link string) ([]*armcompute.VirtualMachine, string, error) {
		return c.page(ctx, group, link)
	})
	return withoutDuplicates(all, vmID), err
}

// interfacesIn returns all network interfaces in a resource group by their resource IDs in lower case.
func (c *clients) interfacesIn(ctx context.Context, group string) (map[string]*armnetwork.Interface, error) {
	all, err := allPages(ctx, func(ctx context.Context, link string) ([]*armnetwork.Interface, string, error) {
		page, err := c.interfacePage(ctx, group, link)
		if err != nil {
			return nil, "", err
		}
		next, err := c.nextLink("list interfaces", page.NextLink)
		return page.Value, next, err
	})
	if err != nil {
		return nil, translate(ctx, err, "list interfaces")
	}
	byID := make(map[string]*armnetwork.Interface, len(all))
	for _, n := range all {
		byID[strings.ToLower(value(n.ID))] = n
	}
	return byID, nil
}

func allPages[T any](ctx context.Context,
	read func(ctx context.Context, link string) (page []*T, next string, err error)) (all []*T, err error) {
	ctx = httpapi.List(ctx)
	for link := ""; ; {
		page, next, err := read(ctx, link)
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

// mayHaveCreated reports whether the old system may have created a machine with these tags.
func (t *translation) mayHaveCreated(tags map[string]*string) bool {
	switch t.source {
	case provider.SourceGardener, provider.SourceOpenShift:
	case provider.SourceClusterAPI:
		return tagValue(tags, clusterAPITag+t.old.String("clusterName")) == "owned"
	default:
		return tagValue(tags, machineUIDTag) != ""
	}
	for key, text := range t.old.Map("tags") {
		isCluster := slices.ContainsFunc(clusterTags(), func(p string) bool { return strings.HasPrefix(key, p) })
		if isCluster && tagValue(tags, key) != text {
			return false
		}
	}
	return true
}

// hasRoleTag reports whether the collector of machine.sapcloud.io would collect a resource with these tags.
func hasRoleTag(tags map[string]*string) bool {
	for key := range tags {
		if strings.HasPrefix(strings.ToLower(key), roleTags) {
			return true
		}
	}
	return false
}

// tagValue returns the value of a tag. tagValue ignores the case of the name.
func tagValue(tags map[string]*string, name string) string {
	for key, text := range tags {
		if strings.EqualFold(key, name) {
			return value(text)
		}
	}
	return ""
}

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
		// A long SSH key or many pools can exceed the limit. The user must then set these fields.
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
