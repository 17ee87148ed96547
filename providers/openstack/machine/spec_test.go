package machine_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/openstack/machine"
	"machinist.dev/machinist/providers/openstack/machine/sample"
)

const imageID = "6b3f1d0a-4a5e-4c5f-9a44-1f6f1c0d2e3b"

// fullSpec returns a providerSpec with every field that can be combined with the others.
func fullSpec() []byte {
	return sample.Spec(
		"availabilityZone", "az-1", "image", object{"id": imageID},
		"rootVolume", object{"sizeGiB": 16384, "type": "ssd", "availabilityZone": "nova"},
		"volumes[0]", object{"name": "data-0123456789a", "sizeGiB": 1, "type": "hdd", "availabilityZone": "nova"},
		"ports[0]", object{
			"network": "nodes",
			"fixedAddresses": []any{
				object{"subnet": "nodes-4", "address": "10.0.0.5"}, object{"subnet": "nodes-6"}, object{"address": "fd00::5"},
			},
			"securityGroups": []any{"workers", "Ünïcode"},
			"allowedAddressPairs": []any{
				object{"address": "10.244.0.0/16"}, object{"address": "10.0.0.9", "macAddress": "FA:16:3e:00:00:01"},
				object{"address": "10.0.0.9"}, object{"address": "fd00:1::/64"},
			},
			"portSecurity": true, "vnicType": "direct", "trunk": true,
		},
		"ports[1]", object{"existing": "fixed"}, "ports[2]", object{"network": "storage", "portSecurity": false},
		"configDrive", true, "metadata", object{"cost.centre_1:a b": "12", "empty": ""},
	)
}

type object = map[string]any

func many(n int, entry func(i int) any) []any {
	list := make([]any, n)
	for i := range list {
		list[i] = entry(i)
	}
	return list
}

func repeated(entry any) func(int) any { return func(int) any { return entry } }

func numbered(prefix string) func(int) any { return func(i int) any { return fmt.Sprint(prefix, i) } }

func TestValidSpecsAreAccepted(t *testing.T) {
	for name, raw := range map[string][]byte{
		"sample":     sample.Spec(),
		"all fields": fullSpec(),
		"only required fields": sample.Spec("region", nil, "volumes", nil, "securityGroups", nil, "serverGroup", nil,
			"keyPair", nil, "metadata", nil, "tags", nil),
		"an image by tags":  sample.Spec("image", object{"tags": []any{"debian", "v12"}}),
		"a flavor by ID":    sample.Spec("flavor", "42"),
		"eight ports":       sample.Spec("ports", many(8, repeated(object{"network": sample.Network}))),
		"one network twice": sample.Spec("ports[1].network", sample.Network),
		"sixteen volumes": sample.Spec("volumes",
			many(16, func(i int) any { return object{"name": fmt.Sprint("v", i), "sizeGiB": 1} })),
		"no port security":   sample.Spec("ports[0].portSecurity", false),
		"long names":         sample.Spec("keyPair", strings.Repeat("ü", 255), "tags", []any{strings.Repeat("ü", 60)}),
		"a long value":       sample.Spec("metadata.team", strings.Repeat("ü", 255)),
		"names in 255 bytes": sample.Spec("metadata", object{strings.Repeat("x", 127): "", strings.Repeat("y", 127): ""}),
		"all addresses":      sample.Spec("ports[0].allowedAddressPairs", []any{object{"address": "0.0.0.0/0"}}),
	} {
		if _, err := machine.ParseSpec(raw); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A new field without tests fails this test.
func TestValidSpecsCoverEveryField(t *testing.T) {
	given := map[string]bool{}
	for _, raw := range [][]byte{fullSpec(), sample.Spec(), sample.Spec("image", object{"tags": []any{"debian"}})} {
		var all any
		if err := json.Unmarshal(raw, &all); err != nil {
			t.Fatal(err)
		}
		collect("", all, given)
	}
	var visit func(path string, of reflect.Type)
	visit = func(path string, of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct {
			return
		}
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			at := strings.TrimPrefix(path+"."+name, ".")
			if !given[at] {
				t.Errorf("the field %s is not part of any specification in these tests", at)
			}
			visit(at, field.Type)
		}
	}
	visit("", reflect.TypeFor[machine.Spec]())
}

func collect(path string, value any, into map[string]bool) {
	into[path] = true
	switch value := value.(type) {
	case map[string]any:
		for key, child := range value {
			collect(strings.TrimPrefix(path+"."+key, "."), child, into)
		}
	case []any:
		for _, child := range value {
			collect(path, child, into)
		}
	}
}

func TestInvalidSpecsAreRefusedWithField(t *testing.T) {
	const (
		addresses = "ports[0].fixedAddresses"
		pairs     = "ports[0].allowedAddressPairs"
	)
	long := strings.Repeat("x", 256)
	volume := object{"name": "data", "sizeGiB": 1}
	for name, tc := range map[string]struct {
		raw   []byte
		field string
		// value is a text that the message must contain.
		value string
	}{
		"an unknown field":      {sample.Spec("ports[0].subnet", "x"), "ports[0].subnet", ""},
		"a region with a slash": {sample.Spec("region", "a/b"), "region", "a/b"},
		"a region with a space": {sample.Spec("region", "Region One"), "region", "Region One"},
		"a zone with a host": {sample.Spec("availabilityZone", "nova:host-1"),
			"availabilityZone", "nova:host-1"},
		"a long zone":                       {sample.Spec("availabilityZone", long), "availabilityZone", "255"},
		"no flavor":                         {sample.Spec("flavor", nil), "flavor", "required"},
		"a flavor with a control character": {sample.Spec("flavor", "m1\tsmall"), "flavor", `m1\tsmall`},
		"a flavor that ends in a space":     {sample.Spec("flavor", "m1 "), "flavor", "m1 "},
		"no image":                          {sample.Spec("image", nil), "image", "not 0"},
		"two images":                        {sample.Spec("image.id", imageID), "image", "not 2"},
		"an image whose ID is a name":       {sample.Spec("image", object{"id": "debian-12"}), "image.id", "debian-12"},
		"an image with a long name":         {sample.Spec("image.name", long), "image.name", "255"},
		"an image without tags":             {sample.Spec("image", object{"tags": []any{}}), "image.tags", "empty"},
		"an image with an empty tag": {sample.Spec("image", object{"tags": []any{"a", ""}}),
			"image.tags[1]", "empty"},
		"an image with a repeated tag": {sample.Spec("image", object{"tags": []any{"a", "a"}}),
			"image.tags[1]", `"a"`},
		"no size of the root volume": {sample.Spec("rootVolume", object{}), "rootVolume.sizeGiB", "0"},
		"a large root volume":        {sample.Spec("rootVolume.sizeGiB", 16385), "rootVolume.sizeGiB", "16385"},
		"an unprintable type of the root volume": {sample.Spec("rootVolume", object{"sizeGiB": 1, "type": "\x00"}),
			"rootVolume.type", `\x00`},
		"a long zone of the root volume": {sample.Spec("rootVolume", object{"sizeGiB": 1, "availabilityZone": long}),
			"rootVolume.availabilityZone", "255"},
		"a volume without a name": {sample.Spec("volumes[0].name", nil), "volumes[0].name", "required"},
		"a volume with a long name": {sample.Spec("volumes[0].name", "data-0123456789ab"),
			"volumes[0].name", "data-0123456789ab"},
		"a volume name in upper case": {sample.Spec("volumes[0].name", "Data"), "volumes[0].name", "Data"},
		"a volume called root":        {sample.Spec("volumes[0].name", "root"), "volumes[0].name", "root"},
		"a repeated volume":           {sample.Spec("volumes[1]", volume), "volumes[1].name", "data"},
		"a volume without a size":     {sample.Spec("volumes[0].sizeGiB", nil), "volumes[0].sizeGiB", "0"},
		"a negative volume size":      {sample.Spec("volumes[0].sizeGiB", -1), "volumes[0].sizeGiB", "-1"},
		"a long volume type":          {sample.Spec("volumes[0].type", long), "volumes[0].type", "255"},
		"a volume zone with a space": {sample.Spec("volumes[0].availabilityZone", " a"),
			"volumes[0].availabilityZone", " a"},
		"many volumes":                     {sample.Spec("volumes", many(17, repeated(volume))), "volumes", "17"},
		"no port":                          {sample.Spec("ports", nil), "ports", "0"},
		"many ports":                       {sample.Spec("ports", many(9, repeated(object{"network": "n"}))), "ports", "9"},
		"a port without a network":         {sample.Spec("ports[1]", object{"trunk": true}), "ports[1]", "exactly one"},
		"a port with network and existing": {sample.Spec("ports[0].existing", "p"), "ports[0]", "exactly one"},
		"a long network name":              {sample.Spec("ports[0].network", long), "ports[0].network", "255"},
		"a long port name":                 {sample.Spec("ports[0]", object{"existing": long}), "ports[0].existing", "255"},
		"a repeated existing port": {sample.Spec("ports", many(2, repeated(object{"existing": "p"}))),
			"ports[1].existing", `"p"`},
		"a trunk on an existing port": {sample.Spec("ports[0]", object{"existing": "p", "trunk": true}),
			"ports[0].trunk", `"p"`},
		"port security of an existing port": {sample.Spec("ports[0]", object{"existing": "p", "portSecurity": false}),
			"ports[0].portSecurity", `"p"`},
		"a VNIC type of an existing port": {sample.Spec("ports[0]", object{"existing": "p", "vnicType": "direct"}),
			"ports[0].vnicType", `"p"`},
		"security groups of an existing port": {sample.Spec("ports[0]", object{"existing": "p", "securityGroups": []any{}}),
			"ports[0].securityGroups", `"p"`},
		"an empty address": {sample.Spec(addresses, []any{object{}}), addresses + "[0]", ""},
		"an invalid address": {sample.Spec(addresses+"[0].address", "10.0.0.256"),
			addresses + "[0].address", "10.0.0.256"},
		"an address with a zone": {sample.Spec(addresses+"[0].address", "fe80::1%eth0"),
			addresses + "[0].address", "fe80::1%eth0"},
		"a mapped address": {sample.Spec(addresses+"[0].address", "::ffff:10.0.0.5"),
			addresses + "[0].address", "::ffff:10.0.0.5"},
		"a network as address": {sample.Spec(addresses+"[0].address", "10.0.0.0/24"),
			addresses + "[0].address", "10.0.0.0/24"},
		"a subnet with a space": {sample.Spec(addresses+"[0].subnet", " a"), addresses + "[0].subnet", " a"},
		"many addresses": {sample.Spec(addresses, many(5, repeated(object{"subnet": "a"}))),
			addresses, "5"},
		"a repeated group": {sample.Spec("ports[0].securityGroups", []any{"a", "a"}),
			"ports[0].securityGroups[1]", `"a"`},
		"an empty list of groups": {sample.Spec("ports[0].securityGroups", []any{}),
			"ports[0].securityGroups", "empty"},
		"a group without port security": {sample.Spec("ports[0].securityGroups", []any{"a"}, "ports[0].portSecurity", false),
			"ports[0].securityGroups", "portSecurity"},
		"a pair without port security": {sample.Spec(pairs+"[0].address", "10.0.0.9", "ports[0].portSecurity", false),
			pairs, "portSecurity"},
		"a pair without an address": {sample.Spec(pairs, []any{object{}}), pairs + "[0].address", "required"},
		"a name as pair":            {sample.Spec(pairs+"[0].address", "pods"), pairs + "[0].address", "pods"},
		"a pair with an invalid prefix": {sample.Spec(pairs+"[0].address", "10.0.0.0/33"),
			pairs + "[0].address", "10.0.0.0/33"},
		"a pair with host bits": {sample.Spec(pairs+"[0].address", "10.244.1.0/16"),
			pairs + "[0].address", "10.244.0.0/16"},
		"a repeated pair": {sample.Spec(pairs, []any{object{"address": "10.0.0.9"}, object{"address": "10.0.0.9/32"}}),
			pairs + "[1]", "10.0.0.9/32"},
		"a MAC address with hyphens": {sample.Spec(pairs,
			[]any{object{"address": "10.0.0.9", "macAddress": "fa-16-3e-00-00-01"}}),
			pairs + "[0].macAddress", "fa-16-3e-00-00-01"},
		"a broadcast address": {sample.Spec(pairs,
			[]any{object{"address": "10.0.0.9", "macAddress": "FF:ff:ff:ff:ff:ff"}}),
			pairs + "[0].macAddress", "FF:ff:ff:ff:ff:ff"},
		"many pairs": {sample.Spec(pairs, many(33, repeated(object{"address": "10.0.0.9"}))),
			pairs, "33"},
		"an unknown VNIC type": {sample.Spec("ports[0].vnicType", "Normal"), "ports[0].vnicType", "Normal"},
		"an empty group":       {sample.Spec("securityGroups", []any{""}), "securityGroups[0]", "empty"},
		"many groups": {sample.Spec("securityGroups", many(33, numbered("g"))),
			"securityGroups", "33"},
		"a long server group":       {sample.Spec("serverGroup", long), "serverGroup", "255"},
		"a key instead of its name": {sample.Spec("keyPair", "ssh-ed25519 "+long), "keyPair", "255"},
		"reserved metadata": {sample.Spec("metadata", object{"Machinist-cluster": "x"}),
			"metadata", "Machinist-cluster"},
		"metadata with a slash": {sample.Spec("metadata", object{"kubernetes.io/x": "x"}),
			"metadata", "kubernetes.io/x"},
		"metadata with a comma":             {sample.Spec("metadata", object{"a,b": "x"}), "metadata", "a,b"},
		"metadata without a name":           {sample.Spec("metadata", object{"": "x"}), "metadata", `""`},
		"metadata that differ only in case": {sample.Spec("metadata", object{"Team": "x", "team": "y"}), "metadata", "team"},
		"metadata with a long value":        {sample.Spec("metadata.a", long), "metadata", `"a"`},
		"an unprintable value":              {sample.Spec("metadata.a", "\n"), "metadata", `"a"`},
		"long names of metadata": {sample.Spec("metadata",
			object{strings.Repeat("x", 128): "", strings.Repeat("y", 127): ""}),
			"metadata", "256"},
		"many metadata":      {sample.Spec("metadata", many41()), "metadata", "41"},
		"a reserved tag":     {sample.Spec("tags", []any{"machinist"}), "tags[0]", "machinist"},
		"a tag with a slash": {sample.Spec("tags", []any{"a", "a/b"}), "tags[1]", "a/b"},
		"a tag with a comma": {sample.Spec("tags", []any{"a,b"}), "tags[0]", "a,b"},
		"a long tag":         {sample.Spec("tags", []any{strings.Repeat("x", 61)}), "tags[0]", "60"},
		"an empty tag":       {sample.Spec("tags", []any{""}), "tags[0]", `""`},
		"a repeated tag":     {sample.Spec("tags", []any{"a", "a"}), "tags[1]", `"a"`},
		"long tags": {sample.Spec("tags", many(5, numbered(strings.Repeat("x", 51)))),
			"tags", "264"},
		"many tags": {sample.Spec("tags", many(41, numbered("t"))), "tags", "41"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := machine.ParseSpec(tc.raw)
			e, ok := errors.AsType[*provider.Error](err)
			if !ok || e.Code != provider.InvalidArgument || e.Field != tc.field {
				t.Fatalf("got %v, want InvalidArgument with the field %q", err, tc.field)
			}
			if !strings.Contains(e.Message, tc.value) || len(e.Message) > 400 {
				t.Errorf("the message does not contain %q, or is too long: %s", tc.value, e.Message)
			}
		})
	}
}

func many41() object {
	all := object{}
	for i := range 41 {
		all[fmt.Sprint("m", i)] = ""
	}
	return all
}

func TestGroupsOfPort(t *testing.T) {
	s, err := machine.ParseSpec(sample.Spec("securityGroups", []any{"b", "a"},
		"ports[1]", object{"network": "n", "securityGroups": []any{"z", "c"}},
		"ports[2]", object{"network": "n", "portSecurity": false}, "ports[3]", object{"existing": "p"}))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]string{{"a", "b"}, {"c", "z"}, nil, nil} {
		if got := s.GroupsOf(s.Ports[i]); !slices.Equal(got, want) {
			t.Errorf("port %d: got the groups %q, want %q", i, got, want)
		}
	}
}

func TestMetadataNamesAndTagsAreSorted(t *testing.T) {
	s, err := machine.ParseSpec(sample.Spec("metadata", object{"b": "", "a": "", "c d": ""}, "tags", []any{"z", "y"}))
	if err != nil {
		t.Fatal(err)
	}
	if names, tags := s.MetadataNames(), s.SortedTags(); names != "a,b,c d" || !slices.Equal(tags, []string{"y", "z"}) {
		t.Errorf("got the names %q and the tags %q", names, tags)
	}
}

// Encoding and parsing an accepted specification must not change it. If the specification is refused, the code of the
// error must be InvalidArgument.
func FuzzParseSpec(f *testing.F) {
	f.Add(sample.Spec())
	f.Add(fullSpec())
	f.Add([]byte(`{"apiVersion":"openstack.machinist.dev/v1beta1","kind":"OpenStackMachine","volumes":[null],"ports":[null]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := machine.ParseSpec(raw)
		if err != nil {
			if provider.CodeOf(err) != provider.InvalidArgument {
				t.Errorf("%q: got %v, want InvalidArgument", raw, err)
			}
			return
		}
		written, err := json.Marshal(s)
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		again, err := machine.ParseSpec(written)
		if err != nil {
			t.Fatalf("%q was written as %s, which is refused: %v", raw, written, err)
		}
		if rewritten, _ := json.Marshal(again); !bytes.Equal(written, rewritten) {
			t.Errorf("%s was rewritten as %s", written, rewritten)
		}
		for _, p := range s.Ports {
			if !slices.Equal(s.GroupsOf(p), again.GroupsOf(p)) {
				t.Errorf("%s: the groups of a port differ after the specification was written and read again", written)
			}
		}
	})
}
