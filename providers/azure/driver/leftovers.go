package driver

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v7"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/naming"
)

// These are the kinds of parts that List reports. List reads all virtual machines before it reads parts. Otherwise
// List could report the parts of a virtual machine that is being created.
const (
	partInterfaces = "interfaces"
	partAddresses  = "addresses"
	partDisks      = "disks"
)

func partKinds() []string { return []string{partInterfaces, partAddresses, partDisks} }

// cutContinue parses a continue token. An empty kind stands for virtual machines, and an empty link for the first page.
func cutContinue(at string) (kind, link string) {
	kind, link, found := strings.Cut(at, " ")
	if found && slices.Contains(partKinds(), kind) {
		return kind, link
	}
	return "", at // A link contains no space.
}

// continueAt returns the token for the next page of the same kind, or for the first page of the next kind. At the end
// of the list, the token is empty.
func continueAt(kind, link string) string {
	if link != "" {
		if kind == "" {
			return link
		}
		return kind + " " + link
	}
	// Virtual machines are not in partKinds: slices.Index returns -1, so next is 0, the index of the first kind of
	// parts.
	if next := slices.Index(partKinds(), kind) + 1; next < len(partKinds()) {
		return partKinds()[next] + " "
	}
	return ""
}

// leftoverPage reads one page of a kind, and returns the cluster's parts without a virtual machine.
func (c *clients) leftoverPage(ctx context.Context, kind, group, link, cluster string) (all []provider.Leftover,
	next string, err error) {
	attempted := "list " + kind
	if link != "" && !c.isOwnEndpoint(link) {
		return nil, "", provider.Errorf(provider.InvalidArgument, "%s: the continue token does not point to Azure", attempted)
	}
	// Report a part only if it has the tag of the cluster, and if its name matches the machine in the part's tags. The
	// tags are not enough, because users and backup services copy tags to other disks. Delete finds parts by name.
	add := func(id, name *string, tags map[string]*string, created *time.Time) {
		uid, key := types.UID(value(tags[provider.TagMachineUID])), value(tags[provider.TagMachine])
		namespace, machineName, _ := strings.Cut(key, "/")
		base := naming.Base(cluster, provider.Machine{Namespace: namespace, Name: machineName, UID: uid})
		if uid == "" || value(tags[provider.TagCluster]) != cluster || !strings.HasPrefix(value(name), base+"-") {
			return
		}
		// Azure may return the same ID in different cases.
		part := strings.ToLower(value(id))
		if slices.ContainsFunc(all, func(l provider.Leftover) bool { return l.ID == part }) {
			return
		}
		all = append(all, provider.Leftover{ID: part, ClusterID: cluster, MachineUID: uid, MachineKey: key,
			LaunchTime: value(created)})
	}
	var after *string
	switch kind {
	case partInterfaces:
		var page armnetwork.InterfaceListResult
		page, err = c.interfacePage(ctx, group, link)
		after = page.NextLink
		for _, n := range page.Value {
			if n.Properties != nil && n.Properties.VirtualMachine == nil && n.Properties.PrivateEndpoint == nil &&
				n.Properties.PrivateLinkService == nil && !isDeleting(n.Properties.ProvisioningState) {
				add(n.ID, n.Name, n.Tags, nil)
			}
		}
	case partAddresses:
		var page armnetwork.PublicIPAddressListResult
		page, err = c.addressPage(ctx, group, link)
		after = page.NextLink
		for _, ip := range page.Value {
			if ip.Properties != nil && ip.Properties.IPConfiguration == nil && ip.Properties.NatGateway == nil &&
				!isDeleting(ip.Properties.ProvisioningState) {
				add(ip.ID, ip.Name, ip.Tags, nil)
			}
		}
	default:
		var page armcompute.DiskList
		page, err = c.diskPage(ctx, group, link)
		after = page.NextLink
		for _, d := range page.Value {
			if d.Properties != nil && value(d.ManagedBy) == "" && len(d.ManagedByExtended) == 0 &&
				!isDeleting(d.Properties.ProvisioningState) {
				add(d.ID, d.Name, d.Tags, d.Properties.TimeCreated)
			}
		}
	}
	if codeOf(err) == "ResourceGroupNotFound" {
		return nil, "", nil
	}
	if err == nil {
		next, err = c.nextLink(attempted, after)
	}
	if err != nil {
		return nil, "", translate(ctx, err, attempted)
	}
	return all, next, nil
}

func (c *clients) interfacePage(ctx context.Context, group, link string) (armnetwork.InterfaceListResult, error) {
	out, err := onePage(ctx, c.interfaces.NewListPager(group, nil), link)
	return out.InterfaceListResult, err
}

func (c *clients) addressPage(ctx context.Context, group, link string) (armnetwork.PublicIPAddressListResult, error) {
	out, err := onePage(ctx, c.publicIPs.NewListPager(group, nil), link)
	return out.PublicIPAddressListResult, err
}

func (c *clients) diskPage(ctx context.Context, group, link string) (armcompute.DiskList, error) {
	out, err := onePage(ctx, c.disks.NewListByResourceGroupPager(group, nil), link)
	return out.DiskList, err
}
