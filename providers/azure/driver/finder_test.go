package driver_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"

	"machinist.dev/machinist/pkg/provider"
)

// handmade returns the class that describes the virtual machines of fakeazure.Customer, with changes.
func handmade(changes ...any) provider.Class {
	return class(append([]any{"zone", nil, "dataDisks", nil}, changes...)...)
}

func (c *cloud) find(class provider.Class) map[string]provider.FoundInstance {
	c.Helper()
	all, err := c.driver().Find(c.Context(), provider.FindRequest{Class: class})
	c.must(err)
	byName := map[string]provider.FoundInstance{}
	for _, found := range all {
		byName[found.Name] = found
	}
	return byName
}

// Rules: azure-adopts-marked-only, list-within-resource-group.
func TestFindDescribesMachines(t *testing.T) {
	t.Parallel()
	c := newCloud(t, nil)
	tagsOf := map[string]map[string]string{
		"marked":   {"machinist-adoptable": "true", "pool": "a"},
		"unmarked": {"pool": "b"},
		"old":      {"machinist-adoptable": "true", "Machine-UID": "uid-of-old"},
		"aks":      {"machinist-adoptable": "true", "aks-managed-poolName": "system"},
	}
	for _, name := range slices.Sorted(maps.Keys(tagsOf)) {
		_, _, err := c.launchIn(t.Context(), "machines", name, tagsOf[name])
		c.must(err)
	}
	_, _, err := c.launchIn(t.Context(), "network", "elsewhere", adoptableTags())
	c.must(err)

	all := c.find(handmade())
	if got, want := slices.Sorted(maps.Keys(all)), slices.Sorted(maps.Keys(tagsOf)); !slices.Equal(got, want) {
		t.Fatalf("Find returns the virtual machines %v, want %v", got, want)
	}
	for name, found := range all {
		if !maps.Equal(found.Metadata, tagsOf[name]) || len(found.Differences) > 0 ||
			len(found.Instance.Addresses) != 2 || found.Instance.State != provider.StateRunning {
			t.Errorf("Find describes the virtual machine %s as %+v", name, found)
		}
		for _, network := range []string{subnet, "workers", path.Dir(path.Dir(subnet)), "nodes"} {
			if !slices.Contains(found.Networks, network) {
				t.Errorf("virtual machine %s has the networks %v, want %s", name, found.Networks, network)
			}
		}
		reason := ""
		if name == "unmarked" {
			reason = "machinist-adoptable=true --resource-id '" + strings.TrimPrefix(found.Instance.ProviderID, "azure://") + "'"
		}
		if (found.NotAdoptable != "") != (reason != "") || !strings.Contains(found.NotAdoptable, reason) {
			t.Errorf("virtual machine %s is not adoptable because %q, want %q", name, found.NotAdoptable, reason)
		}
	}
	for name, system := range map[string]string{"old": "Kubermatic", "aks": "Azure Kubernetes Service", "marked": "", "unmarked": ""} {
		if got := all[name].OtherSystem; (got != "") != (system != "") || !strings.Contains(got, system) {
			t.Errorf("the other system of virtual machine %s is %q, want %q", name, got, system)
		}
	}
}

func TestFindComparesMachinesWithClass(t *testing.T) {
	t.Parallel()
	c := newCloud(t, nil)
	_, _, err := c.launchIn(t.Context(), "machines", "web", adoptableTags())
	c.must(err)
	group := "/subscriptions/" + subscription + "/resourceGroups/machines/providers/"
	for field, test := range map[string]struct {
		changes         []any
		instance, class string
	}{
		"zone":      {[]any{"zone", "1"}, "", "1"},
		"vmSize":    {[]any{"vmSize", "Standard_D4s_v5"}, "Standard_D2s_v5", "Standard_D4s_v5"},
		"spot":      {[]any{"spot", map[string]any{}}, "false", "true"},
		"dataDisks": {[]any{"dataDisks", []any{map[string]any{"lun": 1, "sizeGiB": 8}}}, "none", "8 GiB at LUN 1"},
		"image": {[]any{"image", map[string]any{"galleryImageID": group + "Microsoft.Compute/galleries/g/images/i/versions/1.0.0"}},
			"Canonical:0001-com-ubuntu-server-jammy:22_04-lts-gen2:latest", "machines/g/i/1.0.0"},
		"availabilitySetID": {[]any{"availabilitySetID", group + "Microsoft.Compute/availabilitySets/a"}, "none", "machines/a"},
		"identity.userAssignedIDs": {[]any{"identity.userAssignedIDs",
			[]any{group + "Microsoft.ManagedIdentity/userAssignedIdentities/nodes"}}, "none", "machines/nodes"},
		"identity.systemAssigned": {[]any{"identity.systemAssigned", true}, "false", "true"},
		"networkInterfaces.subnetID": {[]any{"networkInterfaces", []any{map[string]any{
			"subnetID": strings.Replace(subnet, "workers", "others", 1)}}}, "network/nodes/workers", "network/nodes/others"},
		"networkInterfaces.securityGroupID": {[]any{"networkInterfaces", []any{map[string]any{"subnetID": subnet,
			"securityGroupID": group + "Microsoft.Network/networkSecurityGroups/s"}}}, "none", "machines/s"},
		"networkInterfaces.ipForwarding": {[]any{"networkInterfaces", []any{map[string]any{"subnetID": subnet,
			"ipForwarding": true}}}, "false", "true"},
	} {
		t.Run(field, func(t *testing.T) {
			want := []provider.Difference{{Field: field, Instance: test.instance, Class: test.class}}
			if got := c.find(handmade(test.changes...))["web"].Differences; !slices.Equal(got, want) {
				t.Errorf("got the differences %+v, want %+v", got, want)
			}
		})
	}
	// Azure ignores the case of names and IDs.
	same := handmade("vmSize", "standard_d2S_V5", "networkInterfaces",
		[]any{map[string]any{"subnetID": strings.Replace(subnet, "workers", "WORKERS", 1)}})
	if got := c.find(same)["web"].Differences; len(got) > 0 {
		t.Errorf("with another case in the class, got the differences %+v", got)
	}
}

// If an interface of a virtual machine is in another resource group, which Find does not list, the network is
// unknown.
func TestFindOmitsUnknownNetwork(t *testing.T) {
	t.Parallel()
	c := newCloud(t, nil)
	id, _, err := c.launchIn(t.Context(), "machines", "web", adoptableTags())
	c.must(err)
	vm := strings.TrimPrefix(id, "azure://")
	body := c.machine(id)
	properties := body["properties"].(map[string]any)
	nic := strings.NewReplacer("resourceGroups/machines", "resourceGroups/network", "Microsoft.Compute/virtualMachines",
		"Microsoft.Network/networkInterfaces").Replace(vm)
	c.must(c.call(t.Context(), http.MethodPut, nic+"?api-version=2025-01-01", map[string]any{"location": "westeurope",
		"properties": map[string]any{"ipConfigurations": []any{map[string]any{"name": "a",
			"properties": map[string]any{"subnet": map[string]any{"id": subnet}}}}}}))
	request := map[string]any{"location": "westeurope", "tags": body["tags"], "properties": map[string]any{
		"hardwareProfile": properties["hardwareProfile"],
		"storageProfile": map[string]any{
			"imageReference": properties["storageProfile"].(map[string]any)["imageReference"],
			"osDisk":         map[string]any{"createOption": "FromImage"}},
		"osProfile":      map[string]any{"computerName": "remote", "adminUsername": "operator", "adminPassword": "Passw0rd!"},
		"networkProfile": map[string]any{"networkInterfaces": []any{map[string]any{"id": nic}}}}}
	c.must(c.call(t.Context(), http.MethodPut, path.Dir(vm)+"/remote?api-version=2025-04-01", request))
	others := map[string]any{"subnetID": strings.Replace(subnet, "workers", "others", 1)}
	found := c.find(handmade("networkInterfaces", []any{others}))
	if web := found["web"]; len(web.Networks) == 0 || len(web.Differences) != 1 {
		t.Errorf("Find describes a virtual machine with a known interface as %+v", web)
	}
	if remote := found["remote"]; remote.Name == "" || len(remote.Networks) > 0 || len(remote.Differences) > 0 {
		t.Errorf("Find describes a virtual machine with an unknown interface as %+v, want no network", remote)
	}
}

// Machinist adopts the virtual machines that Find returns, and gives one of them back. No call starts, stops,
// changes or deletes a virtual machine, except for tags and delete options.
func TestFoundMachinesAreTakenOver(t *testing.T) {
	t.Parallel()
	c := newCloud(t, nil)
	names := []string{"db-1", "web-1", "web-2"}
	before := map[string]map[string]any{}
	for _, name := range names {
		id, _, err := c.launchIn(t.Context(), "machines", name, adoptableTags())
		c.must(err)
		before[name] = c.machine(id)
	}
	calls := c.Calls()
	class := handmade()
	for name, found := range c.find(class) {
		r := request(name, class)
		adopt := provider.AdoptRequest{Machine: r.Machine, Class: class, ClusterID: cluster,
			ProviderID: found.Instance.ProviderID, Tags: r.Tags}
		in, err := c.driver().Adopt(t.Context(), adopt)
		c.must(err)
		c.must(in.OwnedBy(cluster, r.Machine))
	}
	for name, found := range c.find(class) {
		if found.NotAdoptable != "" || found.Instance.MachineUID != machineOf(name).UID {
			t.Errorf("after the adoption, Find describes the virtual machine %s as %+v", name, found)
		}
		c.sameMachine(name, before[name], c.machine(found.Instance.ProviderID), "tags")
	}
	r := request("db-1", class)
	id := "azure://" + before["db-1"]["id"].(string)
	c.must(c.driver().Disown(t.Context(), provider.DisownRequest{Machine: r.Machine, Class: class, ClusterID: cluster,
		ProviderID: id}))
	c.sameMachine("db-1", before["db-1"], c.machine(id))
	allowed := []string{"VirtualMachines_Get", "VirtualMachines_List", "VirtualMachines_Update", "NetworkInterfaces_List",
		"NetworkInterfaces_Get"}
	for operation, n := range c.Calls() {
		if n > calls[operation] && !slices.Contains(allowed, operation) {
			t.Errorf("the adoption called %s", operation)
		}
	}
	if running := c.RunningNames(); len(running) != len(names) {
		t.Errorf("the virtual machines %v run, want %v", running, names)
	}
}

// machine returns a virtual machine without its ETag.
func (c *cloud) machine(providerID string) (body map[string]any) {
	c.Helper()
	c.must(c.read(c.Context(), strings.TrimPrefix(providerID, "azure://")+"?api-version=2025-04-01", &body))
	delete(body, "etag")
	return body
}

func (c *cloud) sameMachine(name string, before, after map[string]any, except ...string) {
	c.Helper()
	b, a := maps.Clone(before), maps.Clone(after)
	for _, field := range except {
		delete(b, field)
		delete(a, field)
	}
	if !reflect.DeepEqual(b, a) {
		was, _ := json.Marshal(b)
		is, _ := json.Marshal(a)
		c.Errorf("virtual machine %s was\n%s\nand is\n%s", name, was, is)
	}
}
