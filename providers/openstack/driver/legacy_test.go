package driver

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"flag"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
)

var update = flag.Bool("update", false, "update the golden files")

const legacyFacts = `{"ports":[{"suffix":"0","network":"1f1f1f1f-0000-4000-8000-000000000001",` +
	`"subnets":["1f1f1f1f-0000-4000-8000-000000000002"],"securityGroups":["1f1f1f1f-0000-4000-8000-000000000003"],` +
	`"addressPairs":[{"address":"10.0.0.5/32"},{"address":"10.0.0.7/32"}]}]}`

func someCA() string {
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

func legacySpecs() map[string]string {
	kubermatic := `{"identityEndpoint":{"value":"https://identity.example.com/v3"},"username":"robot","password":"hush-hush",` +
		`"domainName":"Default","tenantName":"shop","tenantID":"","tokenId":"","region":"one","image":"ubuntu-22.04",` +
		`"flavor":"m1.small","securityGroups":["workers"],"network":"nodes","subnet":"nodes-v4","floatingIpPool":"",` +
		`"availabilityZone":"az-1","trustDevicePath":false,"rootDiskSizeGB":30,"rootDiskVolumeType":"ssd",` +
		`"nodeVolumeAttachLimit":25,"serverGroup":"","instanceReadyCheckPeriod":"5s","instanceReadyCheckTimeout":"120s",` +
		`"tags":{"team":"blue","machine-uid":"x"},"sshPublicKeys":["ssh-ed25519 AAAA"]}`
	return map[string]string{
		provider.SourceMachineK8s: kubermatic, provider.SourceMachinesK8s: kubermatic, provider.SourceClusterK8s: kubermatic,
		provider.SourceGardener: `{"apiVersion":"openstack.machine.gardener.cloud/v1alpha1","kind":"MachineProviderConfig",` +
			`"spec":{"region":"one","availabilityZone":"az-1","flavorName":"m1.small","keyName":"shoot--a--b-key",` +
			`"imageID":"","imageName":"gardenlinux-1443","securityGroups":["shoot--a--b"],` +
			`"networkID":"2f2f2f2f-0000-4000-8000-000000000001","subnetID":"2f2f2f2f-0000-4000-8000-000000000002",` +
			`"podNetworkCIDRs":["100.96.0.0/11"],"podNetworkCidr":"100.96.0.0/11","rootDiskSize":50,"rootDiskType":"ssd",` +
			`"useConfigDrive":true,"serverGroupID":"2f2f2f2f-0000-4000-8000-000000000003",` +
			`"tags":{"kubernetes.io-cluster-shoot--a--b":"1","kubernetes.io-role-node":"1","worker.gardener.cloud-pool":"p"}}}`,
		provider.SourceOpenShift: `{"apiVersion":"machine.openshift.io/v1alpha1","kind":"OpenstackProviderSpec",` +
			`"metadata":{"creationTimestamp":null},"cloudName":"openstack",` +
			`"cloudsSecret":{"name":"openstack-cloud-credentials","namespace":"openshift-machine-api"},` +
			`"userDataSecret":{"name":"worker-user-data"},"flavor":"m1.small","image":"shop-x7-rhcos","sshUserName":"core",` +
			`"networks":[{"filter":{},"subnets":[{"filter":{"name":"shop-x7-nodes","tags":"openshiftClusterID=shop-x7"}}]}],` +
			`"securityGroups":[{"filter":{},"name":"shop-x7-worker"}],"serverGroupName":"shop-x7-worker","trunk":true,` +
			`"tags":["openshiftClusterID=shop-x7"],"serverMetadata":{"Name":"shop-x7-worker","openshiftClusterID":"shop-x7"},` +
			`"primarySubnet":"3f3f3f3f-0000-4000-8000-000000000001","availabilityZone":"az-1",` +
			`"rootVolume":{"diskSize":30,"volumeType":"ssd","sourceType":"","deviceType":""},` +
			`"additionalBlockDevices":[{"name":"etcd","sizeGiB":10,"storage":{"type":"Volume","volume":{"type":"fast"}}}],` +
			`"ports":[{"networkID":"3f3f3f3f-0000-4000-8000-000000000002","nameSuffix":"storage","vnicType":"direct",` +
			`"fixedIPs":[{"subnetID":"3f3f3f3f-0000-4000-8000-000000000003"}],"portSecurity":false,"trunk":false}]}`,
		provider.SourceClusterAPI: `{"clusterName":"one","failureDomain":"az-1","machine":{"flavor":"m1.small",` +
			`"image":{"filter":{"name":"ubuntu-22.04"}},"sshKeyName":"admin","trunk":true,"tags":["blue"],"configDrive":true,` +
			`"serverMetadata":[{"key":"team","value":"blue"}],"rootVolume":{"sizeGiB":30,"type":"ssd"},` +
			`"additionalBlockDevices":[{"name":"cache","sizeGiB":10,"storage":{"type":"Volume","volume":{"type":"fast",` +
			`"availabilityZone":{"from":"Machine"}}}}],"serverGroup":{"id":"4f4f4f4f-0000-4000-8000-000000000001"},` +
			`"securityGroups":[{"filter":{"name":"extra"}}],"ports":[{},{"network":{"id":"4f4f4f4f-0000-4000-8000-000000000002"},` +
			`"nameSuffix":"storage","vnicType":"direct","trunk":false,"disablePortSecurity":true,` +
			`"fixedIPs":[{"subnet":{"filter":{"name":"storage-v4"}}}]}]},` +
			`"cluster":{"identityRef":{"name":"cloud-config","cloudName":"openstack"},"tags":["shop"],"managedSecurityGroups":{},` +
			`"controlPlaneEndpoint":{"host":"10.0.0.1"},"network":{"filter":{"name":"nodes"}}},` +
			`"clusterStatus":{"network":{"id":"4f4f4f4f-0000-4000-8000-000000000003","name":"nodes",` +
			`"subnets":[{"id":"4f4f4f4f-0000-4000-8000-000000000004","name":"nodes-v4","cidr":"10.0.0.0/24"}]},` +
			`"workerSecurityGroup":{"id":"4f4f4f4f-0000-4000-8000-000000000005","name":"worker"}}}`,
	}
}

// legacySecret is empty for machine.k8s.io and its variants, which store the credentials in the description.
func legacySecret(source string) provider.Credentials {
	switch source {
	case provider.SourceGardener:
		return secret("authURL", "https://identity.example.com/v3", "domainName", "Default", "tenantName", "shop", "username",
			"robot", "password", "hush-hush\n", "caCert", someCA(), "userData", "#!/bin/sh")
	case provider.SourceOpenShift, provider.SourceClusterAPI:
		return secret("clouds.yaml", "clouds:\n  openstack:\n    auth:\n      auth_url: https://identity.example.com/v3\n"+
			"      application_credential_id: abc\n      application_credential_secret: hush-hush\n"+
			"    auth_type: v3applicationcredential\n    region_name: one\n  other: {}\n", "clouds.conf", "[Global]")
	}
	return provider.Credentials{}
}

func legacyOf(source, spec string) provider.Legacy {
	name := map[string]string{provider.SourceGardener: "OpenStack", provider.SourceOpenShift: "OpenstackProviderSpec",
		provider.SourceClusterAPI: "OpenStackMachine"}[source]
	if name == "" {
		name = "openstack"
	}
	return provider.Legacy{Source: source, Provider: name, Spec: provider.NewSecret([]byte(spec)),
		Credentials: legacySecret(source)}
}

func newDriver(t testing.TB) *Driver {
	t.Helper()
	d, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func lines(findings []provider.Finding, notes bool) (all []string) {
	for _, f := range findings {
		if notes || f.Level != provider.FindingNote {
			all = append(all, string(f.Level)+" "+f.Code+" "+f.Path)
		}
	}
	return all
}

func TestImportMatchesGoldenFiles(t *testing.T) {
	d := newDriver(t)
	for _, source := range provider.Sources() {
		for name, facts := range map[string]string{"with facts": legacyFacts, "without facts": ""} {
			t.Run(source+" "+name, func(t *testing.T) {
				old := legacyOf(source, legacySpecs()[source])
				imported, err := d.Import(t.Context(), provider.ImportRequest{Legacy: old, Facts: []byte(facts)})
				if err != nil {
					t.Fatal(err)
				}
				var output bytes.Buffer
				if err := json.Indent(&output, imported.Spec, "", "  "); err != nil {
					t.Fatal(err)
				}
				output.WriteString("\n")
				for _, f := range imported.Findings {
					output.WriteString(string(f.Level) + " " + f.Code + " " + f.Path + ": " + f.Message + "\n")
				}
				output.WriteString("---\n")
				output.Write(imported.Credentials[keyClouds])
				path := filepath.Join("testdata", "import", strings.ReplaceAll(source+" "+name, " ", "-")+".txt")
				if *update {
					if err := os.WriteFile(path, output.Bytes(), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(path)
				if err != nil || !bytes.Equal(want, output.Bytes()) {
					t.Errorf("%s (%v) differs from the result; got\n%s", path, err, output.Bytes())
				}
				if slices.ContainsFunc(imported.Findings, isBlocker) {
					return
				}
				class := provider.Class{Spec: imported.Spec, Credentials: provider.NewCredentials(imported.Credentials)}
				if err := d.Validate(t.Context(), provider.ValidateRequest{Class: class}); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func TestImportReportsLostFields(t *testing.T) {
	d := newDriver(t)
	const gardener, kubermatic, openShift = provider.SourceGardener, provider.SourceMachineK8s, provider.SourceOpenShift
	const clusterAPI = provider.SourceClusterAPI
	many := strings.Repeat("n", 120)
	var short []string
	for i := range 40 {
		short = append(short, fmt.Sprintf("%q", strconv.Itoa(10+i)))
	}
	for name, test := range map[string]struct{ source, from, to, want string }{
		"unknown field":           {gardener, `"region"`, `"surprise":1,"region"`, "Loss UnknownField spec.surprise"},
		"unknown nested field":    {openShift, `"diskSize"`, `"a":1,"diskSize"`, "Loss UnknownField rootVolume.a"},
		"unknown field in a list": {openShift, `"nameSuffix"`, `"a":1,"nameSuffix"`, "Loss UnknownField ports[0].a"},
		"empty fields": {openShift, `"flavor"`, `"floatingIP":"","configDrive":null,"keyName":"","ports2":{},"flavor"`,
			""},
		"flat description":         {gardener, `"spec":{`, `"metadata":{"creationTimestamp":null},"spec":{`, ""},
		"no image":                 {gardener, `gardenlinux-1443`, ``, "Blocker RequiredField spec.imageName"},
		"no network":               {gardener, `"networkID":"2f2f2f2f-0000-4000-8000-000000000001",`, ``, "Blocker RequiredField spec.networkID"},
		"number instead of text":   {gardener, `"m1.small"`, `2`, "Blocker InvalidField spec.flavorName"},
		"reserved metadata":        {gardener, `"tags":{`, `"tags":{"machinist-cluster":"x",`, "Loss UnsupportedMetadata spec.tags.machinist-cluster"},
		"much metadata":            {kubermatic, `"tags":{`, `"tags":{"` + many + `":"","x` + many + `":"","y` + many + `":"",`, "Loss UnsupportedMetadata tags.y" + many},
		"floating addresses":       {kubermatic, `"floatingIpPool":""`, `"floatingIpPool":"public"`, "Loss FloatingIP floatingIpPool"},
		"token":                    {kubermatic, `"tokenId":""`, `"tokenId":"t"`, "Loss Token tokenId"},
		"no flavor":                {kubermatic, `"flavor":"m1.small",`, ``, "Blocker RequiredField flavor"},
		"no password":              {kubermatic, `"password":"hush-hush",`, ``, "Blocker MissingCredentials "},
		"no identity service":      {kubermatic, `"identityEndpoint":{"value":"https://identity.example.com/v3"},`, ``, "Blocker MissingCredentials "},
		"network from an instance": {kubermatic, `"network":"nodes",`, ``, ""},
		"names in other case":      {kubermatic, `"rootDiskSizeGB"`, `"ROOTDISKSIZEGB"`, ""},
		"fixed floating address":   {openShift, `"trunk":true`, `"floatingIP":"192.0.2.1","trunk":true`, "Loss FloatingIP floatingIP"},
		"local disk":               {openShift, `"type":"Volume","volume":{"type":"fast"}`, `"type":"Local"`, "Loss LocalDisk additionalBlockDevices[0].storage.type"},
		"port tags":                {openShift, `"nameSuffix"`, `"tags":["a"],"nameSuffix"`, "Loss PortTags ports[0].tags"},
		"port profile":             {openShift, `"nameSuffix"`, `"profile":{"a":"b"},"nameSuffix"`, "Loss PortProfile ports[0].profile"},
		"port description":         {openShift, `"nameSuffix"`, `"description":"a","nameSuffix"`, "Loss PortSetting ports[0].description"},
		"port that is down":        {openShift, `"nameSuffix"`, `"adminStateUp":false,"nameSuffix"`, "Loss PortSetting ports[0].adminStateUp"},
		"port that is up":          {openShift, `"nameSuffix"`, `"adminStateUp":true,"nameSuffix"`, ""},
		"reserved tag":             {openShift, `"tags":["`, `"tags":["machinist-x","`, "Loss UnsupportedTag tags[0]"},
		"unknown cloud":            {openShift, `"cloudName":"openstack"`, `"cloudName":"absent"`, "Blocker InvalidField credentials.clouds.yaml"},
		"cloud of Cluster API":     {clusterAPI, `"cloudName":"openstack"`, `"cloudName":"absent"`, "Blocker InvalidField credentials.clouds.yaml"},
		"floating address pool":    {clusterAPI, `"flavor"`, `"floatingIPPoolRef":{"name":"a"},"flavor"`, "Blocker FloatingIP machine.floatingIPPoolRef"},
		"image of another object":  {clusterAPI, `{"filter":{"name":"ubuntu-22.04"}}`, `{"imageRef":{"name":"a"}}`, "Blocker RequiredField machine.image.imageRef"},
		"scheduler hints":          {clusterAPI, `"flavor"`, `"schedulerHintAdditionalProperties":[{"name":"a"}],"flavor"`, "Loss SchedulerHints machine.schedulerHintAdditionalProperties"},
		"quality of service":       {clusterAPI, `"nameSuffix"`, `"qosPolicy":{"id":"a"},"nameSuffix"`, "Loss PortSetting machine.ports[1].qosPolicy"},
		"groups from an instance":  {clusterAPI, `[{"filter":{"name":"extra"}}]`, `[{"filter":{"tags":["a"]}}]`, ""},
		"group without instance":   {clusterAPI, `"vnicType"`, `"securityGroups":[{"filter":{"tags":["a"]}}],"vnicType"`, "Blocker RequiredField machine.ports[1].securityGroups"},
		"new field of the cluster": {clusterAPI, `"managedSecurityGroups"`, `"surprise":1,"managedSecurityGroups"`, "Loss UnknownField cluster.surprise"},
		"long value":               {clusterAPI, `"value":"blue"`, `"value":"` + strings.Repeat("v", 256) + `"`, "Loss UnsupportedMetadata machine.serverMetadata[0].key"},
		"names of Cluster API":     {clusterAPI, `{"key":"team"`, `{"key":"` + many + `"},{"key":"x` + many + `"},{"key":"y` + many + `"`, "Loss UnsupportedMetadata machine.serverMetadata[2].key"},
		"many metadata":            {gardener, `"tags":{`, `"tags":{` + strings.Join(short, `:"",`) + `:"",`, "Loss UnsupportedMetadata spec.tags.kubernetes.io-cluster-shoot--a--b\nLoss UnsupportedMetadata spec.tags.worker.gardener.cloud-pool"},
		"many tags":                {clusterAPI, `"tags":["shop"]`, `"tags":[` + strings.Join(short, ",") + `]`, "Loss UnsupportedTag machine.tags[0]"},
		"long tag":                 {openShift, `"tags":["`, `"tags":["` + many + `","`, "Loss UnsupportedTag tags[0]"},
		"role":                     {clusterAPI, `"team"`, `"kubernetes.io-role-node"`, ""},
		"metadata of Machinist":    {clusterAPI, `"team"`, `"machinist-x"`, "Loss UnsupportedMetadata machine.serverMetadata[0].key"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := strings.Replace(legacySpecs()[test.source], test.from, test.to, 1)
			if spec == legacySpecs()[test.source] {
				t.Fatal("the test case does not change the description")
			}
			imported, err := d.Import(t.Context(), provider.ImportRequest{Legacy: legacyOf(test.source, spec),
				Facts: []byte(legacyFacts)})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(lines(imported.Findings, false), "\n"); got != test.want {
				t.Errorf("got the findings\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// Without an instance, a filter that names no object cannot be translated.
func TestImportOfFilters(t *testing.T) {
	d := newDriver(t)
	for name, test := range map[string]struct{ networks, groups, facts, wantPort, wantGroups, findings string }{
		"IDs": {`[{"uuid":"n","noAllowedAddressPairs":true,"subnets":[{"uuid":"s"}]}]`, `[{"uuid":"g"}]`, "",
			`{"network":"n","fixedAddresses":[{"subnet":"s"}]}`, "g", ""},
		"ID in a filter": {`[{"filter":{"id":"n"},"noAllowedAddressPairs":true}]`, `[{"filter":{"id":"g"}}]`, "",
			`{"network":"n"}`, "g", ""},
		"names": {`[{"filter":{"name":"n"},"noAllowedAddressPairs":true}]`, `[{"filter":{"name":"g"}}]`, "",
			`{"network":"n"}`, "g", ""},
		"one of two names": {`[{"filter":{"name":"n","tags":"t"},"noAllowedAddressPairs":true}]`, `[]`, legacyFacts,
			`{"network":"1f1f1f1f-0000-4000-8000-000000000001"}`, "", ""},
		"tags only": {`[{"filter":{"tags":"t"}}]`, `[{"filter":{"tags":"t"}}]`, legacyFacts,
			`{"network":"1f1f1f1f-0000-4000-8000-000000000001","allowedAddressPairs":[{"address":"10.0.0.5/32"},{"address":"10.0.0.7/32"}]}`,
			"1f1f1f1f-0000-4000-8000-000000000003", ""},
		"tags only, no instance": {`[{"filter":{"tags":"t"},"noAllowedAddressPairs":true}]`, `[{"filter":{"tags":"t"}}]`, "",
			`{}`, "", "Blocker RequiredField networks[0].uuid\nBlocker RequiredField securityGroups"},
		"no filter, no port security": {`[{"subnets":[{"filter":{"cidr":"10.0.0.0/16"}}],"portSecurity":false}]`, `[]`, legacyFacts,
			`{"network":"1f1f1f1f-0000-4000-8000-000000000001","fixedAddresses":[{"subnet":"1f1f1f1f-0000-4000-8000-000000000002"}],"portSecurity":false}`,
			"", ""},
		"subnet beside an ID": {`[{"subnets":[{"uuid":"b"},{"filter":{"tags":"t"}}],"uuid":"n","noAllowedAddressPairs":true}]`, `[]`,
			`{"ports":[{"network":"n","subnets":["a","b"]}]}`,
			`{"network":"n","fixedAddresses":[{"subnet":"b"},{"subnet":"a"}]}`, "", ""},
		"nothing": {`[]`, `[]`, legacyFacts, `{"network":"1f1f1f1f-0000-4000-8000-000000000001"}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec := `{"kind":"OpenstackProviderSpec","flavor":"f","image":"i","cloudName":"openstack","networks":` +
				test.networks + `,"securityGroups":` + test.groups + `}`
			imported, err := d.Import(t.Context(), provider.ImportRequest{Legacy: legacyOf(provider.SourceOpenShift, spec),
				Facts: []byte(test.facts)})
			if err != nil {
				t.Fatal(err)
			}
			var got struct {
				Ports          []json.RawMessage
				SecurityGroups []string
			}
			if err := json.Unmarshal(imported.Spec, &got); err != nil {
				t.Fatal(err)
			}
			if len(got.Ports) != 1 || string(got.Ports[0]) != test.wantPort ||
				strings.Join(got.SecurityGroups, " ") != test.wantGroups {
				t.Errorf("got the ports %s and the groups %v, want %s and %q", got.Ports, got.SecurityGroups, test.wantPort,
					test.wantGroups)
			}
			if got := strings.Join(lines(imported.Findings, false), "\n"); got != test.findings {
				t.Errorf("got the findings\n%s\nwant\n%s", got, test.findings)
			}
		})
	}
}

// The migrator asks with an empty description, before it reads Secrets.
func TestImportOfOtherClouds(t *testing.T) {
	d := newDriver(t)
	for name, test := range map[string]struct {
		source, provider string
		want             provider.Code
	}{
		"this cloud":     {provider.SourceGardener, "OpenStack", ""},
		"by kind":        {provider.SourceClusterK8s, "OpenstackProviderSpec", ""},
		"another cloud":  {provider.SourceGardener, "Azure", provider.Unimplemented},
		"another kind":   {provider.SourceOpenShift, "AzureMachineProviderSpec", provider.Unimplemented},
		"another system": {"example.com", "openstack", provider.Unimplemented},
	} {
		_, err := d.Import(t.Context(), provider.ImportRequest{Legacy: provider.Legacy{Source: test.source,
			Provider: test.provider, Spec: provider.NewSecret([]byte("{}"))}})
		if err == nil && test.want != "" || err != nil && provider.CodeOf(err) != test.want {
			t.Errorf("%s: got %v, want code %q", name, err, test.want)
		}
	}
}

func TestImportOfCredentials(t *testing.T) {
	d := newDriver(t)
	const url = "https://identity.example.com/v3"
	elsewhere := func(spec string) string {
		return strings.NewReplacer(url, "https://elsewhere.example.com", `"password":"hush-hush",`, "").Replace(spec)
	}
	for name, test := range map[string]struct {
		source        string
		secret        provider.Credentials
		want          string // parts of the clouds.yaml
		findings      string
		note          string // one of the Notes
		certificate   bool
		descriptionOf func(string) string
	}{
		"application credential of Gardener": {source: provider.SourceGardener, secret: secret("authURL", url,
			"applicationCredentialID", "abc", "applicationCredentialSecret", "def", "username", "u", "password", "p"),
			want: "application_credential_id: abc"},
		"domains of Gardener": {source: provider.SourceGardener, secret: secret("authURL", url, "username", "u", "password", "p",
			"tenantID", "t", "domainID", "d", "userDomainID", "e"), want: "user_domain_id: e"},
		"no certificate checks": {source: provider.SourceGardener, secret: secret("authURL", url, "username", "u", "password", "p",
			"tenantID", "t", "domainID", "d", "insecure", "true", "clientCert", "c"), want: "password: p",
			findings: "Loss ClientCertificate credentials.clientCert\nLoss Insecure credentials.insecure"},
		"environment of the old controller": {source: provider.SourceMachineK8s, secret: secret("OS_AUTH_URL", url, "OS_USER_NAME",
			"u", "OS_PASSWORD", "p", "OS_TENANT_NAME", "t", "OS_DOMAIN_NAME", "d", "OS_REGION_NAME", "two"),
			want: "region_name: two", descriptionOf: func(string) string {
				return `{"flavor":"f","image":"i","network":"n"}`
			}},
		"identity service of the Secret": {source: provider.SourceMachineK8s, secret: secret("OS_AUTH_URL", url, "OS_PASSWORD", "p"),
			want: "auth_url: " + url, note: "Note IdentityService identityEndpoint", descriptionOf: elsewhere},
		"password without an identity service": {source: provider.SourceMachineK8s, secret: secret("OS_PASSWORD", "p"),
			findings: "Blocker MissingCredentials ", descriptionOf: elsewhere},
		"application credential without an identity service": {source: provider.SourceClusterK8s,
			secret:   secret("applicationCredentialID", "a", "applicationCredentialSecret", "b"),
			findings: "Blocker MissingCredentials ", descriptionOf: elsewhere},
		"password of the description": {source: provider.SourceMachineK8s, secret: secret("OS_REGION_NAME", "two"),
			want: "auth_url: https://elsewhere.example.com", descriptionOf: func(spec string) string {
				return strings.Replace(spec, url, "https://elsewhere.example.com", 1)
			}},
		"file with authorities": {source: provider.SourceOpenShift, secret: secret("clouds.yaml", `{"clouds":{"openstack":{"cacert":`+
			`"/etc/ca.pem","auth":{"auth_url":"`+url+`","application_credential_id":"a","application_credential_secret":"b"}}}}`),
			want: "application_credential_id: a", findings: "Blocker RequiredField credentials.ca.crt"},
		"file with authorities and the authorities": {source: provider.SourceOpenShift, secret: secret("cacert", someCA(), "clouds.yaml",
			`{"clouds":{"openstack":{"cacert":"/etc/ca.pem","auth":{"auth_url":"`+url+`","application_credential_id":"a",`+
				`"application_credential_secret":"b"}}}}`), want: "application_credential_id: a", certificate: true},
		"nothing": {source: provider.SourceGardener, secret: secret("userData", "x"), findings: "Blocker MissingCredentials "},
		"plain HTTP": {source: provider.SourceGardener, secret: secret("authURL", "http://identity.example.com/v3", "username", "u",
			"password", "p", "tenantID", "t", "domainID", "d"), findings: "Blocker InvalidField credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := legacySpecs()[test.source]
			if test.descriptionOf != nil {
				spec = test.descriptionOf(spec)
			}
			old := legacyOf(test.source, spec)
			old.Credentials = test.secret
			imported, err := d.Import(t.Context(), provider.ImportRequest{Legacy: old, Facts: []byte(legacyFacts)})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(lines(imported.Findings, false), "\n"); got != test.findings {
				t.Errorf("got the findings\n%s\nwant\n%s", got, test.findings)
			}
			if all := lines(imported.Findings, true); test.note != "" && !slices.Contains(all, test.note) {
				t.Errorf("got the findings %q, want %q", all, test.note)
			}
			file := string(imported.Credentials[keyClouds])
			if !strings.Contains(file, test.want) || strings.Contains(file, "cacert") ||
				strings.Contains(test.findings, "Missing") && strings.Contains(file, "elsewhere") {
				t.Errorf("the clouds.yaml lacks %q:\n%s", test.want, file)
			}
			if _, found := imported.Credentials[keyCA]; found != test.certificate {
				t.Errorf("the Secret has the key ca.crt: %v, want %v", found, test.certificate)
			}
		})
	}
}

func FuzzImport(f *testing.F) {
	d := newDriver(f)
	for i, source := range provider.Sources() {
		f.Add(uint8(i), legacySpecs()[source], "surprise", legacyFacts)
	}
	f.Fuzz(func(t *testing.T, i uint8, spec, field, facts string) {
		source := provider.Sources()[int(i)%len(provider.Sources())]
		request := provider.ImportRequest{Legacy: legacyOf(source, spec), Facts: []byte(facts)}
		if _, err := d.Import(t.Context(), request); err != nil {
			return
		}
		var fields map[string]any
		if json.Unmarshal([]byte(spec), &fields) != nil {
			return
		}
		inner, prefix := fields, ""
		if below, ok := fields["spec"].(map[string]any); ok && source == provider.SourceGardener {
			inner, prefix = below, "spec."
		}
		field = "x-" + strings.ToValidUTF8(field, "") // No system has a field with this name.
		if len(field) > 64 {
			return
		}
		inner[field] = true
		data, err := json.Marshal(fields)
		if err != nil {
			return
		}
		request.Legacy.Spec = provider.NewSecret(data)
		imported, err := d.Import(t.Context(), request)
		if err != nil {
			return // The description has become too long.
		}
		if !slices.ContainsFunc(imported.Findings, func(f provider.Finding) bool {
			return f.Code == provider.FindingUnknownField && f.Path == prefix+field
		}) {
			t.Errorf("no finding for field %q of %s", field, data)
		}
	})
}
