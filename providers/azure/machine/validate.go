package machine

import (
	"fmt"
	"maps"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"

	"machinist.dev/machinist/pkg/provider"
)

// These formats follow Azure's limits and naming rules.
// https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
var (
	locationFormat      = regexp.MustCompile(`^[a-z][a-z0-9]{1,63}$`)
	resourceGroupFormat = regexp.MustCompile(`^[-\w.()]{0,89}[-\w()]$`)
	sizeFormat          = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,127}$`)
	imagePartFormat     = regexp.MustCompile(`^[A-Za-z0-9][-\w.]{0,127}$`)
	zoneFormat          = regexp.MustCompile(`^[1-9]$`)
	communityFormat     = regexp.MustCompile(`(?i)^/communitygalleries/[-\w.]{1,128}/images/[-\w.]{1,80}(/versions/[-\w.]{1,32})?$`)
	sharedFormat        = regexp.MustCompile(`(?i)^/sharedgalleries/[-\w.]{1,128}/images/[-\w.]{1,80}(/versions/[-\w.]{1,32})?$`)
	usernameFormat      = regexp.MustCompile(`^[a-z_][-a-z0-9_]{0,31}$`)
	sshKeyFormat        = regexp.MustCompile(`^(ssh-rsa|ssh-ed25519) [A-Za-z0-9+/]{40}[A-Za-z0-9+/]*={0,2}( [\x20-\x7e]*)?$`)
)

// StorageAccountTypes returns the types of managed disks.
// https://learn.microsoft.com/azure/virtual-machines/disks-types
func StorageAccountTypes() []string {
	return []string{
		"Standard_LRS", "StandardSSD_LRS", "StandardSSD_ZRS", "Premium_LRS", "Premium_ZRS", "PremiumV2_LRS", "UltraSSD_LRS",
	}
}

// dataOnlyTypes returns the disk types from which no machine can boot.
func dataOnlyTypes() []string { return []string{"PremiumV2_LRS", "UltraSSD_LRS"} }

const (
	maxOSDiskGiB   = 4095
	maxDataDiskGiB = 65536
	// MaxDataDisks is the maximum number of data disks of a machine. Every LUN must be less than MaxDataDisks.
	MaxDataDisks       = 64
	maxInterfaces      = 8
	maxSpecTags        = 40 // Azure allows 50 tags for each resource.
	maxTagNameBytes    = 512
	maxTagValueBytes   = 256
	maxReferences      = 32
	maxResourceIDBytes = 1024
	maxSSHKeyBytes     = 8192
)

// reservedAdmins returns user names that Azure refuses for Linux machines.
// https://learn.microsoft.com/azure/virtual-machines/linux/faq
func reservedAdmins() []string {
	return []string{"administrator", "admin", "user", "user1", "test", "user2", "test1", "user3", "admin1", "1", "123",
		"a", "actuser", "adm",
		"admin2", "aspnet", "backup", "console", "david", "guest", "john", "owner", "root", "server", "sql", "support",
		"support_388945a0",
		"sys", "test2", "test3", "user4", "user5", "video"}
}

// validate returns the first error.
func (s *Spec) validate() error {
	checks := []func() error{
		func() error {
			return checkFormat("location", s.Location, locationFormat, "a region such as \"westeurope\"")
		},
		func() error {
			return checkFormat("resourceGroup", s.ResourceGroup, resourceGroupFormat, "the name of a resource group")
		},
		func() error { return checkFormat("vmSize", s.VMSize, sizeFormat, "a size such as \"Standard_D4s_v5\"") },
		s.Image.validate,
		s.OSDisk.validate,
		s.validateDataDisks,
		s.validateInterfaces,
		s.validatePlacement,
		s.validateSpot,
		s.validateIdentity,
		s.validateTags,
		s.validateLogin,
		s.validateBootDiagnostics,
		s.validateResize,
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func checkFormat(field, value string, format *regexp.Regexp, what string) error {
	if value == "" {
		return provider.InvalidField(field, "is required: %s", what)
	}
	if !format.MatchString(value) {
		return provider.InvalidField(field, "%.64q is not %s", value, what)
	}
	return nil
}

func oneOf(field, value string, all ...string) error {
	if value != "" && !slices.Contains(all, value) {
		return provider.InvalidField(field, "%.64q is not one of %s", value, strings.Join(all, ", "))
	}
	return nil
}

// resourceID returns an error if the ID is not of one of the resource types. An empty ID is allowed.
func resourceID(field, id string, types ...string) error {
	if id == "" {
		return nil
	}
	wanted := "the resource ID of a " + strings.Join(types, " or ")
	if len(id) > maxResourceIDBytes || strings.ContainsFunc(id, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune(`?#%\"<>`, r)
	}) {
		return provider.InvalidField(field, "%.64q is not %s", id, wanted)
	}
	parsed, err := arm.ParseResourceID(id)
	if err != nil || parsed.SubscriptionID == "" || parsed.ResourceGroupName == "" {
		return provider.InvalidField(field, "%.64q is not %s", id, wanted)
	}
	if !slices.ContainsFunc(types, func(t string) bool { return strings.EqualFold(t, parsed.ResourceType.String()) }) {
		return provider.InvalidField(field, "is the resource ID of a %.64s; it must be the resource ID of a %s",
			parsed.ResourceType.String(), strings.Join(types, " or "))
	}
	return nil
}

func resourceIDs(field string, ids []string, resourceType string) error {
	if len(ids) > maxReferences {
		return provider.InvalidField(field, "has %d entries, more than %d", len(ids), maxReferences)
	}
	for i, id := range ids {
		at := fmt.Sprintf("%s[%d]", field, i)
		if id == "" {
			return provider.InvalidField(at, "is empty")
		}
		if err := resourceID(at, id, resourceType); err != nil {
			return err
		}
		if slices.ContainsFunc(ids[:i], func(other string) bool { return strings.EqualFold(id, other) }) {
			return provider.InvalidField(at, "is a duplicate")
		}
	}
	return nil
}

func (i *Image) validate() error {
	given := 0
	for _, set := range []bool{i.Marketplace != nil, i.GalleryImageID != "", i.CommunityGalleryImageID != "",
		i.SharedGalleryImageID != ""} {
		if set {
			given++
		}
	}
	if given != 1 {
		return provider.InvalidField("image",
			"needs exactly one of marketplace, galleryImageID, communityGalleryImageID and sharedGalleryImageID, not %d", given)
	}
	if m := i.Marketplace; m != nil {
		for _, part := range []struct{ name, value string }{{"publisher", m.Publisher}, {"offer", m.Offer}, {"sku", m.SKU},
			{"version", m.Version}} {
			if err := checkFormat("image.marketplace."+part.name, part.value, imagePartFormat, "the "+part.name+
				" of an image"); err != nil {
				return err
			}
		}
	}
	if err := resourceID("image.galleryImageID", i.GalleryImageID,
		"Microsoft.Compute/galleries/images", "Microsoft.Compute/galleries/images/versions",
		"Microsoft.Compute/images"); err != nil {
		return err
	}
	if id := i.CommunityGalleryImageID; id != "" && !communityFormat.MatchString(id) {
		return provider.InvalidField("image.communityGalleryImageID",
			"%.64q does not have the format \"/CommunityGalleries/{name}/Images/{image}/Versions/{version}\"", id)
	}
	if id := i.SharedGalleryImageID; id != "" && !sharedFormat.MatchString(id) {
		return provider.InvalidField("image.sharedGalleryImageID",
			"%.64q does not have the format \"/SharedGalleries/{name}/Images/{image}/Versions/{version}\"", id)
	}
	if p := i.Plan; p != nil {
		for _, part := range []struct{ name, value string }{{"name", p.Name}, {"product", p.Product},
			{"publisher", p.Publisher}} {
			if err := checkFormat("image.plan."+part.name, part.value, imagePartFormat, "the "+part.name+
				" of a purchase plan"); err != nil {
				return err
			}
		}
	}
	return nil
}

const encryptionSet = "Microsoft.Compute/diskEncryptionSets"

func (d *OSDisk) validate() error {
	if d.SizeGiB < 0 || d.SizeGiB > maxOSDiskGiB {
		return provider.InvalidField("osDisk.sizeGiB", "%d is not between 1 and %d", d.SizeGiB, maxOSDiskGiB)
	}
	if slices.Contains(dataOnlyTypes(), d.StorageAccountType) {
		return provider.InvalidField("osDisk.storageAccountType", "a machine cannot boot from %s", d.StorageAccountType)
	}
	if err := oneOf("osDisk.storageAccountType", d.StorageAccountType, StorageAccountTypes()...); err != nil {
		return err
	}
	if err := oneOf("osDisk.caching", d.Caching, "None", "ReadOnly", "ReadWrite"); err != nil {
		return err
	}
	if err := resourceID("osDisk.diskEncryptionSetID", d.DiskEncryptionSetID, encryptionSet); err != nil {
		return err
	}
	if d.Ephemeral == nil {
		return nil
	}
	// https://learn.microsoft.com/azure/virtual-machines/ephemeral-os-disks-faq
	if d.Caching != "" && d.Caching != "ReadOnly" {
		return provider.InvalidField("osDisk.caching", "must be ReadOnly if osDisk.ephemeral is set, not %s", d.Caching)
	}
	if d.StorageAccountType != "" && d.StorageAccountType != "Standard_LRS" {
		return provider.InvalidField("osDisk.storageAccountType",
			"must be Standard_LRS if osDisk.ephemeral is set, not %s", d.StorageAccountType)
	}
	return oneOf("osDisk.ephemeral.placement", d.Ephemeral.Placement, "CacheDisk", "ResourceDisk", "NvmeDisk")
}

func (s *Spec) validateDataDisks() error {
	if len(s.DataDisks) > MaxDataDisks {
		return provider.InvalidField("dataDisks", "has %d entries, more than %d", len(s.DataDisks), MaxDataDisks)
	}
	luns := map[int32]bool{}
	for i, d := range s.DataDisks {
		at := fmt.Sprintf("dataDisks[%d].", i)
		switch {
		case d.LUN == nil:
			return provider.InvalidField(at+"lun", "is required")
		case *d.LUN < 0 || *d.LUN >= MaxDataDisks:
			return provider.InvalidField(at+"lun", "%d is not between 0 and %d", *d.LUN, MaxDataDisks-1)
		case luns[*d.LUN]:
			return provider.InvalidField(at+"lun", "%d is a duplicate", *d.LUN)
		case d.SizeGiB < 1 || d.SizeGiB > maxDataDiskGiB:
			return provider.InvalidField(at+"sizeGiB", "%d is not between 1 and %d", d.SizeGiB, maxDataDiskGiB)
		case d.Caching != "" && d.Caching != "None" && slices.Contains(dataOnlyTypes(), d.StorageAccountType):
			return provider.InvalidField(at+"caching", "%s disks have no cache", d.StorageAccountType)
		}
		luns[*d.LUN] = true
		if err := oneOf(at+"storageAccountType", d.StorageAccountType, StorageAccountTypes()...); err != nil {
			return err
		}
		if err := oneOf(at+"caching", d.Caching, "None", "ReadOnly", "ReadWrite"); err != nil {
			return err
		}
		if err := resourceID(at+"diskEncryptionSetID", d.DiskEncryptionSetID, encryptionSet); err != nil {
			return err
		}
	}
	return nil
}

func (s *Spec) validateInterfaces() error {
	if n := len(s.NetworkInterfaces); n < 1 || n > maxInterfaces {
		return provider.InvalidField("networkInterfaces", "has %d entries, not 1 to %d", n, maxInterfaces)
	}
	for i, n := range s.NetworkInterfaces {
		at := fmt.Sprintf("networkInterfaces[%d].", i)
		if n.SubnetID == "" {
			return provider.InvalidField(at+"subnetID", "is required")
		}
		if err := resourceID(at+"subnetID", n.SubnetID, "Microsoft.Network/virtualNetworks/subnets"); err != nil {
			return err
		}
		if err := resourceID(at+"securityGroupID", n.SecurityGroupID, "Microsoft.Network/networkSecurityGroups"); err != nil {
			return err
		}
		if err := resourceIDs(at+"applicationSecurityGroupIDs", n.ApplicationSecurityGroupIDs,
			"Microsoft.Network/applicationSecurityGroups"); err != nil {
			return err
		}
		if err := resourceIDs(at+"loadBalancerBackendPoolIDs", n.LoadBalancerBackendPoolIDs,
			"Microsoft.Network/loadBalancers/backendAddressPools"); err != nil {
			return err
		}
	}
	return nil
}

func (s *Spec) validatePlacement() error {
	if s.Zone != "" {
		if err := checkFormat("zone", s.Zone, zoneFormat, "a zone such as \"1\""); err != nil {
			return err
		}
	}
	if err := resourceID("availabilitySetID", s.AvailabilitySetID, "Microsoft.Compute/availabilitySets"); err != nil {
		return err
	}
	if err := resourceID("scaleSetID", s.ScaleSetID, "Microsoft.Compute/virtualMachineScaleSets"); err != nil {
		return err
	}
	if err := resourceID("capacityReservationGroupID", s.CapacityReservationGroupID,
		"Microsoft.Compute/capacityReservationGroups"); err != nil {
		return err
	}
	switch {
	case s.AvailabilitySetID != "" && s.Zone != "":
		return provider.InvalidField("availabilitySetID", "a machine in a zone cannot be in an availability set")
	case s.AvailabilitySetID != "" && s.ScaleSetID != "":
		return provider.InvalidField("availabilitySetID", "a machine in a scale set cannot be in an availability set")
	case s.FaultDomain != nil && s.ScaleSetID == "":
		return provider.InvalidField("faultDomain", "needs scaleSetID")
	case s.FaultDomain != nil && (*s.FaultDomain < 0 || *s.FaultDomain > 4):
		return provider.InvalidField("faultDomain", "%d is not between 0 and 4", *s.FaultDomain)
	}
	return nil
}

func (s *Spec) validateSpot() error {
	if s.Spot == nil {
		return nil
	}
	// https://learn.microsoft.com/azure/virtual-machines/spot-vms
	if p := s.Spot.MaxPrice; p != nil && *p != -1 && (*p <= 0 || *p > 100000 || math.IsNaN(*p)) {
		return provider.InvalidField("spot.maxPrice", "%g is neither -1 nor a price between 0 and 100000 dollars", *p)
	}
	if s.AvailabilitySetID != "" {
		return provider.InvalidField("spot", "a spot machine cannot be in an availability set")
	}
	if s.CapacityReservationGroupID != "" {
		return provider.InvalidField("spot", "a spot machine cannot use a capacity reservation")
	}
	if s.Spot.EvictionPolicy == "Deallocate" && s.OSDisk.Ephemeral != nil {
		return provider.InvalidField("spot.evictionPolicy", "a machine with an ephemeral disk cannot be deallocated")
	}
	return oneOf("spot.evictionPolicy", s.Spot.EvictionPolicy, "Delete", "Deallocate")
}

func (s *Spec) validateIdentity() error {
	return resourceIDs("identity.userAssignedIDs", s.Identity.UserAssignedIDs,
		"Microsoft.ManagedIdentity/userAssignedIdentities")
}

func (s *Spec) validateTags() error {
	if len(s.Tags) > maxSpecTags {
		return provider.InvalidField("tags", "has %d entries, more than %d", len(s.Tags), maxSpecTags)
	}
	folded := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(s.Tags)) {
		value := s.Tags[key]
		lower := strings.ToLower(key)
		switch {
		// https://learn.microsoft.com/azure/azure-resource-manager/management/tag-resources
		case key == "" || len(key) > maxTagNameBytes || strings.ContainsAny(key, `<>%&\?/,`) || !printable(key):
			return provider.InvalidField("tags",
				"%.64q is not the name of a tag: 1 to %d printable characters without < > %% & \\ ? / and comma", key,
				maxTagNameBytes)
		case strings.HasPrefix(lower, "machinist"):
			return provider.InvalidField("tags", "%.64q is reserved for Machinist", key)
		case strings.HasPrefix(lower, "azure") || strings.HasPrefix(lower, "microsoft") ||
			strings.HasPrefix(lower, "windows"):
			return provider.InvalidField("tags", "%.64q has a prefix that is reserved for Azure", key)
		case folded[lower]:
			return provider.InvalidField("tags", "%.64q is a duplicate: Azure ignores the case of tag names", key)
		case len(value) > maxTagValueBytes || !printable(value):
			return provider.InvalidField("tags", "the value of %.64q is longer than %d bytes or not printable", key,
				maxTagValueBytes)
		}
		folded[lower] = true
	}
	if n := len(s.TagNames()); n > maxTagValueBytes {
		return provider.InvalidField("tags", "the names have %d bytes in total, more than %d", n, maxTagValueBytes)
	}
	return nil
}

func printable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f || r == '�' })
}

func (s *Spec) validateLogin() error {
	if s.AdminUsername != "" {
		if err := checkFormat("adminUsername", s.AdminUsername, usernameFormat, "the name of a Linux user"); err != nil {
			return err
		}
		if slices.Contains(reservedAdmins(), s.AdminUsername) {
			return provider.InvalidField("adminUsername", "Azure does not allow %q", s.AdminUsername)
		}
	}
	if s.SSHPublicKey == "" {
		return provider.InvalidField("sshPublicKey", "is required")
	}
	// A user may have entered a private key, so the message omits the value.
	if len(s.SSHPublicKey) > maxSSHKeyBytes || !sshKeyFormat.MatchString(s.SSHPublicKey) {
		return provider.InvalidField("sshPublicKey",
			"is not a public key in OpenSSH format of the type ssh-rsa or ssh-ed25519")
	}
	return nil
}

func (s *Spec) validateBootDiagnostics() error {
	if s.BootDiagnostics == nil || s.BootDiagnostics.StorageURI == "" {
		return nil
	}
	u, err := url.Parse(s.BootDiagnostics.StorageURI)
	if err != nil || len(s.BootDiagnostics.StorageURI) > maxResourceIDBytes || u.Scheme != "https" || u.Host == "" ||
		u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.Trim(u.Path, "/") != "" {
		return provider.InvalidField("bootDiagnostics.storageURI",
			"is not the blob endpoint of a storage account, such as \"https://name.blob.core.windows.net/\"")
	}
	return nil
}

func (s *Spec) validateResize() error {
	if err := oneOf("resize", string(s.Resize), string(ResizeNever), string(ResizeDeallocate)); err != nil {
		return err
	}
	if s.Resize == ResizeDeallocate && s.OSDisk.Ephemeral != nil {
		return provider.InvalidField("resize", "a machine with an ephemeral disk cannot be deallocated")
	}
	return nil
}
