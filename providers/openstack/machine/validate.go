package machine

import (
	"fmt"
	"strings"

	"machinist.dev/machinist/pkg/provider"
)

const (
	maxVolumes         = 16
	maxVolumeNameBytes = 16
	maxSizeGiB         = 16384
	maxReferences      = 32
)

// validate returns the first error.
func (s *Spec) validate() error {
	checks := []func() error{
		func() error { return regionName("region", s.Region) },
		func() error { return zoneName("availabilityZone", s.AvailabilityZone) },
		func() error { return requiredName("flavor", s.Flavor, "the name or the ID of a flavor") },
		s.Image.validate,
		s.validateVolumes,
		func() error { return nameList("securityGroups", s.SecurityGroups) },
		s.validatePorts,
		func() error { return optionalName("serverGroup", s.ServerGroup) },
		func() error { return optionalName("keyPair", s.KeyPair) },
		s.validateMetadata,
		s.validateTags,
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (i *Image) validate() error {
	count := 0
	for _, set := range []bool{i.ID != "", i.Name != "", i.Tags != nil} {
		if set {
			count++
		}
	}
	if count != 1 {
		return provider.InvalidField("image", "requires exactly one of id, name and tags, not %d", count)
	}
	// The image service accepts only UUIDs as IDs.
	if i.ID != "" && !uuidFormat.MatchString(i.ID) {
		return provider.InvalidField("image.id", "%.64q is not a UUID; set the name of an image in image.name", i.ID)
	}
	if err := optionalName("image.name", i.Name); err != nil {
		return err
	}
	// An empty list of tags would match every image.
	if i.Tags != nil && len(i.Tags) == 0 {
		return provider.InvalidField("image.tags", "is empty")
	}
	return nameList("image.tags", i.Tags)
}

func (s *Spec) validateVolumes() error {
	if root := s.RootVolume; root != nil {
		if err := validateVolume("rootVolume.", root.SizeGiB, root.Type, root.AvailabilityZone); err != nil {
			return err
		}
	}
	if len(s.Volumes) > maxVolumes {
		return provider.InvalidField("volumes", "has %d entries, more than %d", len(s.Volumes), maxVolumes)
	}
	seen := map[string]bool{}
	for i, v := range s.Volumes {
		at := fmt.Sprintf("volumes[%d].", i)
		switch {
		case v.Name == "":
			return provider.InvalidField(at+"name", "is required")
		case len(v.Name) > maxVolumeNameBytes || !labelFormat.MatchString(v.Name):
			return provider.InvalidField(at+"name",
				"%.64q is not a DNS label of at most %d characters: lower case letters, digits and inner hyphens",
				v.Name, maxVolumeNameBytes)
		case v.Name == RootVolumeName:
			return provider.InvalidField(at+"name", "%q is the name of the root volume", v.Name)
		case seen[v.Name]:
			return provider.InvalidField(at+"name", "%q is used twice", v.Name)
		}
		seen[v.Name] = true
		if err := validateVolume(at, v.SizeGiB, v.Type, v.AvailabilityZone); err != nil {
			return err
		}
	}
	return nil
}

// validateVolume validates the fields of all kinds of volumes. path is the path of the volume with a final dot.
func validateVolume(path string, sizeGiB int32, volumeType, zone string) error {
	if sizeGiB < 1 || sizeGiB > maxSizeGiB {
		return provider.InvalidField(path+"sizeGiB", "%d is not between 1 and %d", sizeGiB, maxSizeGiB)
	}
	if err := optionalName(path+"type", volumeType); err != nil {
		return err
	}
	return optionalName(path+"availabilityZone", zone)
}

// regionName refuses a name that cannot stand in the host part of a provider ID. An empty name is accepted.
func regionName(field, region string) error {
	if err := optionalName(field, region); err != nil {
		return err
	}
	if strings.ContainsAny(region, " /") {
		return provider.InvalidField(field, "%.64q contains a space or a slash, which a provider ID must not contain", region)
	}
	return nil
}

// zoneName refuses a value that Nova would interpret as a zone with a host. An empty value is accepted.
func zoneName(field, zone string) error {
	if err := optionalName(field, zone); err != nil {
		return err
	}
	// https://docs.openstack.org/nova/latest/admin/availability-zones.html: zone:host:node
	if strings.Contains(zone, ":") {
		return provider.InvalidField(field, "%.64q names a host, which only administrators may do; set only the zone", zone)
	}
	return nil
}
