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

// leftovers are the last words of the names of those in a list, and the list's instances.
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
				c.Errorf("listed %+v", l)
			}
		}
		if req.Continue = page.Continue; req.Continue == "" {
			slices.Sort(parts)
			return parts, instances
		}
	}
}

// destroy removes the virtual machines whose names begin with name past the driver, as somebody does in the portal.
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
func TestListShowsThePartsThatBelongToNoMachine(t *testing.T) {
	bothWays(t, func(t *testing.T, newCloud opener) {
		c := newCloud(t, nil)
		anywhere := provider.Class{Credentials: credentials()}
		wants := func(instances int, parts ...string) {
			t.Helper()
			slices.Sort(parts)
			for _, class := range []provider.Class{class(), anywhere} {
				if got, found := c.leftovers(cluster, class); !slices.Equal(got, parts) || len(found) != instances {
					t.Errorf("listed the parts %v and %d machines, want %v and %d", got, len(found), parts, instances)
				}
			}
			if got, found := c.leftovers("cluster-b", class()); len(got)+len(found) != 0 {
				t.Errorf("listed %v and %v for another cluster", got, found)
			}
		}
		wants(0)
		_, remove, err := c.launch(t.Context(), nil) // Untagged, with an interface.
		c.must(err)
		defer func() { c.must(remove(t.Context())) }()
		wants(0)

		req := request("a", class())
		end := c.Inject(fakeazure.Fault{Operation: "VirtualMachines_CreateOrUpdate", Status: http.StatusServiceUnavailable,
			Code: "ServiceUnavailable"})
		_, err = c.driver().Create(t.Context(), req)
		if provider.CodeOf(err) != provider.Unavailable {
			t.Fatalf("got %v, want Unavailable", err)
		}
		end()
		wants(0, "nic-0") // Its address belongs to the interface.
		_, err = c.driver().Create(t.Context(), req)
		c.must(err)
		wants(1)

		c.KeepParts()
		c.destroy("a-")
		// Somebody's interface, with tags that were copied from ours.
		other := "/subscriptions/" + subscription +
			"/resourceGroups/machines/providers/Microsoft.Network/networkInterfaces/somebodys?api-version=2025-01-01"
		c.must(c.call(t.Context(), http.MethodPut, other, map[string]any{
			"location": "westeurope", "tags": req.Tags,
			"properties": map[string]any{"ipConfigurations": []any{map[string]any{"name": "a",
				"properties": map[string]any{"subnet": map[string]any{"id": subnet}}}}},
		}))
		wants(0, "nic-0", "os", "data-0", "data-3")
		c.gone(c.driver(), deletion(req))
		wants(0)
		if left := c.Resources(); !slices.Contains(left, "networkInterfaces/machines/somebodys") {
			t.Errorf("somebody's interface is gone: %v", left)
		}
	})
}

// Rule: leftover-parts-are-orphans.
func TestAListThatFailsAmongThePartsFails(t *testing.T) {
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
			t.Errorf("%s fails: List ends with %v", operation, err)
		}
		end()
	}
	for _, at := range []string{"interfaces https://elsewhere.example.com/", "disks file:///etc/passwd", "made up"} {
		_, err := c.driver().List(t.Context(), provider.ListRequest{Class: class(), ClusterID: cluster, Continue: at})
		if provider.CodeOf(err) != provider.InvalidArgument {
			t.Errorf("a list goes on at %q: %v", at, err)
		}
	}
}

// Rule: one-list-per-scope.
func TestOneListServesAllClassesOfAResourceGroup(t *testing.T) {
	d := newCloud(t, nil).driver()
	scope := func(class provider.Class) string {
		t.Helper()
		name, err := d.ListScope(class)
		if err != nil || name == "" {
			t.Errorf("ListScope = %q, %v", name, err)
		}
		return name
	}
	small := scope(class())
	if scope(class("vmSize", "Standard_D4s_v5", "zone", "2", "resourceGroup", "MACHINES")) != small {
		t.Error("two sizes in one resource group are two scopes")
	}
	if scope(class("resourceGroup", "network")) == small {
		t.Error("two resource groups are one scope")
	}
	if scope(provider.Class{Credentials: credentials()}) == small {
		t.Error("a subscription is the scope of one of its resource groups")
	}
}

func TestPublicAddressesAreExternal(t *testing.T) {
	bothWays(t, func(t *testing.T, newCloud opener) {
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
			t.Errorf("the public address is %v", got)
		}
		before := c.Calls()["PublicIPAddresses_Get"]
		if got := external(private); len(got) != 0 || c.Calls()["PublicIPAddresses_Get"] != before {
			t.Errorf("a machine without a public address has %v, after %d calls for it", got,
				c.Calls()["PublicIPAddresses_Get"]-before)
		}
		for status, code := range map[int]string{http.StatusForbidden: "AuthorizationFailed",
			http.StatusNotFound: "ResourceNotFound"} {
			end := c.Inject(fakeazure.Fault{Operation: "PublicIPAddresses_Get", Status: status, Code: code})
			if got := external(public); len(got) != 0 {
				t.Errorf("%s: the public address is %v", code, got)
			}
			end()
		}
		end := c.Inject(fakeazure.Fault{Operation: "PublicIPAddresses_Get", Status: http.StatusServiceUnavailable,
			Code: "ServiceUnavailable"})
		if _, err := c.driver().Get(t.Context(), lookup(public)); provider.CodeOf(err) != provider.Unavailable {
			t.Errorf("an address that nobody could read: %v; it must not come and go", err)
		}
		end()
		c.gone(c.driver(), deletion(public))
		c.gone(c.driver(), deletion(private))
		c.nothingLeft()
	})
}
