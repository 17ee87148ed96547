package driver

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/digitalocean/go-libvirt"

	"machinist.dev/machinist/pkg/provider"
)

var update = flag.Bool("update", false, "update the golden files")

const legacySpec = `{"apiVersion":"libvirtproviderconfig.openshift.io/v1beta1","kind":"LibvirtMachineProviderConfig",` +
	`"autostart":false,"cloudInit":null,"domainMemory":7168,"domainVcpu":4,"ignKey":"","ignition":null,` +
	`"networkInterfaceAddress":"192.168.126.0/24","networkInterfaceHostname":"","networkInterfaceName":"shop-x7",` +
	`"networkUUID":"","uri":"qemu+tcp://192.168.122.1/system",` +
	`"volume":{"baseVolumeID":"shop-x7-base","poolName":"shop-x7","volumeName":""}}`

func legacyOf(spec string) provider.Legacy {
	return provider.Legacy{Source: provider.SourceOpenShift, Provider: "LibvirtMachineProviderConfig",
		Spec: provider.NewSecret([]byte(spec))}
}

func TestImportMatchesGoldenFile(t *testing.T) {
	d, err := New(Options{PlainTCP: true})
	if err != nil {
		t.Fatal(err)
	}
	imported, err := d.Import(t.Context(), provider.ImportRequest{Legacy: legacyOf(legacySpec)})
	if err != nil {
		t.Fatal(err)
	}
	output, err := json.MarshalIndent(json.RawMessage(imported.Spec), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range imported.Findings {
		output = append(output, "\n"+string(f.Level)+" "+f.Code+" "+f.Path+": "+f.Message...)
	}
	output = append(output, "\n"+string(imported.Credentials[keyURI])+"\n"...)
	path := filepath.Join("testdata", "import.txt")
	if *update {
		if err := os.WriteFile(path, output, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || string(want) != string(output) {
		t.Errorf("%s (%v) differs from the result; got\n%s", path, err, output)
	}
	class := provider.Class{Spec: imported.Spec, Credentials: provider.NewCredentials(imported.Credentials)}
	if err := d.Validate(t.Context(), provider.ValidateRequest{Class: class}); err != nil {
		t.Error(err)
	}
}

func TestImportReportsFindings(t *testing.T) {
	d, err := New(Options{PlainTCP: true})
	if err != nil {
		t.Fatal(err)
	}
	const facts = `{"domainType":"qemu","architecture":"arm64","volumeBytes":34359738369}`
	for name, test := range map[string]struct{ from, to, facts, wantFindings, wantSpec string }{
		"default size":        {"", "", "", "", `"sizeGiB":17`},
		"size":                {`"poolName"`, `"volumeSize":"30Gi","poolName"`, "", "", `"sizeGiB":30`},
		"size in bytes":       {`"poolName"`, `"volumeSize":"20000000000","poolName"`, "", "", `"sizeGiB":19`},
		"size of an instance": {"", "", facts, "", `"sizeGiB":33`},
		"type of an instance": {"", "", facts, "", `"domainType":"qemu","architecture":"arm64"`},
		"no quantity": {`"poolName"`, `"volumeSize":"much","poolName"`, "", "Blocker InvalidField volume.volumeSize",
			`"pool"`},
		"path of the base": {`"shop-x7-base"`, `"/var/lib/libvirt/images/coreos_base"`, "", "", `"base":"coreos_base"`},
		"Ignition": {`"ignition":null`, `"ignition":{"userDataSecret":"worker-user-data"}`, "", "Loss Ignition ignition",
			`"pool"`},
		"Ignition volume": {`"ignKey":""`, `"ignKey":"worker.ign"`, "", "Loss Ignition ignKey", `"pool"`},
		"SSH access": {`"cloudInit":null`, `"cloudInit":{"userDataSecret":"u","sshAccess":true}`, "",
			"Loss SSHAccess cloudInit.sshAccess", `"pool"`},
		"cloud-init": {`"cloudInit":null`, `"cloudInit":{"userDataSecret":"u","sshAccess":false}`, "", "", `"pool"`},
		"UEFI": {`"uri"`, `"firmware":"/usr/share/OVMF_CODE.fd","nvram":{"nvramFile":"a","nvramTemplate":"b"},"uri"`, "", "",
			`"firmware":"uefi"`},
		"no network":       {`"networkInterfaceName":"shop-x7",`, ``, "", "Blocker RequiredField networkInterfaceName", `"pool"`},
		"no memory":        {`"domainMemory":7168,`, ``, "", "Blocker InvalidField ", `"pool"`},
		"unknown field":    {`"uri"`, `"surprise":1,"uri"`, "", "Loss UnknownField surprise", `"pool"`},
		"unknown nested":   {`"poolName"`, `"surprise":1,"poolName"`, "", "Loss UnknownField volume.surprise", `"pool"`},
		"TLS without keys": {`qemu+tcp://192`, `qemu+tls://192`, "", "Blocker MissingCredentials ", `"pool"`},
		"no URI":           {`"uri":"qemu+tcp://192.168.122.1/system",`, ``, "", "Blocker MissingCredentials ", `"pool"`},
		"SSH transport":    {`qemu+tcp://192`, `qemu+ssh://192`, "", "Blocker InvalidField uri", `"pool"`},
	} {
		t.Run(name, func(t *testing.T) {
			spec := strings.Replace(legacySpec, test.from, test.to, 1)
			if spec == legacySpec && test.from != "" {
				t.Fatal("the test case does not change the description")
			}
			imported, err := d.Import(t.Context(), provider.ImportRequest{Legacy: legacyOf(spec), Facts: []byte(test.facts)})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range imported.Findings {
				if f.Level != provider.FindingNote {
					got = append(got, string(f.Level)+" "+f.Code+" "+f.Path)
				}
			}
			if strings.Join(got, "\n") != test.wantFindings || !strings.Contains(string(imported.Spec), test.wantSpec) {
				t.Errorf("got the findings %q and %s, want %q and %s", got, imported.Spec, test.wantFindings, test.wantSpec)
			}
		})
	}
}

func TestImportRefusesOtherDescriptions(t *testing.T) {
	d, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		old  provider.Legacy
		want provider.Code
	}{
		"another cloud": {provider.Legacy{Source: provider.SourceOpenShift, Provider: "AzureMachineProviderSpec"},
			provider.Unimplemented},
		"another system": {provider.Legacy{Source: "x.example.com", Provider: "LibvirtMachineProviderConfig"},
			provider.Unimplemented},
		"no object": {legacyOf("[]"), provider.InvalidArgument},
	} {
		_, err := d.Import(t.Context(), provider.ImportRequest{Legacy: test.old})
		if provider.CodeOf(err) != test.want {
			t.Errorf("%s: got %v, want %s", name, err, test.want)
		}
	}
	if _, err := d.Import(t.Context(), provider.ImportRequest{Legacy: legacyOf(legacySpec), Facts: []byte("[")}); provider.CodeOf(err) != provider.InvalidArgument {
		t.Errorf("other facts: got %v, want InvalidArgument", err)
	}
}

// The credentials of the Migration replace those of the old system, for example with another transport.
func TestImportPrefersSecret(t *testing.T) {
	d, err := New(Options{Sockets: []string{"/run/other"}})
	if err != nil {
		t.Fatal(err)
	}
	old := legacyOf(legacySpec)
	old.Credentials = provider.NewCredentials(map[string][]byte{keyURI: []byte("qemu+unix:///system?socket=/run/other")})
	imported, err := d.Import(t.Context(), provider.ImportRequest{Legacy: old})
	if err != nil || string(imported.Credentials[keyURI]) != "qemu+unix:///system?socket=/run/other" {
		t.Fatalf("got the credentials %q, %v", imported.Credentials, err)
	}
	for _, f := range imported.Findings {
		if f.Level != provider.FindingNote {
			t.Errorf("unexpected finding %+v", f)
		}
	}
}

func TestFactsOfMissingObjectsAreOmitted(t *testing.T) {
	const domainXML, poolByName, volumeByName, volumeText = 14, 84, 95, 99 // procedures of the protocol
	described := xdrString(`<domain type="kvm"><os><type arch="aarch64">hvm</type></os></domain>`)
	pool := append(xdrString("pool"), make([]byte, libvirt.UUIDBuflen)...)
	volume := slices.Concat(xdrString("pool"), xdrString("d"), xdrString("key"))
	capacity := xdrString(`<volume><capacity unit="bytes">7</capacity></volume>`)
	malformed := []byte{0, 0, 1, 0} // the length of a string without the string
	for name, test := range map[string]struct {
		answers map[uint32][]byte // Other calls return that the object does not exist.
		want    string            // "" means an error
	}{
		"all": {map[uint32][]byte{domainXML: described, poolByName: pool, volumeByName: volume, volumeText: capacity},
			`{"domainType":"kvm","architecture":"arm64","volumeBytes":7}`},
		"no volume":         {map[uint32][]byte{domainXML: described, poolByName: pool}, `{"domainType":"kvm","architecture":"arm64"}`},
		"nothing":           {nil, `{}`},
		"unreadable domain": {map[uint32][]byte{domainXML: malformed}, ""},
		"no XML":            {map[uint32][]byte{domainXML: xdrString("<")}, ""},
		"unreadable pool":   {map[uint32][]byte{domainXML: described, poolByName: malformed}, ""},
		"unreadable volume": {map[uint32][]byte{domainXML: described, poolByName: pool, volumeByName: malformed}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			address, _ := serve(t, answerCallsWith(capabilitiesXML, test.answers))
			credentials := provider.NewCredentials(map[string][]byte{"uri": []byte("qemu+tcp://" + address + "/system")})
			var got []byte
			err := newTestDriver(t).withHypervisor(t.Context(), credentials, "", func(h *hypervisor) (err error) {
				got, err = h.legacyFacts(t.Context(), &domain{Domain: libvirt.Domain{Name: "d"}}, "pool")
				return err
			})
			if string(got) != test.want || (err != nil) != (test.want == "") {
				t.Errorf("got %s, %v; want %q", got, err, test.want)
			}
		})
	}
}
