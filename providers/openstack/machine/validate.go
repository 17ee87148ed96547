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

// validate checks one field after the other and returns the first that is wrong.
func (s *Spec) validate() error {
	checks := []func() error{
		func() error { return regionName("region", s.Region) },
		func() error { return zoneName("availabilityZone", s.AvailabilityZone) },
		func() error { return requiredName("flavor", s.Flavor, "the name or the ID of a flavor") },
		s.Image.validate,
		s.validateVolumes,
		func() error { return names("securityGroups", s.SecurityGroups) },
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
	given := 0
	for _, is := range []bool{i.ID != "", i.Name != "", i.Tags != nil} {
		if is {
			given++
		}
	}
	if given != 1 {
		return provider.InvalidField("image", "needs exactly one of id, name and tags, not %d", given)
	}
	// The image service gives and takes no other IDs.
	if i.ID != "" && !uuidFormat.MatchString(i.ID) {
		return provider.InvalidField("image.id", "%.64q is not a UUID: an image's name belongs into image.name", i.ID)
	}
	if err := optionalName("image.name", i.Name); err != nil {
		return err
	}
	// Without a tag, every image would have all of them.
	if i.Tags != nil && len(i.Tags) == 0 {
		return provider.InvalidField("image.tags", "is empty")
	}
	return names("image.tags", i.Tags)
}

func (s *Spec) validateVolumes() error {
	if root := s.RootVolume; root != nil {
		if err := volume("rootVolume.", root.SizeGiB, root.Type, root.AvailabilityZone); err != nil {
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
			return provider.InvalidField(at+"name", "%q is what the root volume is called", v.Name)
		case seen[v.Name]:
			return provider.InvalidField(at+"name", "%q is there twice", v.Name)
		}
		seen[v.Name] = true
		if err := volume(at, v.SizeGiB, v.Type, v.AvailabilityZone); err != nil {
			return err
		}
	}
	return nil
}

// volume checks what all volumes have. at is their path with the dot after it.
func volume(at string, sizeGiB int32, volumeType, zone string) error {
	if sizeGiB < 1 || sizeGiB > maxSizeGiB {
		return provider.InvalidField(at+"sizeGiB", "%d is not between 1 and %d", sizeGiB, maxSizeGiB)
	}
	if err := optionalName(at+"type", volumeType); err != nil {
		return err
	}
	return optionalName(at+"availabilityZone", zone)
}

// regionName refuses what cannot be the host of a provider ID. Empty is fine.
func regionName(field, region string) error {
	if err := optionalName(field, region); err != nil {
		return err
	}
	if strings.ContainsAny(region, " /") {
		return provider.InvalidField(field, "%.64q has a space or a slash, which the provider ID cannot have", region)
	}
	return nil
}

// zoneName refuses what Nova reads as more than a zone. Empty is fine.
func zoneName(field, zone string) error {
	if err := optionalName(field, zone); err != nil {
		return err
	}
	// https://docs.openstack.org/nova/latest/admin/availability-zones.html: zone:host:node
	if strings.Contains(zone, ":") {
		return provider.InvalidField(field, "%.64q names a host, which needs an administrator: give the zone alone", zone)
	}
	return nil
}
