package driver_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/driver"
)

var update = flag.Bool("update", false, "update the golden files")

const facts = `{"adminUsername":"somebody","sshPublicKey":"` + sshKey + `","clusterTags":{"kubernetes.io_cluster.infra":"owned"},` +
	`"interfaces":[{"subnetID":"` + subnet + `","ipForwarding":true,"loadBalancerBackendPoolIDs":["/subscriptions/` + subscription +
	`/resourceGroups/network/providers/Microsoft.Network/loadBalancers/infra/backendAddressPools/workers"]}]}`

func newDriver(t testing.TB) *driver.Driver {
	t.Helper()
	d, err := driver.New(driver.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestImportMatchesGoldenFiles(t *testing.T) {
	d := newDriver(t)
	for _, old := range legacies() {
		for name, knownFacts := range map[string]string{"with facts": facts, "without facts": ""} {
			t.Run(old.Source+" "+name, func(t *testing.T) {
				imported, err := d.Import(t.Context(), provider.ImportRequest{Legacy: old, Facts: []byte(knownFacts)})
				if err != nil {
					t.Fatal(err)
				}
				var output bytes.Buffer
				if err := json.Indent(&output, imported.Spec, "", "  "); err != nil {
					t.Fatal(err)
				}
				for _, f := range imported.Findings {
					output.WriteString("\n" + string(f.Level) + " " + f.Code + " " + f.Path + ": " + f.Message)
				}
				output.WriteString("\n")
				path := filepath.Join("testdata", "import", strings.ReplaceAll(old.Source+" "+name, " ", "-")+".txt")
				if *update {
					if err := os.WriteFile(path, output.Bytes(), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(path)
				if err != nil || !bytes.Equal(want, output.Bytes()) {
					t.Errorf("%s (%v) differs from the result; got\n%s", path, err, output.Bytes())
				}
				if slices.ContainsFunc(imported.Findings, func(f provider.Finding) bool {
					return f.Level == provider.FindingBlocker
				}) {
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
	for name, test := range map[string]struct{ source, from, to, want string }{
		"unknown field at the top": {provider.SourceGardener, `{"location"`, `{"surprise":1,"location"`, "Loss UnknownField surprise"},
		"unknown nested field":     {provider.SourceGardener, `"zone":2`, `"zone":2,"a":{"b":0}`, "Loss UnknownField properties.a"},
		"unknown field in a list":  {provider.SourceGardener, `"lun":1`, `"lun":1,"a":1`, "Loss UnknownField properties.storageProfile.dataDisks[0].a"},
		"image of a data disk":     {provider.SourceGardener, `"lun":1`, `"lun":1,"imageRef":{"id":"x"}`, "Loss DataDiskImage properties.storageProfile.dataDisks[0].imageRef"},
		"confidential disk":        {provider.SourceGardener, `"managedDisk":{`, `"managedDisk":{"securityProfile":{"securityEncryptionType":"DiskWithVMGuestState"},`, "Loss ConfidentialDisk properties.storageProfile.osDisk.managedDisk.securityProfile"},
		"empty fields": {provider.SourceGardener, `"zone":2`,
			`"zone":2,"a":{},"machineSet":{},"securityProfile":{"uefiSettings":{}}`, ""},
		"empty fields of OpenShift": {provider.SourceOpenShift, `"vnet"`,
			`"securityProfile":{"settings":{}},"diagnostics":{},"sshPublicKey":"","vnet"`, ""},
		"empty security profile of an OpenShift disk": {provider.SourceOpenShift, `"managedDisk":{`,
			`"managedDisk":{"securityProfile":{"diskEncryptionSet":{}},`, ""},
		"confidential virtual machine": {provider.SourceOpenShift, `"vnet"`,
			`"securityProfile":{"settings":{"securityType":"ConfidentialVM"}},"vnet"`, "Loss SecurityProfile securityProfile.settings"},
		"names in other case":    {provider.SourceMachineK8s, `"vmSize"`, `"VMsize"`, ""},
		"reserved tag":           {provider.SourceGardener, `"tags":{`, `"tags":{"machinist-cluster":"x",`, "Loss ReservedTag tags.machinist-cluster"},
		"invalid URN":            {provider.SourceGardener, `jammy:22_04`, `jammy22_04`, "Blocker InvalidField properties.storageProfile.imageReference.urn"},
		"ultra disks":            {provider.SourceOpenShift, `"vnet"`, `"ultraSSDCapability":"Enabled","vnet"`, "Loss UltraSSD ultraSSDCapability"},
		"inbound NAT":            {provider.SourceOpenShift, `"vnet"`, `"natRule":3,"vnet"`, "Loss NATRule natRule"},
		"kept data disks":        {provider.SourceOpenShift, `"deletionPolicy":"Delete"`, `"deletionPolicy":"Detach"`, "Loss DetachedDataDisk dataDisks[0].deletionPolicy"},
		"other operating system": {provider.SourceOpenShift, `"osType":"Linux"`, `"osType":"Windows"`, "Blocker InvalidField osDisk.osType"},
		"key not in base64":      {provider.SourceOpenShift, `"vnet"`, `"sshPublicKey":"?","vnet"`, "Blocker InvalidField sshPublicKey"},
		"route table":            {provider.SourceClusterK8s, `"zones"`, `"routeTableName":"r","zones"`, "Loss RouteTable routeTableName"},
		"two SSH keys":           {provider.SourceMachineK8s, `"zones"`, `"sshPublicKeys":["` + sshKey + `","b"],"zones"`, "Loss MoreSSHKeys sshPublicKeys"},
		"missing network":        {provider.SourceMachineK8s, `"vnetName":"nodes",`, ``, "Blocker RequiredField vnetName"},
		"number instead of text": {provider.SourceMachineK8s, `"vmSize":"Standard_D2s_v5"`, `"vmSize":2`, "Blocker InvalidField vmSize"},
		"missing client ID": {provider.SourceMachineK8s, `"clientID":"` + application + `",`, ``,
			"Blocker MissingCredentials "},
		"no credentials": {provider.SourceClusterK8s, `"subscriptionID":"` + subscription + `","tenantID":{"value":"` +
			tenant + `"},"clientID":"` + application + `","clientSecret":"` + secret + `",`, ``,
			"Blocker MissingCredentials "},
		"Windows in Cluster API": {provider.SourceClusterAPI, `"osType":"Linux"`, `"osType":"Windows"`, "Blocker InvalidField machine.osDisk.osType"},
		"DNS servers":            {provider.SourceClusterAPI, `"image"`, `"dnsServers":["10.0.0.1"],"image"`, "Loss DNSServers machine.dnsServers"},
		"trusted launch":         {provider.SourceClusterAPI, `"image"`, `"securityProfile":{"securityType":"TrustedLaunch"},"image"`, "Loss SecurityProfile machine.securityProfile.securityType"},
		"extensions":             {provider.SourceClusterAPI, `"image"`, `"vmExtensions":[{"name":"a"}],"image"`, "Loss VMExtensions machine.vmExtensions"},
		"no subnet for nodes":    {provider.SourceClusterAPI, `"role":"node"`, `"role":"bastion"`, "Blocker RequiredField cluster.networkSpec.subnets"},
		"certificate":            {provider.SourceClusterAPI, `"ServicePrincipal"`, `"ServicePrincipalCertificate"`, "Loss Certificate identity.type"},
		"two addresses":          {provider.SourceClusterAPI, `"image"`, `"networkInterfaces":[{"subnetName":"workers","privateIPConfigs":2}],"image"`, "Loss PrivateIPs machine.networkInterfaces[0].privateIPConfigs"},
		"missing subscription":   {provider.SourceClusterAPI, `"subscriptionID":"` + subscription + `",`, ``, "Blocker MissingCredentials "},
	} {
		t.Run(name, func(t *testing.T) {
			spec := strings.Replace(oldSpecs()[test.source], test.from, test.to, 1)
			if spec == oldSpecs()[test.source] {
				t.Fatal("the test case does not change the description")
			}
			imported, err := d.Import(t.Context(), provider.ImportRequest{Legacy: legacyOf(test.source, spec), Facts: []byte(facts)})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, f := range imported.Findings {
				if f.Level != provider.FindingNote {
					got = append(got, string(f.Level)+" "+f.Code+" "+f.Path)
				}
			}
			if strings.Join(got, "\n") != test.want {
				t.Errorf("got the findings\n%s\nwant\n%s", strings.Join(got, "\n"), test.want)
			}
		})
	}
}

// The old controllers read credentials from their environment if the description has none.
func TestCredentialsFromEnvironment(t *testing.T) {
	d := newDriver(t)
	spec := strings.NewReplacer(`"subscriptionID":"`+subscription+`",`, ``, `{"value":"`+tenant+`"}`, `null`,
		`"clientID":"`+application+`","clientSecret":"`+secret+`",`, ``).Replace(oldSpecs()[provider.SourceClusterK8s])
	old := legacyOf(provider.SourceClusterK8s, spec)
	old.Credentials = provider.NewCredentials(map[string][]byte{"AZURE_TENANT_ID": []byte(tenant),
		"AZURE_SUBSCRIPTION_ID": []byte(subscription), "AZURE_CLIENT_ID": []byte(application),
		"AZURE_CLIENT_SECRET": []byte(secret)})
	imported, err := d.Import(t.Context(), provider.ImportRequest{Legacy: old, Facts: []byte(facts)})
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range imported.Findings {
		if f.Level == provider.FindingBlocker {
			t.Errorf("%s %s: %s", f.Code, f.Path, f.Message)
		}
	}
	if got := string(imported.Credentials["clientSecret"]); got != secret {
		t.Errorf("the class gets the client secret %q", got)
	}
}

// Without an instance, no fact completes the description.
func TestImportWithoutInstance(t *testing.T) {
	d := newDriver(t)
	spec := strings.Replace(oldSpecs()[provider.SourceOpenShift], `"maxPrice":"0.5"`, `"maxPrice":"500m"`, 1)
	imported, err := d.Import(t.Context(), provider.ImportRequest{Legacy: legacyOf(provider.SourceOpenShift, spec)})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Spot struct {
			MaxPrice       float64
			EvictionPolicy string
		}
		SSHPublicKey string
	}
	if err := json.Unmarshal(imported.Spec, &got); err != nil {
		t.Fatal(err)
	}
	if got.Spot.MaxPrice != 0.5 || got.Spot.EvictionPolicy != "Delete" {
		t.Errorf("spot machines have the price %g and the policy %s", got.Spot.MaxPrice, got.Spot.EvictionPolicy)
	}
	class := provider.Class{Spec: imported.Spec, Credentials: provider.NewCredentials(imported.Credentials)}
	if err := d.Validate(t.Context(), provider.ValidateRequest{Class: class}); err != nil {
		t.Error(err)
	}
	if !slices.ContainsFunc(imported.Findings, func(f provider.Finding) bool {
		return f.Level == provider.FindingNote && f.Code == "GeneratedSSHKey"
	}) {
		t.Errorf("no Note about the generated key %s: %v", got.SSHPublicKey, imported.Findings)
	}
}

func TestDescriptionOfAnotherCloudIsUnimplemented(t *testing.T) {
	old := provider.Legacy{Source: provider.SourceGardener, Provider: "OpenStack",
		Spec: provider.NewSecret([]byte(`{}`))}
	_, err := newDriver(t).Import(t.Context(), provider.ImportRequest{Legacy: old})
	if provider.CodeOf(err) != provider.Unimplemented {
		t.Errorf("the error is %v", err)
	}
}

func FuzzImport(f *testing.F) {
	d := newDriver(f)
	for i, old := range legacies() {
		f.Add(uint8(i), string(old.Spec.Reveal()), "surprise", facts)
	}
	f.Add(uint8(3), `{"properties":{"storageProfile":{"dataDisks":[{"lun":99999999999}]}},"tags":{"a":1}}`, "", `{}`)
	f.Fuzz(func(t *testing.T, source uint8, spec, field, knownFacts string) {
		old := legacyOf(provider.Sources()[int(source)%len(provider.Sources())], spec)
		if _, err := d.Import(t.Context(), provider.ImportRequest{Legacy: old, Facts: []byte(knownFacts)}); err != nil {
			return
		}
		var fields map[string]any
		if json.Unmarshal([]byte(spec), &fields) != nil {
			return
		}
		// No system has a field with this name.
		field = "x-" + strings.ToValidUTF8(field, "")
		if len(field) > 64 {
			return
		}
		fields[field] = true
		data, err := json.Marshal(fields)
		if err != nil {
			return
		}
		old.Spec = provider.NewSecret(data)
		imported, err := d.Import(t.Context(), provider.ImportRequest{Legacy: old, Facts: []byte(knownFacts)})
		if err != nil {
			return // The description has become too long.
		}
		if !slices.ContainsFunc(imported.Findings, func(f provider.Finding) bool {
			return f.Code == provider.FindingUnknownField && f.Path == field
		}) {
			t.Errorf("no finding for field %q of %s", field, data)
		}
	})
}
