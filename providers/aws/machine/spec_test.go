package machine_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/aws/machine"
	"machinist.dev/machinist/providers/aws/machine/sample"
)

func TestParseSpecSetsDefaults(t *testing.T) {
	s, err := machine.ParseSpec(sample.Spec())
	if err != nil {
		t.Fatal(err)
	}
	m := s.MetadataOptions
	if m.HTTPTokens != "required" || m.HTTPPutResponseHopLimit != 1 || m.HTTPEndpoint != "enabled" ||
		m.InstanceMetadataTags != "disabled" {
		t.Errorf("the metadata options are %+v", m)
	}
	for _, v := range []machine.Volume{s.RootVolume, s.DataVolumes[0].Volume} {
		if v.Encrypted == nil || !*v.Encrypted || v.VolumeType != "gp3" {
			t.Errorf("a volume is %+v", v)
		}
	}
	if s.HostnameType != machine.HostnameIPName || s.Resize != machine.ResizeNever || s.MaxPods != 110 ||
		s.Placement.Tenancy != "default" || s.SourceDestCheck == nil || !*s.SourceDestCheck {
		t.Errorf("the defaults are %+v", s)
	}
}

func TestParseSpecAccepts(t *testing.T) {
	tags := map[string]any{}
	for i := range 40 {
		tags[fmt.Sprintf("tag-%d", i)] = strings.Repeat("x", 256)
	}
	for name, changes := range map[string][]any{
		"references by tags": {"subnet", map[string]any{"tags": map[string]any{"role": "nodes"}},
			"securityGroups", []any{map[string]any{"tags": map[string]any{"role": "nodes"}}}},
		"40 tags":            {"tags", tags},
		"a GovCloud region":  {"region", "us-gov-west-1"},
		"spot":               {"spot.maxPrice", "0.0464"},
		"spot without price": {"spot", map[string]any{}},
		"a dedicated host":   {"placement.tenancy", "host", "placement.hostID", "h-0123456789abcdef0"},
		"a partition":        {"placement.groupName", "racks", "placement.partitionNumber", 7},
		"a reservation":      {"capacityReservation.id", "cr-0123456789abcdef0"},
		"CPU options":        {"cpuOptions", map[string]any{"coreCount": 1, "threadsPerCore": 1}},
		"io2":                {"rootVolume.volumeType", "io2", "rootVolume.iops", 1000},
		"a KMS alias":        {"rootVolume.kmsKeyID", "alias/nodes"},
		"a KMS ARN": {"rootVolume.kmsKeyID",
			"arn:aws:kms:eu-west-1:111122223333:key/01234567-89ab-cdef-0123-456789abcdef"},
		"no encryption":         {"rootVolume.encrypted", false},
		"a profile by ARN":      {"iamInstanceProfile", "arn:aws:iam::111122223333:instance-profile/nodes"},
		"a profile by name":     {"iamInstanceProfile", "nodes"},
		"an instance with IPv6": {"ipv6AddressCount", 1, "ipv4PrefixCount", 2},
		"more interfaces": {"networkInterfaces",
			[]any{map[string]any{"subnet": map[string]any{"id": sample.Subnet}}}},
	} {
		if _, err := machine.ParseSpec(sample.Spec(changes...)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestParseSpecRefuses(t *testing.T) {
	group := func(id string) map[string]any { return map[string]any{"id": id} }
	volume := func(fields ...any) []any {
		v := map[string]any{"deviceName": "/dev/sdf", "sizeGiB": 10}
		for i := 0; i < len(fields); i += 2 {
			v[fields[i].(string)] = fields[i+1]
		}
		return []any{v}
	}
	many := map[string]any{}
	for i := range 51 {
		many[fmt.Sprintf("tag-%d", i)] = ""
	}
	for _, test := range []struct {
		field   string
		changes []any
	}{
		{"region", []any{"region", nil}},
		{"region", []any{"region", "eu-west"}},
		{"region", []any{"region", "evil.example.com/eu-west-1"}},
		{"instanceType", []any{"instanceType", "large"}},
		{"imageID", []any{"imageID", nil}},
		{"imageID", []any{"imageID", "ami-latest"}},
		{"subnet", []any{"subnet", nil}},
		{"subnet", []any{"subnet", map[string]any{"id": sample.Subnet, "tags": map[string]any{"a": "b"}}}},
		{"subnet.id", []any{"subnet.id", "vpc-0123456789abcdef0"}},
		{"subnet.tags", []any{"subnet", map[string]any{"tags": map[string]any{"aws:cloudformation:stack-name": "x"}}}},
		{"securityGroups", []any{"securityGroups", nil}},
		{"securityGroups", []any{"securityGroups", []any{group("sg-00000001"), group("sg-00000002"), group("sg-00000003"),
			group("sg-00000004"), group("sg-00000005"), group("sg-00000006")}}},
		{"securityGroups[1]", []any{"securityGroups", []any{group("sg-00000001"), group("sg-00000001")}}},
		{"securityGroups[0].id", []any{"securityGroups", []any{group("default")}}},
		{"networkInterfaces[0].subnet", []any{"networkInterfaces", []any{map[string]any{}}}},
		{"networkInterfaces", []any{"networkInterfaces", make([]map[string]any, 15)}},
		{"tags", []any{"tags", many}},
		{"tags", []any{"tags", map[string]any{"aws:team": "x"}}},
		{"tags", []any{"tags", map[string]any{"AWS:team": "x"}}},
		{"tags", []any{"tags", map[string]any{"Machinist-cluster": "x"}}},
		{"tags", []any{"tags", map[string]any{"": "x"}}},
		{"tags", []any{"tags", map[string]any{"team": "a<b"}}},
		{"tags", []any{"tags", map[string]any{"team": strings.Repeat("x", 257)}}},
		{"tags", []any{"tags", map[string]any{"cost center": "x"}, "metadataOptions.instanceMetadataTags", "enabled"}},
		{"rootVolume.volumeType", []any{"rootVolume.volumeType", "gp4"}},
		{"rootVolume.volumeType", []any{"rootVolume.volumeType", "st1", "rootVolume.sizeGiB", 500}},
		{"rootVolume.sizeGiB", []any{"rootVolume.sizeGiB", 65537}},
		{"rootVolume.sizeGiB", []any{"rootVolume.sizeGiB", -1}},
		{"rootVolume.sizeGiB", []any{"rootVolume.volumeType", "gp2", "rootVolume.sizeGiB", 16385}},
		{"rootVolume.iops", []any{"rootVolume.volumeType", "io1"}},
		{"rootVolume.iops", []any{"rootVolume.iops", 100}},
		{"rootVolume.iops", []any{"rootVolume.volumeType", "gp2", "rootVolume.iops", 3000}},
		{"rootVolume.throughput", []any{"rootVolume.throughput", 2001}},
		{"rootVolume.throughput", []any{"rootVolume.volumeType", "gp2", "rootVolume.throughput", 125}},
		{"rootVolume.kmsKeyID", []any{"rootVolume.kmsKeyID", "not a key"}},
		{"rootVolume.kmsKeyID", []any{"rootVolume.kmsKeyID", "alias/x", "rootVolume.encrypted", false}},
		{"dataVolumes[0].sizeGiB", []any{"dataVolumes", volume("sizeGiB", 0)}},
		{"dataVolumes[0].deviceName", []any{"dataVolumes", volume("deviceName", "sdf")}},
		{"dataVolumes[0].deviceName", []any{"dataVolumes", volume("deviceName", "/dev/xvda")}},
		{"dataVolumes[1].deviceName", []any{"dataVolumes", append(volume(), volume()...)}},
		{"ipv6PrefixCount", []any{"ipv6AddressCount", 1, "ipv6PrefixCount", 1}},
		{"ipv4PrefixCount", []any{"ipv4PrefixCount", -1}},
		{"associatePublicIPAddress", []any{"associatePublicIPAddress", true, "networkInterfaces",
			[]any{map[string]any{"subnet": map[string]any{"id": sample.Subnet}}}}},
		{"hostnameType", []any{"hostnameType", "custom"}},
		{"metadataOptions.httpTokens", []any{"metadataOptions.httpTokens", "yes"}},
		{"metadataOptions.httpPutResponseHopLimit", []any{"metadataOptions.httpPutResponseHopLimit", 65}},
		{"placement.tenancy", []any{"placement.tenancy", "shared"}},
		{"placement.hostID", []any{"placement.hostID", "h-0123456789abcdef0"}},
		{"placement.partitionNumber", []any{"placement.partitionNumber", 1}},
		{"cpuOptions.coreCount", []any{"cpuOptions", map[string]any{"threadsPerCore": 1}}},
		{"cpuOptions.threadsPerCore", []any{"cpuOptions", map[string]any{"coreCount": 1, "threadsPerCore": 3}}},
		{"capacityReservation", []any{"capacityReservation",
			map[string]any{"id": "cr-0123456789abcdef0", "preference": "none"}}},
		{"spot.maxPrice", []any{"spot.maxPrice", "free"}},
		{"spot.maxPrice", []any{"spot.maxPrice", "0"}},
		{"spot", []any{"spot", map[string]any{}, "placement.tenancy", "host"}},
		{"spot", []any{"spot", map[string]any{}, "capacityReservation.id", "cr-0123456789abcdef0"}},
		{"resize", []any{"spot", map[string]any{}, "resize", "StopAndStart"}},
		{"resize", []any{"resize", "Always"}},
		{"iamInstanceProfile", []any{"iamInstanceProfile", "arn:aws:iam::111122223333:role/nodes"}},
		{"iamInstanceProfile", []any{"iamInstanceProfile", "two words"}},
		{"maxPods", []any{"maxPods", 1025}},
	} {
		_, err := machine.ParseSpec(sample.Spec(test.changes...))
		e, ok := errors.AsType[*provider.Error](err)
		if !ok || e.Code != provider.InvalidArgument || e.Field != test.field {
			t.Errorf("%v: got %v, want InvalidArgument for the field %s", test.changes, err, test.field)
		}
	}
}
