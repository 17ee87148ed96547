package driver_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/fakeazure"
)

// leftovers returns the name suffixes of the cluster's leftover parts, and its instances.
func (c *cloud) leftovers(cluster string, class provider.Class) (parts []string, instances []provider.Instance) {
	c.Helper()
	d := c.driver()
	req := provider.ListRequest{Class: class, ClusterID: cluster}
	for {
		page, err := d.List(c.Context(), req)
		c.must(err)
		instances = append(instances, page.Instances...)
		for _, l := range page.Leftovers {
			parts = append(parts, suffix(l.ID))
			if l.ClusterID != cluster || !strings.HasPrefix(string(l.MachineUID), "uid-of-") ||
				!strings.HasPrefix(l.MachineKey, "default/") {
				c.Errorf("got the leftover %+v without the tags of a machine", l)
			}
		}
		if req.Continue = page.Continue; req.Continue == "" {
			slices.Sort(parts)
			return parts, instances
		}
	}
}

// destroy deletes virtual machines by name prefix without the driver, like a user in the portal.
func (c *cloud) destroy(name string) {
	c.Helper()
	for _, r := range c.Resources() {
		if vm, found := strings.CutPrefix(r, "virtualMachines/machines/"); found && strings.HasPrefix(vm, name) {
			path := "/subscriptions/" + subscription + "/resourceGroups/machines/providers/Microsoft.Compute/virtualMachines/" +
				vm
			c.must(c.call(c.Context(), http.MethodDelete, path+"?api-version=2025-04-01", nil))
		}
	}
}

// Rule: leftover-parts-are-orphans.
func TestListReportsPartsWithoutMachine(t *testing.T) {
	t.Parallel()
	c := newCloud(t, nil)
	expect := func(instances int, parts ...string) {
		t.Helper()
		slices.Sort(parts)
		if got, found := c.leftovers(cluster, class()); !slices.Equal(got, parts) || len(found) != instances {
			t.Errorf("got the parts %v and %d machines, want %v and %d", got, len(found), parts, instances)
		}
		if got, found := c.leftovers("cluster-b", class()); len(got)+len(found) != 0 {
			t.Errorf("another cluster: got %v and %v, want nothing", got, found)
		}
	}
	expect(0)
	// This virtual machine has an interface and none of Machinist's tags.
	_, remove, err := c.launch(t.Context(), nil)
	c.must(err)
	defer func() { c.must(remove(t.Context())) }()
	expect(0)

	req := request("a", class())
	end := c.Inject(fakeazure.Fault{Operation: "VirtualMachines_CreateOrUpdate", Status: http.StatusServiceUnavailable,
		Code: "ServiceUnavailable"})
	_, err = c.driver().Create(t.Context(), req)
	if provider.CodeOf(err) != provider.Unavailable {
		t.Fatalf("got %v, want Unavailable", err)
	}
	end()
	expect(0, "nic-0") // The address belongs to the interface.
	_, err = c.driver().Create(t.Context(), req)
	c.must(err)
	expect(1)

	c.KeepParts()
	c.destroy("a-")
	// An interface of another user has copies of the machine's tags.
	other := "/subscriptions/" + subscription +
		"/resourceGroups/machines/providers/Microsoft.Network/networkInterfaces/foreign?api-version=2025-01-01"
	c.must(c.call(t.Context(), http.MethodPut, other, map[string]any{
		"location": "westeurope", "tags": req.Tags,
		"properties": map[string]any{"ipConfigurations": []any{map[string]any{"name": "a",
			"properties": map[string]any{"subnet": map[string]any{"id": subnet}}}}},
	}))
	expect(0, "nic-0", "os", "data-0", "data-3")
	c.awaitGone(c.driver(), deletion(req))
	expect(0)
	if left := c.Resources(); !slices.Contains(left, "networkInterfaces/machines/foreign") {
		t.Errorf("the interface of another user was deleted: got %v", left)
	}
}

// Rule: leftover-parts-are-orphans.
func TestListFailsIfListOfPartsFails(t *testing.T) {
	c := newCloud(t, nil)
	for _, operation := range []string{"NetworkInterfaces_List", "PublicIPAddresses_List", "Disks_ListByResourceGroup"} {
		end := c.Inject(fakeazure.Fault{Operation: operation, Status: http.StatusServiceUnavailable,
			Code: "ServiceUnavailable"})
		req, err := provider.ListRequest{Class: class(), ClusterID: cluster}, error(nil)
		for pages := 0; pages < 10 && err == nil; pages++ {
			var page provider.ListPage
			if page, err = c.driver().List(t.Context(), req); page.Continue == "" {
				break
			}
			req.Continue = page.Continue
		}
		if provider.CodeOf(err) != provider.Unavailable {
			t.Errorf("%s fails: got %v, want Unavailable", operation, err)
		}
		end()
	}
	for _, at := range []string{"interfaces https://elsewhere.example.com/", "disks file:///etc/passwd", "made up"} {
		_, err := c.driver().List(t.Context(), provider.ListRequest{Class: class(), ClusterID: cluster, Continue: at})
		if provider.CodeOf(err) != provider.InvalidArgument {
			t.Errorf("continue token %q: got %v, want InvalidArgument", at, err)
		}
	}
}

// Rule: one-list-per-scope.
func TestClassesOfResourceGroupShareListScope(t *testing.T) {
	d := newCloud(t, nil).driver()
	scope := func(class provider.Class) string {
		t.Helper()
		name, err := d.ListScope(class)
		if err != nil || name == "" {
			t.Errorf("ListScope: got %q, %v", name, err)
		}
		return name
	}
	small := scope(class())
	if scope(class("vmSize", "Standard_D4s_v5", "zone", "2", "resourceGroup", "MACHINES")) != small {
		t.Error("two sizes in one resource group have different scopes")
	}
	if scope(class("resourceGroup", "network")) == small {
		t.Error("two resource groups have the same scope")
	}
}

// A user writes a class without a valid resource group, so that List also covers other resource groups of the
// subscription. The user could then confirm the removal of orphans in these groups.
//
// Rule: list-within-resource-group.
func TestAttackInvalidClassListsSubscription(t *testing.T) {
	t.Parallel()
	c := newCloud(t, nil)
	_, err := c.driver().Create(t.Context(), request("a", class()))
	c.must(err)
	for name, invalid := range map[string]provider.Class{
		"empty": {Credentials: credentials()}, "no resource group": class("resourceGroup", nil),
		"unknown field": class("resourceGroups", "*"), "invalid size": class("vmSize", ""),
	} {
		page, err := c.driver().List(t.Context(), provider.ListRequest{Class: invalid, ClusterID: cluster})
		if provider.CodeOf(err) != provider.InvalidArgument || len(page.Instances) > 0 {
			t.Errorf("%s: List: got %d machines, error %v, want InvalidArgument", name, len(page.Instances), err)
		}
		if scope, err := c.driver().ListScope(invalid); err == nil {
			t.Errorf("%s: ListScope: got %q, want an error", name, scope)
		}
	}
	// If the class has another resource group, the resources of the first group must not be listed.
	if parts, found := c.leftovers(cluster, class("resourceGroup", "network")); len(parts)+len(found) > 0 {
		t.Errorf("with another resource group: got %v and %v, want nothing", parts, found)
	}
}

func TestGetReturnsPublicAddressesAsExternal(t *testing.T) {
	t.Parallel()
	c := newCloud(t, nil)
	external := func(req provider.CreateRequest) (found []string) {
		t.Helper()
		in, err := c.driver().Get(t.Context(), lookup(req))
		c.must(err)
		for _, a := range in.Addresses {
			if a.Type == corev1.NodeExternalIP {
				found = append(found, a.Address)
			}
		}
		return found
	}
	public := request("a", class())
	private := request("b", class("networkInterfaces", []any{map[string]any{"subnetID": subnet}}))
	for _, req := range []provider.CreateRequest{public, private} {
		_, err := c.driver().Create(t.Context(), req)
		c.must(err)
	}
	if got := external(public); len(got) != 1 || !strings.HasPrefix(got[0], "203.0.113.") {
		t.Errorf("got the public addresses %v, want one in 203.0.113.0/24", got)
	}
	before := c.Calls()["PublicIPAddresses_Get"]
	if got := external(private); len(got) != 0 || c.Calls()["PublicIPAddresses_Get"] != before {
		t.Errorf("without a public address: got %v after %d calls, want none after 0 calls", got,
			c.Calls()["PublicIPAddresses_Get"]-before)
	}
	for status, code := range map[int]string{http.StatusForbidden: "AuthorizationFailed",
		http.StatusNotFound: "ResourceNotFound"} {
		end := c.Inject(fakeazure.Fault{Operation: "PublicIPAddresses_Get", Status: status, Code: code})
		if got := external(public); len(got) != 0 {
			t.Errorf("%s: got the public addresses %v, want none", code, got)
		}
		end()
	}
	end := c.Inject(fakeazure.Fault{Operation: "PublicIPAddresses_Get", Status: http.StatusServiceUnavailable,
		Code: "ServiceUnavailable"})
	if _, err := c.driver().Get(t.Context(), lookup(public)); provider.CodeOf(err) != provider.Unavailable {
		t.Errorf("unreadable address: got %v, want Unavailable, because the address must not disappear", err)
	}
	end()
	c.awaitGone(c.driver(), deletion(public))
	c.awaitGone(c.driver(), deletion(private))
	c.nothingLeft()
}
