package catalog

import (
	"os"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/simcloud"
)

func TestEmptyFileHasDefaults(t *testing.T) {
	c, err := Parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if c.Region("sim-1").Zone("sim-1b") == nil || c.InstanceType("gpu").GPUs != 1 || c.Image("sim-os-1") == nil {
		t.Errorf("defaults are missing: %+v", c)
	}
}

func TestSectionsReplaceDefaultsAndSettingsMerge(t *testing.T) {
	c, err := Parse([]byte(`
regions: [{name: mars, zones: [{name: mars-a, capacity: {tiny: 3}}]}]
instanceTypes: [{name: tiny, architecture: arm64, cpus: 1, memoryMiB: 512, ephemeralStorageGiB: 1}]
accounts: [{name: a, token: s3cret, quotas: {mars: {maxInstances: 2}}}]
settings: {bootTime: 5s, host: {podStartTime: 1m}}
`))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if c.Region("sim-1") != nil || c.Region("mars").Zone("mars-a").Capacity["tiny"] != 3 {
		t.Errorf("regions: %+v", c.Regions)
	}
	if c.InstanceType("tiny").InPlace != simcloud.InPlaceUnsupported {
		t.Errorf("in-place mode: %q", c.InstanceType("tiny").InPlace)
	}
	d := Default().Settings
	d.BootTime, d.Host.PodStartTime = simcloud.Duration(5*time.Second), simcloud.Duration(time.Minute)
	if c.Settings != d {
		t.Errorf("settings: %+v", c.Settings)
	}
}

func TestExampleInDocumentationIsValid(t *testing.T) {
	source, err := os.ReadFile("catalog.go")
	if err != nil {
		t.Fatal(err)
	}
	var example strings.Builder
	for line := range strings.Lines(string(source)) {
		if text, ok := strings.CutPrefix(line, "//\t"); ok {
			example.WriteString(text)
		}
	}
	c, err := Parse([]byte(example.String()))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil || c.Account("auditor") == nil {
		t.Errorf("%v: %+v", err, c)
	}
}

func TestInvalidConfigurationIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		`regoins: []`: "regoins",
		`regions: [{name: "A", zones: [{name: a}]}]`:                                                    "regions.name",
		`regions: [{name: a, zones: []}]`:                                                               "regions.zones",
		`regions: [{name: a, zones: [{name: z}]},{name: b, zones: [{name: z}]}]`:                        "twice",
		`regions: [{name: a, zones: [{name: z, capacity: {nope: 1}}]}]`:                                 "capacity",
		`instanceTypes: [{name: a, architecture: amd64}]`:                                               "cpus",
		`instanceTypes: [{name: a, architecture: mips, cpus: 1, memoryMiB: 1, ephemeralStorageGiB: 1}]`: "mips",
		`images: [{name: a, inPlace: maybe}]`:                                                           "maybe",
		`images: [{name: a, kubeletVersion: latest}]`:                                                   "latest",
		`accounts: [{name: a}]`:                                                                         "accounts.token",
		`accounts: [{name: a, token: x},{name: b, token: x}]`:                                           "accounts.token",
		`accounts: [{name: a, token: x, regions: [nowhere]}]`:                                           "nowhere",
		`accounts: [{name: a, token: x, quotas: {sim-1: {maxCPUs: -1}}}]`:                               "negative",
		`settings: {bootTime: -1s}`:                                                                     "bootTime",
		`settings: {bootTime: 5}`:                                                                       "duration",
		`kubeletInPlace: sometimes`:                                                                     "kubeletInPlace",
	} {
		c, err := Parse([]byte(text))
		if err == nil {
			err = c.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, expected an error with %q", text, err, want)
		}
	}
}
