// Package catalog defines the configuration file of a simulated cloud: what the cloud offers, and its accounts.
// Every section is optional.
//
//	regions:
//	- name: mars
//	  zones:
//	  - {name: mars-a, capacity: {large: 3}}
//	  - {name: mars-b}
//	instanceTypes:
//	- {name: large, architecture: amd64, cpus: 8, memoryMiB: 32768, ephemeralStorageGiB: 100, inPlace: restart}
//	images:
//	- {name: os-1, osImage: "OS 1", kubeletVersion: v1.36.3, inPlace: restart}
//	accounts:
//	- {name: alice, token: s3cret, quotas: {mars: {maxInstances: 100}}}
//	- {name: auditor, token: other, readOnly: true}
//	settings:
//	  bootTime: 30s
//	  bootJitter: 10s
//	  host: {podStartTime: 2s}
package catalog

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"regexp"
	"time"

	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/simcloud"
)

// Catalog is the content of the configuration file. If the file lacks a section, the section of the default catalog
// applies: see Default.
type Catalog struct {
	Regions       []Region                `json:"regions,omitempty"`
	InstanceTypes []simcloud.InstanceType `json:"instanceTypes,omitempty"`
	Images        []simcloud.Image        `json:"images,omitempty"`
	Accounts      []Account               `json:"accounts,omitempty"`
	// KubeletInPlace is the mode in which UpdateInstance changes the kubelet version.
	KubeletInPlace simcloud.InPlaceMode `json:"kubeletInPlace,omitempty"`
	// Settings apply until an administrator changes them through the API. A setting that is not in the file has its
	// default value.
	Settings simcloud.Settings `json:"settings,omitempty"`
}

// Region is a region and its zones. The first zone is the default.
type Region struct {
	Name  string `json:"name"`
	Zones []Zone `json:"zones"`
}

// Zone is a zone of a region.
type Zone struct {
	Name string `json:"name"`
	// Capacity is the maximum number of instances in the zone by instance type. A type without an entry has no limit.
	Capacity map[string]int `json:"capacity,omitempty"`
}

// Account is a customer of the cloud.
type Account struct {
	Name  string `json:"name"`
	Token string `json:"token"`
	// ReadOnly accounts cannot change anything.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Regions are the regions that the account may use. Default: all.
	Regions []string `json:"regions,omitempty"`
	// Quotas limit the instances of the account in each region. The keys are names of regions. Default: no limit.
	Quotas map[string]simcloud.Quota `json:"quotas,omitempty"`
}

// Default returns the default catalog. The result has no accounts.
func Default() *Catalog {
	second, half := simcloud.Duration(time.Second), simcloud.Duration(500*time.Millisecond)
	return &Catalog{
		Regions: []Region{
			{Name: "sim-1", Zones: []Zone{{Name: "sim-1a"}, {Name: "sim-1b"}, {Name: "sim-1c"}}},
			{Name: "sim-2", Zones: []Zone{{Name: "sim-2a"}, {Name: "sim-2b"}}},
		},
		InstanceTypes: []simcloud.InstanceType{
			{Name: "small", Architecture: "amd64", CPUs: 2, MemoryMiB: 4 << 10, EphemeralStorageGiB: 20,
				InPlace: simcloud.InPlaceLive},
			{Name: "medium", Architecture: "amd64", CPUs: 4, MemoryMiB: 16 << 10, EphemeralStorageGiB: 50,
				InPlace: simcloud.InPlaceLive},
			{Name: "large", Architecture: "amd64", CPUs: 16, MemoryMiB: 64 << 10, EphemeralStorageGiB: 100,
				InPlace: simcloud.InPlaceRestart},
			{Name: "gpu", Architecture: "amd64", CPUs: 8, MemoryMiB: 32 << 10, EphemeralStorageGiB: 100, GPUs: 1,
				InPlace: simcloud.InPlaceUnsupported},
			{Name: "small-arm", Architecture: "arm64", CPUs: 2, MemoryMiB: 4 << 10, EphemeralStorageGiB: 20,
				InPlace: simcloud.InPlaceUnsupported},
		},
		Images: []simcloud.Image{
			{Name: "sim-os-1", OSImage: "Simulated OS 1", InPlace: simcloud.InPlaceRestart},
			{Name: "sim-os-2", OSImage: "Simulated OS 2", InPlace: simcloud.InPlaceRestart},
			{Name: "sim-os-agent", OSImage: "Simulated OS with an agent", InPlace: simcloud.InPlaceRestart, NodeAgent: true},
			{Name: "sim-os-immutable", OSImage: "Simulated Immutable OS", InPlace: simcloud.InPlaceUnsupported},
		},
		KubeletInPlace: simcloud.InPlaceRestart,
		Settings: simcloud.Settings{
			BootTime:          second,
			RebootTime:        second,
			StopTime:          second,
			ShutdownTime:      second,
			TerminatedVisible: simcloud.Duration(10 * time.Minute),
			TokenRetention:    simcloud.Duration(24 * time.Hour),
			Host:              simcloud.HostSettings{PodStartTime: half, PodStopTime: half, CloudDelay: half},
		},
	}
}

// Load reads a configuration file. It does not call Validate, because the caller may add accounts before the
// validation.
func Load(path string) (*Catalog, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the cloud configuration: %w", err)
	}
	c, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("parse the cloud configuration %s: %w", path, err)
	}
	return c, nil
}

// Parse parses the text of a configuration file, YAML or JSON.
func Parse(data []byte) (*Catalog, error) {
	var file Catalog
	c := Default()
	file.Settings, file.KubeletInPlace = c.Settings, c.KubeletInPlace
	if err := yaml.UnmarshalStrict(data, &file); err != nil {
		return nil, err
	}
	if file.Regions == nil {
		file.Regions = c.Regions
	}
	if file.InstanceTypes == nil {
		file.InstanceTypes = c.InstanceTypes
	}
	if file.Images == nil {
		file.Images = c.Images
	}
	for i := range file.InstanceTypes {
		if file.InstanceTypes[i].InPlace == "" {
			file.InstanceTypes[i].InPlace = simcloud.InPlaceUnsupported
		}
	}
	for i := range file.Images {
		if file.Images[i].InPlace == "" {
			file.Images[i].InPlace = simcloud.InPlaceUnsupported
		}
	}
	return &file, nil
}

var (
	// nameFormat applies to all names in the catalog, because they become labels of Nodes and path segments of provider
	// IDs.
	nameFormat    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	versionFormat = regexp.MustCompile(`^v[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}(-[0-9A-Za-z.-]{1,64})?$`)
)

// IsVersion reports whether a kubelet version has a form such as "v1.36.3".
func IsVersion(version string) bool { return versionFormat.MatchString(version) }

// Validate returns all errors of the catalog.
func (c *Catalog) Validate() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	names := func(what string) func(string) {
		seen := map[string]bool{}
		return func(name string) {
			if !nameFormat.MatchString(name) {
				fail("%s: %q must consist of at most 63 lower case letters, digits and '-'", what, name)
			}
			if seen[name] {
				fail("%s: %q occurs twice", what, name)
			}
			seen[name] = true
		}
	}
	mode := func(what string, m simcloud.InPlaceMode) {
		switch m {
		case simcloud.InPlaceLive, simcloud.InPlaceRestart, simcloud.InPlaceUnsupported:
		default:
			fail("%s: %q must be live, restart or unsupported", what, m)
		}
	}

	region, zone := names("regions.name"), names("regions.zones.name")
	for _, r := range c.Regions {
		region(r.Name)
		if len(r.Zones) == 0 {
			fail("regions.zones: region %q must have at least one zone", r.Name)
		}
		for _, z := range r.Zones {
			zone(z.Name)
			for t, n := range z.Capacity {
				if c.InstanceType(t) == nil || n < 0 {
					fail("regions.zones.capacity: %q: %d in zone %q must be an existing type and a number from 0", t, n, z.Name)
				}
			}
		}
	}
	instanceType := names("instanceTypes.name")
	for _, t := range c.InstanceTypes {
		instanceType(t.Name)
		mode("instanceTypes.inPlace", t.InPlace)
		if t.CPUs < 1 || t.MemoryMiB < 1 || t.EphemeralStorageGiB < 1 || t.GPUs < 0 {
			fail("instanceTypes: cpus, memoryMiB and ephemeralStorageGiB of %q must be greater than 0, and gpus must not be "+
				"negative", t.Name)
		}
		if t.Architecture != "amd64" && t.Architecture != "arm64" {
			fail("instanceTypes.architecture: %q of %q must be amd64 or arm64", t.Architecture, t.Name)
		}
		if t.BootTime != nil && *t.BootTime < 0 {
			fail("instanceTypes.bootTime: %s of %q is negative", t.BootTime, t.Name)
		}
	}
	image := names("images.name")
	for _, i := range c.Images {
		image(i.Name)
		mode("images.inPlace", i.InPlace)
		if i.KubeletVersion != "" && !IsVersion(i.KubeletVersion) {
			fail("images.kubeletVersion: %q of %q must have the form v1.2.3", i.KubeletVersion, i.Name)
		}
	}
	mode("kubeletInPlace", c.KubeletInPlace)
	account, tokens := names("accounts.name"), map[string]bool{}
	for _, a := range c.Accounts {
		account(a.Name)
		if a.Token == "" || tokens[a.Token] {
			fail("accounts.token: the token of %q is empty or belongs to another account", a.Name)
		}
		tokens[a.Token] = true
		for _, r := range a.Regions {
			if c.Region(r) == nil {
				fail("accounts.regions: %q of %q does not exist", r, a.Name)
			}
		}
		for r, q := range a.Quotas {
			if c.Region(r) == nil {
				fail("accounts.quotas: region %q of %q does not exist", r, a.Name)
			}
			if err := ValidateQuota(q); err != nil {
				fail("accounts.quotas: %q of %q: %w", r, a.Name, err)
			}
		}
	}
	if err := ValidateSettings(c.Settings); err != nil {
		fail("settings.%w", err)
	}
	return errors.Join(errs...)
}

// ValidateQuota returns an error if a limit is negative.
func ValidateQuota(q simcloud.Quota) error {
	if (q.MaxInstances != nil && *q.MaxInstances < 0) || (q.MaxCPUs != nil && *q.MaxCPUs < 0) {
		return errors.New("a limit must not be negative")
	}
	return nil
}

// ValidateSettings returns an error if a duration is negative or too long.
func ValidateSettings(s simcloud.Settings) error {
	const most = simcloud.Duration(10 * 365 * 24 * time.Hour)
	for name, d := range map[string]simcloud.Duration{
		"bootTime": s.BootTime, "bootJitter": s.BootJitter, "rebootTime": s.RebootTime,
		"stopTime": s.StopTime, "shutdownTime": s.ShutdownTime,
		"terminatedVisible": s.TerminatedVisible, "tokenRetention": s.TokenRetention, "readLag": s.ReadLag,
		"semantics.getLag": s.Semantics.GetLag, "semantics.listLag": s.Semantics.ListLag,
		"semantics.tagLag":      s.Semantics.TagLag,
		"semantics.addressHold": s.Semantics.AddressHold,
		"semantics.quotaLag":    s.Semantics.QuotaLag, "semantics.stateReturns": s.Semantics.StateReturns,
		"host.podStartTime": s.Host.PodStartTime, "host.podStopTime": s.Host.PodStopTime,
		"host.nodeReadyDelay": s.Host.NodeReadyDelay, "host.cloudDelay": s.Host.CloudDelay,
	} {
		if d < 0 || d > most {
			return fmt.Errorf("%s: %s must be between 0 and ten years", name, d)
		}
	}
	for name, n := range map[string]int{
		"semantics.listOmits": s.Semantics.ListOmits, "semantics.answerPadding": s.Semantics.AnswerPadding,
	} {
		if n < 0 || n > 1<<30 {
			return fmt.Errorf("%s: %d must be between 0 and %d", name, n, 1<<30)
		}
	}
	if s.GuestIP != "" {
		if _, err := netip.ParseAddr(s.GuestIP); err != nil {
			return fmt.Errorf("guestIP: %.64q is not an IP address", s.GuestIP)
		}
	}
	const day = simcloud.Duration(24 * time.Hour)
	if offset := s.Semantics.ClockOffset; offset < -day || offset > day {
		return fmt.Errorf("semantics.clockOffset: %s must be at most one day", offset)
	}
	return nil
}

// Region returns the region with this name, or nil.
func (c *Catalog) Region(name string) *Region {
	return find(c.Regions, func(r *Region) bool { return r.Name == name })
}

// Zone returns the zone with this name, or nil.
func (r *Region) Zone(name string) *Zone {
	return find(r.Zones, func(z *Zone) bool { return z.Name == name })
}

// InstanceType returns the type with this name, or nil.
func (c *Catalog) InstanceType(name string) *simcloud.InstanceType {
	return find(c.InstanceTypes, func(t *simcloud.InstanceType) bool { return t.Name == name })
}

// Image returns the image with this name, or nil.
func (c *Catalog) Image(name string) *simcloud.Image {
	return find(c.Images, func(i *simcloud.Image) bool { return i.Name == name })
}

// Account returns the account with this name, or nil.
func (c *Catalog) Account(name string) *Account {
	return find(c.Accounts, func(a *Account) bool { return a.Name == name })
}

func find[T any](all []T, is func(*T) bool) *T {
	for i := range all {
		if is(&all[i]) {
			return &all[i]
		}
	}
	return nil
}
