package machine

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

// These formats follow the limits of EC2.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RunInstances.html
var (
	regionFormat  = regexp.MustCompile(`^[a-z]{2}(-[a-z]{2,12}){1,3}-[1-9][0-9]?$`)
	typeFormat    = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}\.[a-z0-9-]{1,32}$`)
	imageFormat   = regexp.MustCompile(`^ami-([0-9a-f]{8}|[0-9a-f]{17})$`)
	subnetFormat  = regexp.MustCompile(`^subnet-([0-9a-f]{8}|[0-9a-f]{17})$`)
	groupFormat   = regexp.MustCompile(`^sg-([0-9a-f]{8}|[0-9a-f]{17})$`)
	hostFormat    = regexp.MustCompile(`^h-[0-9a-f]{17}$`)
	reserveFormat = regexp.MustCompile(`^cr-[0-9a-f]{17}$`)
	arnFormat     = regexp.MustCompile(`^arn:aws[-a-z]*:[-a-z0-9]{1,32}:[-a-z0-9]{0,32}:[0-9]{0,12}:[\x21-\x7e]{1,512}$`)
	profileFormat = regexp.MustCompile(`^[\w+=,.@-]{1,128}$`)
	kmsFormat     = regexp.MustCompile(`^([0-9a-f-]{36}|mrk-[0-9a-f]{32}|alias/[\w/-]{1,250})$`)
	deviceFormat  = regexp.MustCompile(`^/dev/(sd[b-z][1-9]?[0-9]?|xvd[b-z][a-z]?)$`)
	textFormat    = regexp.MustCompile(`^[\x20-\x7e]{1,255}$`)
	priceFormat   = regexp.MustCompile(`^[0-9]{1,5}(\.[0-9]{1,6})?$`)
	// tagFormat contains the characters that all services of AWS allow in tags.
	// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html#tag-restrictions
	tagFormat = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$`)
)

const (
	maxSecurityGroups = 5
	maxInterfaces     = 15
	maxDataVolumes    = 26
	maxSpecTags       = 40 // EC2 allows 50 tags for each resource.
	maxTagName        = 128
	maxTagValue       = 256
	maxAddresses      = 50
)

// VolumeTypes returns the types of EBS volumes.
func VolumeTypes() []string { return []string{"gp2", "gp3", "io1", "io2", "st1", "sc1", "standard"} }

// validate returns the first error.
func (s *Spec) validate() error {
	checks := []func() error{
		func() error { return checkFormat("region", s.Region, regionFormat, "a region such as \"eu-west-1\"") },
		func() error {
			return checkFormat("instanceType", s.InstanceType, typeFormat, "an instance type such as \"m6i.large\"")
		},
		func() error {
			return checkFormat("imageID", s.ImageID, imageFormat, "the ID of an AMI, such as \"ami-0123456789abcdef0\"")
		},
		func() error { return s.Subnet.validate("subnet", subnetFormat, "the ID of a subnet") },
		func() error { return validateGroups("securityGroups", s.SecurityGroups, true) },
		s.validateInterfaces,
		s.validateIdentity,
		s.validateTags,
		func() error { return s.RootVolume.validate("rootVolume.", true) },
		s.validateDataVolumes,
		s.validateAddresses,
		s.validateMetadata,
		s.validatePlacement,
		s.validateReservation,
		s.validateSpot,
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
	return checkOptional(field, value, format, what)
}

func checkOptional(field, value string, format *regexp.Regexp, what string) error {
	if value != "" && !format.MatchString(value) {
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

func inRange(field string, value, least, most int32) error {
	if value < least || value > most {
		return provider.InvalidField(field, "%d is not between %d and %d", value, least, most)
	}
	return nil
}

func (r *Reference) validate(field string, format *regexp.Regexp, what string) error {
	switch {
	case r.ID == "" && len(r.Tags) == 0:
		return provider.InvalidField(field, "needs an id or tags")
	case r.ID != "" && len(r.Tags) > 0:
		return provider.InvalidField(field, "has both an id and tags")
	case r.ID != "":
		return checkOptional(field+".id", r.ID, format, what)
	}
	return validateTags(field+".tags", r.Tags, 10)
}

func validateGroups(field string, groups []Reference, required bool) error {
	if len(groups) > maxSecurityGroups || required && len(groups) == 0 {
		return provider.InvalidField(field, "has %d entries, not 1 to %d", len(groups), maxSecurityGroups)
	}
	for i := range groups {
		at := fmt.Sprintf("%s[%d]", field, i)
		if err := groups[i].validate(at, groupFormat, "the ID of a security group"); err != nil {
			return err
		}
		if slices.ContainsFunc(groups[:i], func(other Reference) bool {
			return other.ID == groups[i].ID && maps.Equal(other.Tags, groups[i].Tags)
		}) {
			return provider.InvalidField(at, "is a duplicate")
		}
	}
	return nil
}

func (s *Spec) validateInterfaces() error {
	if n := len(s.NetworkInterfaces); n >= maxInterfaces {
		return provider.InvalidField("networkInterfaces", "has %d entries, more than %d", n, maxInterfaces-1)
	}
	for i := range s.NetworkInterfaces {
		n := &s.NetworkInterfaces[i]
		at := fmt.Sprintf("networkInterfaces[%d].", i)
		if err := n.Subnet.validate(at+"subnet", subnetFormat, "the ID of a subnet"); err != nil {
			return err
		}
		if err := validateGroups(at+"securityGroups", n.SecurityGroups, false); err != nil {
			return err
		}
	}
	return nil
}

func (s *Spec) validateIdentity() error {
	if strings.HasPrefix(s.IAMInstanceProfile, "arn:") {
		if !arnFormat.MatchString(s.IAMInstanceProfile) || !strings.Contains(s.IAMInstanceProfile, ":instance-profile/") {
			return provider.InvalidField("iamInstanceProfile", "%.64q is not the ARN of an instance profile",
				s.IAMInstanceProfile)
		}
	} else if err := checkOptional("iamInstanceProfile", s.IAMInstanceProfile, profileFormat,
		"the name or the ARN of an instance profile"); err != nil {
		return err
	}
	return checkOptional("keyName", s.KeyName, textFormat, "the name of a key pair")
}

func (s *Spec) validateTags() error {
	if err := validateTags("tags", s.Tags, maxSpecTags); err != nil {
		return err
	}
	for _, key := range slices.Sorted(maps.Keys(s.Tags)) {
		if strings.HasPrefix(strings.ToLower(key), "machinist-") {
			return provider.InvalidField("tags", "%.64q is reserved for Machinist", key)
		}
	}
	return nil
}

func validateTags(field string, tags map[string]string, most int) error {
	if len(tags) > most {
		return provider.InvalidField(field, "has %d entries, more than %d", len(tags), most)
	}
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		value := tags[key]
		switch {
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			return provider.InvalidField(field, "%.64q has the prefix aws:, which is reserved for AWS", key)
		case key == "" || len([]rune(key)) > maxTagName || !tagFormat.MatchString(key):
			return provider.InvalidField(field,
				"%.64q is not the name of a tag: 1 to %d letters, digits, spaces and _ . : / = + - @", key, maxTagName)
		case len([]rune(value)) > maxTagValue || !tagFormat.MatchString(value):
			return provider.InvalidField(field,
				"the value of %.64q is not 0 to %d letters, digits, spaces and _ . : / = + - @", key, maxTagValue)
		}
	}
	return nil
}

// validate checks the limits of EBS. https://docs.aws.amazon.com/ebs/latest/userguide/ebs-volume-types.html
func (v *Volume) validate(at string, isRoot bool) error {
	if err := oneOf(at+"volumeType", v.VolumeType, VolumeTypes()...); err != nil {
		return err
	}
	typ := v.VolumeType
	if typ == "" {
		typ = "gp3"
	}
	least := map[string]int32{"io1": 4, "io2": 4, "st1": 125, "sc1": 125}[typ]
	most := map[string]int32{"standard": 1024, "gp2": 16384, "io1": 16384, "st1": 16384, "sc1": 16384}[typ]
	orDefault(&least, 1)
	orDefault(&most, 65536)
	if !isRoot && v.SizeGiB == 0 {
		return provider.InvalidField(at+"sizeGiB", "is required: the size in GiB")
	}
	if v.SizeGiB != 0 && (v.SizeGiB < least || v.SizeGiB > most) {
		return provider.InvalidField(at+"sizeGiB", "%d is not between %d and %d, the limits of %s volumes", v.SizeGiB,
			least,
			most, typ)
	}
	switch {
	case isRoot && (typ == "st1" || typ == "sc1"):
		return provider.InvalidField(at+"volumeType", "an instance cannot boot from a volume of type %s", typ)
	case v.IOPS == 0 && (typ == "io1" || typ == "io2"):
		return provider.InvalidField(at+"iops", "is required for volumes of type %s", typ)
	case v.IOPS != 0 && typ != "io1" && typ != "io2" && typ != "gp3":
		return provider.InvalidField(at+"iops", "is not allowed for volumes of type %s", typ)
	case v.IOPS != 0 && (v.IOPS < 100 || v.IOPS > 256000):
		return provider.InvalidField(at+"iops", "%d is not between 100 and 256000", v.IOPS)
	case typ == "gp3" && v.IOPS != 0 && v.IOPS < 3000:
		return provider.InvalidField(at+"iops", "%d is less than 3000, the minimum of gp3 volumes", v.IOPS)
	case v.Throughput != 0 && typ != "gp3":
		return provider.InvalidField(at+"throughput", "is not allowed for volumes of type %s", typ)
	case v.Throughput != 0 && (v.Throughput < 125 || v.Throughput > 2000):
		return provider.InvalidField(at+"throughput", "%d is not between 125 and 2000", v.Throughput)
	case v.KMSKeyID != "" && v.Encrypted != nil && !*v.Encrypted:
		return provider.InvalidField(at+"kmsKeyID", "cannot be set if encrypted is false")
	case v.KMSKeyID != "" && !kmsFormat.MatchString(v.KMSKeyID) && !arnFormat.MatchString(v.KMSKeyID):
		return provider.InvalidField(at+"kmsKeyID", "%.64q is not the ID, the alias or the ARN of a KMS key", v.KMSKeyID)
	}
	return nil
}

func (s *Spec) validateDataVolumes() error {
	if n := len(s.DataVolumes); n > maxDataVolumes {
		return provider.InvalidField("dataVolumes", "has %d entries, more than %d", n, maxDataVolumes)
	}
	seen := map[string]bool{}
	for i := range s.DataVolumes {
		v := &s.DataVolumes[i]
		at := fmt.Sprintf("dataVolumes[%d].", i)
		if err := checkFormat(at+"deviceName", v.DeviceName, deviceFormat, "a device such as \"/dev/sdf\""); err != nil {
			return err
		}
		if seen[v.DeviceName] {
			return provider.InvalidField(at+"deviceName", "%q is a duplicate", v.DeviceName)
		}
		seen[v.DeviceName] = true
		if err := v.validate(at, false); err != nil {
			return err
		}
	}
	return nil
}

func (s *Spec) validateAddresses() error {
	for _, count := range []struct {
		field string
		value int32
	}{{"ipv6AddressCount", s.IPv6AddressCount}, {"ipv4PrefixCount", s.IPv4PrefixCount},
		{"ipv6PrefixCount", s.IPv6PrefixCount}} {
		if err := inRange(count.field, count.value, 0, maxAddresses); err != nil {
			return err
		}
	}
	switch {
	case s.IPv6AddressCount > 0 && s.IPv6PrefixCount > 0:
		return provider.InvalidField("ipv6PrefixCount", "cannot be combined with ipv6AddressCount")
	case s.AssociatePublicIPAddress != nil && len(s.NetworkInterfaces) > 0:
		return provider.InvalidField("associatePublicIPAddress",
			"cannot be combined with networkInterfaces: EC2 assigns public addresses only to instances with one interface")
	}
	return oneOf("hostnameType", string(s.HostnameType), string(HostnameIPName), string(HostnameResourceName))
}

func (s *Spec) validateMetadata() error {
	m := &s.MetadataOptions
	if err := oneOf("metadataOptions.httpTokens", m.HTTPTokens, "required", "optional"); err != nil {
		return err
	}
	if err := oneOf("metadataOptions.httpEndpoint", m.HTTPEndpoint, "enabled", "disabled"); err != nil {
		return err
	}
	if err := oneOf("metadataOptions.instanceMetadataTags", m.InstanceMetadataTags, "enabled", "disabled"); err != nil {
		return err
	}
	if m.InstanceMetadataTags == "enabled" {
		for _, key := range slices.Sorted(maps.Keys(s.Tags)) {
			if strings.ContainsAny(key, " /") {
				return provider.InvalidField("tags",
					"%.64q contains a space or a slash, which EC2 refuses while metadataOptions.instanceMetadataTags is enabled",
					key)
			}
		}
	}
	return inRange("metadataOptions.httpPutResponseHopLimit", m.HTTPPutResponseHopLimit, 0, 64)
}

func (s *Spec) validatePlacement() error {
	p := &s.Placement
	if err := oneOf("placement.tenancy", p.Tenancy, "default", "dedicated", "host"); err != nil {
		return err
	}
	if err := checkOptional("placement.hostID", p.HostID, hostFormat, "the ID of a Dedicated Host"); err != nil {
		return err
	}
	if err := checkOptional("placement.groupName", p.GroupName, textFormat,
		"the name of a placement group"); err != nil {
		return err
	}
	if err := inRange("placement.partitionNumber", p.PartitionNumber, 0, 7); err != nil {
		return err
	}
	switch {
	case p.HostID != "" && p.Tenancy != "host":
		return provider.InvalidField("placement.hostID", "needs the tenancy host")
	case p.PartitionNumber > 0 && p.GroupName == "":
		return provider.InvalidField("placement.partitionNumber", "needs groupName")
	case s.CPUOptions == nil:
		return nil
	}
	if err := inRange("cpuOptions.coreCount", s.CPUOptions.CoreCount, 1, 512); err != nil {
		return err
	}
	return inRange("cpuOptions.threadsPerCore", s.CPUOptions.ThreadsPerCore, 1, 2)
}

func (s *Spec) validateReservation() error {
	r := &s.CapacityReservation
	if err := checkOptional("capacityReservation.id", r.ID, reserveFormat,
		"the ID of a capacity reservation"); err != nil {
		return err
	}
	if err := checkOptional("capacityReservation.resourceGroupARN", r.ResourceGroupARN, arnFormat,
		"the ARN of a resource group"); err != nil {
		return err
	}
	if err := oneOf("capacityReservation.preference", r.Preference, "open", "none"); err != nil {
		return err
	}
	given := 0
	for _, value := range []string{r.ID, r.ResourceGroupARN, r.Preference} {
		if value != "" {
			given++
		}
	}
	if given > 1 {
		return provider.InvalidField("capacityReservation", "has %d fields; set at most one", given)
	}
	return nil
}

// validateSpot checks the limits of Spot instances.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-requests.html
func (s *Spec) validateSpot() error {
	if s.Spot == nil {
		return nil
	}
	if price := s.Spot.MaxPrice; price != "" {
		value, err := strconv.ParseFloat(price, 64)
		if !priceFormat.MatchString(price) || err != nil || value < 0.001 {
			return provider.InvalidField("spot.maxPrice",
				"%.64q is not a price of at least 0.001 dollars, such as \"0.0464\"",
				price)
		}
	}
	switch {
	case s.Placement.Tenancy == "host":
		return provider.InvalidField("spot", "a Spot instance cannot run on a Dedicated Host")
	case s.CapacityReservation.ID != "" || s.CapacityReservation.ResourceGroupARN != "":
		return provider.InvalidField("spot", "a Spot instance cannot use a capacity reservation")
	case s.Resize == ResizeStopAndStart:
		return provider.InvalidField("resize", "EC2 cannot stop a Spot instance: the value must be %s", ResizeNever)
	}
	return nil
}

func (s *Spec) validateResize() error {
	if err := inRange("maxPods", s.MaxPods, 0, 1024); err != nil {
		return err
	}
	return oneOf("resize", string(s.Resize), string(ResizeNever), string(ResizeStopAndStart))
}
