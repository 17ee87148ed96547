package driver

import (
	"strings"
	"testing"

	"github.com/digitalocean/go-libvirt"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/libvirt/machine"
	"machinist.dev/machinist/providers/libvirt/machine/sample"
)

func TestVolumeNamesIdentifyOwner(t *testing.T) {
	for _, cluster := range []string{"prod", "a_b", "a=5Fb", "München/1", "x" + strings.Repeat("y", 60)} {
		o := owner{cluster, provider.Machine{UID: "9d3cbd0e-9f4c-4d5e-8a7b-0123456789ab"}}
		name := o.volumeName("12", partDisk+"data")
		if strings.ContainsAny(name, "/ ") {
			t.Errorf("name %q contains a slash or a space", name)
		}
		gotCluster, uid, attempt, ok := volumeOwner(name)
		if !ok || gotCluster != cluster || uid != string(o.machine.UID) || attempt != "12" {
			t.Errorf("%q: got cluster %q, UID %q, attempt %q, %t", name, gotCluster, uid, attempt, ok)
		}
		if !strings.HasPrefix(name, o.volumePrefix()) {
			t.Errorf("%q does not have the prefix %q", name, o.volumePrefix())
		}
	}
	// The volume names of two owners must differ, even if the cluster or the UID contains the separator.
	one, other := owner{"a", provider.Machine{UID: "b_c"}}, owner{"a_b", provider.Machine{UID: "c"}}
	if one.volumeName("1", partRoot) == other.volumeName("1", partRoot) {
		t.Error("two owners have the same volume name")
	}
	for _, name := range []string{"", "debian-12.qcow2", "machinist", "machinist_a_b_c", "machinist_a_b_c_d_e",
		"machinist__b_1_root", "other_a_b_1_root", "machinist_a__1_root"} {
		if _, _, _, ok := volumeOwner(name); ok {
			t.Errorf("%q is treated as a volume of Machinist", name)
		}
	}
}

func TestOwnerWithoutValidVolumeNameIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		cluster string
		uid     string
	}{"no cluster": {"", "u"}, "no UID": {"c", ""}, "too long": {strings.Repeat("c", 250), "u"},
		"too long after escaping": {strings.Repeat("_", 90), "u"}} {
		m := provider.Machine{Namespace: "default", Name: "worker"}
		if c.uid != "" {
			m.UID = "9d3cbd0e-9f4c-4d5e-8a7b-0123456789ab"
		}
		if _, err := ownerOf(c.cluster, m); provider.CodeOf(err) != provider.InvalidArgument {
			t.Errorf("%s: got %v, want InvalidArgument", name, err)
		}
	}
}

func TestAttemptsHaveStableUUIDs(t *testing.T) {
	o := owner{"prod", provider.Machine{UID: "9d3cbd0e-9f4c-4d5e-8a7b-0123456789ab"}}
	seen := map[string]string{}
	for token, attempt := range map[string]string{
		"9d3cbd0e-9f4c-4d5e-8a7b-0123456789ab-1": "1", "9d3cbd0e-9f4c-4d5e-8a7b-0123456789ab-12": "12",
	} {
		if got := o.attemptOf(token); got != attempt {
			t.Errorf("token %q: got attempt %q, want %q", token, got, attempt)
		}
	}
	for _, token := range []string{"1", "9d3cbd0e-9f4c-4d5e-8a7b-0123456789ab-01", "another-1",
		"9d3cbd0e-9f4c-4d5e-8a7b-0123456789ab--1"} {
		got := o.attemptOf(token)
		if !strings.HasPrefix(got, "x") || strings.Contains(got, "_") || seen[got] != "" {
			t.Errorf("token %q: got attempt %q, want a unique hash; token with the same attempt: %q", token, got, seen[got])
		}
		seen[got] = token
	}
	first, again := o.domainUUID("1"), o.domainUUID("1")
	if first == o.domainUUID("2") || first != again {
		t.Error("two attempts have the same UUID, or one attempt has two")
	}
	if other := (owner{"other", o.machine}); other.domainUUID("1") == o.domainUUID("1") {
		t.Error("two clusters have the same UUID")
	}
}

func TestProviderIDsAreParsed(t *testing.T) {
	id := libvirt.UUID(owner{"prod", provider.Machine{UID: "u"}}.domainUUID("1"))
	back, err := parseProviderID(providerID(id))
	if err != nil || back != id {
		t.Errorf("%s: got %x, %v", providerID(id), back, err)
	}
	for _, wrong := range []string{"", "libvirt:///", "libvirt://host/" + strings.TrimPrefix(providerID(id), "libvirt:///"),
		"openstack:///" + strings.TrimPrefix(providerID(id), "libvirt:///"), strings.ToUpper(providerID(id)),
		providerID(id) + "/x", "libvirt:///{9d3cbd0e9f4c4d5e8a7b0123456789ab}"} {
		if _, err := parseProviderID(wrong); provider.CodeOf(err) != provider.InvalidArgument {
			t.Errorf("%q: got %v, want InvalidArgument", wrong, err)
		}
	}
}

// libvirt removes the namespace from the element that it returns.
func TestMetadataAreReadWithAndWithoutNamespace(t *testing.T) {
	m := metadata{Attempt: "1", Spec: "hash", Volumes: []volumeReference{{"pool & more", "v"}}}
	owner{"<prod>", provider.Machine{Namespace: "default", Name: "worker", UID: "u"}}.tag(&m)
	for _, text := range []string{m.encode(), strings.Replace(m.encode(), "<machine", `<machine xmlns="`+metadataURI+`"`, 1)} {
		got := parseMetadata(text)
		if got.Cluster != "<prod>" || got.UID != "u" || got.Machine != "default/worker" || len(got.Volumes) != 1 ||
			got.Volumes[0] != m.Volumes[0] || got.encode() != m.encode() {
			t.Errorf("%s: got %+v", text, got)
		}
	}
	for _, text := range []string{"", "<machine", "<other/>"} {
		if got := parseMetadata(text); got.Cluster != "" || got.UID != "" {
			t.Errorf("%q: got %+v, want no owner", text, got)
		}
	}
}

func TestHardwareAddressesAreStableAndUnique(t *testing.T) {
	o := owner{"prod", provider.Machine{UID: "u"}}
	seen := map[string]bool{}
	for _, attempt := range []string{"1", "2"} {
		for i := range 8 {
			address := macAddress(o.domainUUID(attempt), i)
			if seen[address] || address != macAddress(o.domainUUID(attempt), i) || len(address) != 17 ||
				!strings.HasPrefix(address, "52:") {
				t.Errorf("interface %d of attempt %s: got the address %s, want a stable and unique local address", i, attempt,
					address)
			}
			seen[address] = true
		}
	}
}

func TestDomainDefinitionEscapesValues(t *testing.T) {
	spec, err := machine.ParseSpec(sample.Spec("kernel", map[string]any{"image": "vmlinuz", "commandLine": `a="<b>" & c`},
		"networks[1]", map[string]any{"bridge": "br0"}, "networks[2]", map[string]any{"user": true}, "firmware", "uefi",
		"volume.pool", "a'b<c"))
	if err != nil {
		t.Fatal(err)
	}
	o := owner{"prod", provider.Machine{Namespace: "default", Name: "worker", UID: "u"}}
	m := metadata{}
	o.tag(&m)
	text, err := domainDefinition(o.domainUUID("1"), "worker", spec, m, parts{
		root: volumeReference{"a'b<c", "root"}, disks: []volumeReference{{"p", "d"}}, seed: volumeReference{"p", "seed"},
		kernel: "/k", console: "/c",
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`<cmdline>a=&#34;&lt;b&gt;&#34; &amp; c</cmdline>`, `pool="a&#39;b&lt;c"`, `<interface type="bridge">`,
		`<interface type="user">`, `<source network="nodes">`, `<os firmware="efi">`, `<firmware><feature enabled="no" name="secure-boot"></feature></firmware>`,
		`<machine xmlns="https://machinist.dev/libvirt/v1" cluster="prod"`, `<serial type="file"><source path="/c" append="on">`,
		`<readonly></readonly><serial>seed</serial>`, `<domain type="qemu">`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the definition does not contain %s:\n%s", want, text)
		}
	}
}
