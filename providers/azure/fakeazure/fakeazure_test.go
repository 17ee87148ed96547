package fakeazure_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"machinist.dev/machinist/providers/azure/fakeazure"
)

const (
	tenant       = "11111111-1111-4111-8111-111111111111"
	subscription = "22222222-2222-4222-8222-222222222222"
	client       = "33333333-3333-4333-8333-333333333333"
	group        = "/subscriptions/" + subscription + "/resourceGroups/machines"
	subnet       = group + "/providers/Microsoft.Network/virtualNetworks/v/subnets/s"
	nic          = group + "/providers/Microsoft.Network/networkInterfaces/n"
	ip           = group + "/providers/Microsoft.Network/publicIPAddresses/i"
	vm           = group + "/providers/Microsoft.Compute/virtualMachines/m"
	vmVersion    = "?api-version=2025-04-01"
	netVersion   = "?api-version=2025-01-01"
)

type object = map[string]any

// azure is a fake Azure that serves HTTP, with a client that has signed in.
type azure struct {
	*testing.T
	*fakeazure.Azure
	url   string
	token string
}

func start(t *testing.T, change func(*fakeazure.Options)) *azure {
	t.Helper()
	o := fakeazure.Options{Tenant: tenant, Subscription: subscription, Client: client, Secret: "secret",
		Subnets: []string{subnet}, PageSize: 2}
	if change != nil {
		change(&o)
	}
	fake := fakeazure.New(o)
	server := httptest.NewServer(fake)
	t.Cleanup(func() { server.Close(); fake.Close() })
	a := &azure{T: t, Azure: fake, url: server.URL}
	status, body := a.signIn("grant_type=client_credentials&client_id=" + client +
		"&client_secret=secret&scope=x/.default")
	if status != http.StatusOK {
		t.Fatalf("sign in: got %d %v", status, body)
	}
	a.token = body["access_token"].(string)
	return a
}

func (a *azure) signIn(form string) (int, object) {
	a.Helper()
	return a.do(http.MethodPost, "/"+tenant+"/oauth2/v2.0/token", []byte(form),
		http.Header{"Content-Type": {"application/x-www-form-urlencoded"}})
}

func (a *azure) do(method, path string, body []byte, header http.Header) (int, object) {
	a.Helper()
	request, err := http.NewRequestWithContext(a.Context(), method, a.url+path, bytes.NewReader(body))
	if err != nil {
		a.Fatal(err)
	}
	request.Header = header
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		a.Fatal(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		a.Fatal(err)
	}
	var out object
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &out); err != nil {
			a.Fatalf("decode the response: %s: %s", err, raw)
		}
	}
	if at := response.Header.Get("Azure-AsyncOperation"); at != "" {
		if out == nil {
			out = object{}
		}
		out["operation"] = strings.TrimPrefix(at, a.url)
	}
	return response.StatusCode, out
}

// call returns the status, the error code, and the body.
func (a *azure) call(method, path string, body any, header ...string) (int, string, object) {
	a.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		a.Fatal(err)
	}
	h := http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer " + a.token}}
	for i := 0; i < len(header); i += 2 {
		h.Set(header[i], header[i+1])
	}
	status, out := a.do(method, path, raw, h)
	failure, _ := out["error"].(object)
	code, _ := failure["code"].(string)
	return status, code, out
}

func (a *azure) want(status int, code, method, path string, body any, header ...string) object {
	a.Helper()
	gotStatus, gotCode, out := a.call(method, path, body, header...)
	if gotStatus != status || gotCode != code {
		a.Errorf("%s %s: got %d %q, want %d %q: %v", method, path, gotStatus, gotCode, status, code, out)
	}
	return out
}

func nicBody() object {
	return object{"location": "westeurope", "properties": object{
		"ipConfigurations": []any{object{"name": "a", "properties": object{"subnet": object{"id": subnet}}}},
	}}
}

func vmBody() object {
	return object{"location": "westeurope", "properties": object{
		"hardwareProfile": object{"vmSize": "Standard_D2s_v5"},
		"storageProfile": object{
			"imageReference": object{"publisher": "Canonical", "offer": "0001-com-ubuntu-server-jammy", "sku": "22_04-lts-gen2",
				"version": "latest"},
			"osDisk": object{"createOption": "FromImage"},
		},
		"osProfile":      object{"computerName": "m", "adminUsername": "a", "adminPassword": "p", "customData": "Y2xvdWQ="},
		"networkProfile": object{"networkInterfaces": []any{object{"id": nic}}},
	}}
}

// setValue sets the value at a dotted path of keys, or removes it if the value is nil.
func setValue(body object, path string, value any) object {
	keys := strings.Split(path, ".")
	at := body
	for _, key := range keys[:len(keys)-1] {
		next, ok := at[key].(object)
		if !ok {
			next = object{}
			at[key] = next
		}
		at = next
	}
	if at[keys[len(keys)-1]] = value; value == nil {
		delete(at, keys[len(keys)-1])
	}
	return body
}

func TestRequestsAreValidated(t *testing.T) {
	a := start(t, nil)
	good := a.token
	a.token = "unknown"
	a.want(401, "InvalidAuthenticationToken", "GET", vm+vmVersion, nil)
	a.token = good
	a.want(400, "MissingApiVersionParameter", "GET", vm, nil)
	a.want(400, "InvalidApiVersionParameter", "GET", vm+"?api-version=2014-01-01", nil)
	a.want(404, "SubscriptionNotFound", "GET", strings.Replace(vm, subscription, tenant, 1)+vmVersion, nil)
	a.want(404, "ResourceGroupNotFound", "GET", strings.Replace(vm, "resourceGroups/machines", "resourceGroups/other",
		1)+vmVersion, nil)
	a.want(404, "InvalidResourceType", "GET", group+"/providers/Microsoft.Storage/storageAccounts/a"+vmVersion, nil)
	a.want(404, "ResourceNotFound", "GET", vm+vmVersion, nil)
	a.want(204, "", "DELETE", vm+vmVersion, nil)
	a.want(415, "UnsupportedMediaType", "PUT", nic+netVersion, nicBody(), "Content-Type", "text/plain")
	a.want(400, "InvalidRequestContent", "PUT", nic+netVersion, "text")

	a.want(400, "BadRequest", "PUT", nic+netVersion, setValue(nicBody(), "properties.enableIpForwarding", true))
	a.want(400, "InvalidParameter", "PUT", nic+netVersion, setValue(nicBody(), "location", nil))
	a.want(400, "InvalidResourceReference", "PUT", nic+netVersion, setValue(nicBody(), "properties.ipConfigurations",
		[]any{object{"name": "a", "properties": object{"subnet": object{"id": subnet + "x"}}}}))
	a.want(400, "StandardSkuPublicIPAddressesMustBeStatic", "PUT", ip+netVersion,
		object{"location": "westeurope", "sku": object{"name": "Standard"}})
	a.want(201, "", "PUT", nic+netVersion, setValue(nicBody(), "properties.macAddress", "mine"))
	if out := a.want(200, "", "GET", nic+netVersion, nil); out["properties"].(object)["macAddress"] == "mine" {
		t.Error("the request changed a read-only property")
	}

	for path, test := range map[string]struct {
		value  any
		status int
		code   string
	}{
		"location":                                       {nil, 400, "InvalidParameter"},
		"properties.hardwareProfile.vmSize":              {"Standard_Nothing", 400, "InvalidParameter"},
		"properties.hardwareProfile.cores":               {2, 400, "BadRequest"},
		"properties.storageProfile.osDisk.caching":       {"Some", 400, "InvalidParameter"},
		"properties.storageProfile.osDisk.deleteOption":  {"Keep", 400, "InvalidParameter"},
		"properties.storageProfile.imageReference.offer": {"other", 404, "PlatformImageNotFound"},
		"properties.osProfile.computerName":              {nil, 400, "InvalidParameter"},
		"properties.osProfile.customData":                {"not base64!", 400, "InvalidParameter"},
		"properties.osProfile.adminPassword":             {nil, 400, "InvalidParameter"},
		"properties.networkProfile.networkInterfaces":    {[]any{object{"id": nic + "x"}}, 400, "InvalidResourceReference"},
		"properties.evictionPolicy":                      {"Delete", 400, "OperationNotAllowed"},
		"tags":                                           {object{"a/b": "c"}, 400, "InvalidTagNameCharacters"},
		"properties.storageProfile.dataDisks": {[]any{object{"createOption": "Empty", "diskSizeGB": 1}}, 400,
			"InvalidParameter"},
	} {
		a.want(test.status, test.code, "PUT", vm+vmVersion, setValue(vmBody(), path, test.value))
	}
	a.want(412, "PreconditionFailed", "PUT", vm+vmVersion, vmBody(), "If-Match", `"1"`)
	created := a.want(201, "", "PUT", vm+vmVersion, vmBody(), "If-None-Match", "*")
	if strings.Contains(string(must(json.Marshal(created))), "Y2xvdWQ=") {
		t.Error("the response contains the custom data")
	}
	a.want(412, "PreconditionFailed", "PUT", vm+vmVersion, vmBody(), "If-None-Match", "*")
	a.want(409, "PropertyChangeNotAllowed", "PUT", vm+vmVersion, vmBody())
	a.want(412, "PreconditionFailed", "PATCH", vm+vmVersion, object{"tags": object{"a": "b"}}, "If-Match", `"0"`)
	a.want(400, "NicInUse", "DELETE", nic+netVersion, nil)
	a.want(400, "InvalidParameter", "GET", group+"/providers/Microsoft.Compute/virtualMachines"+vmVersion+
		"&$expand=instanceView", nil)
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A second request for the same resource is refused until the operation ends, or terminates the operation.
func TestOperationsRunAsynchronously(t *testing.T) {
	a := start(t, func(o *fakeazure.Options) { o.BootDuration, o.StopDuration = 2*time.Second, 2*time.Second })
	a.want(201, "", "PUT", nic+netVersion, nicBody())
	out := a.want(201, "", "PUT", vm+vmVersion, vmBody())
	if state := out["properties"].(object)["provisioningState"]; state != "Creating" {
		t.Errorf("got the state %v of a new machine, want Creating", state)
	}
	a.want(409, "OperationNotAllowed", "PATCH", vm+vmVersion, object{"tags": object{}})
	a.awaitEnd(out["operation"].(string), "Succeeded", "")
	a.want(200, "", "PATCH", vm+vmVersion, object{"tags": object{"a": "b"}})
	out = a.want(202, "", "DELETE", vm+vmVersion, nil)
	a.want(409, "OperationNotAllowed", "PATCH", vm+vmVersion, object{"tags": object{}})
	a.awaitEnd(out["operation"].(string), "Succeeded", "")
	a.want(404, "ResourceNotFound", "GET", vm+vmVersion, nil)
	if left := a.Resources(); len(left) != 2 {
		t.Errorf("got the resources %v, want the interface and the disk, which have no delete options", left)
	}

	end := a.Inject(fakeazure.Fault{Operation: "VirtualMachines_CreateOrUpdate", AsyncCode: "AllocationFailed"})
	body := setValue(vmBody(), "properties.storageProfile.osDisk.name", "another")
	out = a.want(201, "", "PUT", vm+vmVersion, body)
	end()
	a.awaitEnd(out["operation"].(string), "Failed", "AllocationFailed")
	out = a.want(201, "", "PUT", vm+"2"+vmVersion, func() object {
		a.want(201, "", "PUT", nic+"2"+netVersion, nicBody())
		return setValue(setValue(vmBody(), "properties.networkProfile.networkInterfaces", []any{object{"id": nic + "2"}}),
			"properties.storageProfile.osDisk.name", "third")
	}())
	a.want(202, "", "DELETE", vm+"2"+vmVersion, nil)
	a.awaitEnd(out["operation"].(string), "Failed", "OperationPreempted")
}

func (a *azure) awaitEnd(path, status, code string) {
	a.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		_, gotCode, out := a.call("GET", path, nil)
		if out["status"] != "InProgress" {
			if out["status"] != status || gotCode != code {
				a.Errorf("got the result %v, want %s %q", out, status, code)
			}
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			a.Fatalf("the operation did not end in time: %v", out)
		}
	}
}

func TestListsPageAndLag(t *testing.T) {
	a := start(t, func(o *fakeazure.Options) { o.ListLag = time.Hour })
	for _, name := range []string{"1", "2", "3"} {
		a.want(201, "", "PUT", nic+name+netVersion, nicBody())
	}
	all := group + "/providers/Microsoft.Network/networkInterfaces" + netVersion
	if out := a.want(200, "", "GET", all, nil); len(out["value"].([]any)) != 0 {
		t.Errorf("got %v, want an empty list, because lists lag", out)
	}
	a = start(t, nil)
	for _, name := range []string{"1", "2", "3"} {
		a.want(201, "", "PUT", nic+name+netVersion, nicBody())
	}
	found := map[string]bool{}
	for next, pages := all, 1; next != ""; pages++ {
		out := a.want(200, "", "GET", next, nil)
		for _, one := range out["value"].([]any) {
			found[one.(object)["name"].(string)] = true
		}
		link, _ := out["nextLink"].(string)
		if next = strings.TrimPrefix(link, a.url); next == "" && pages != 2 {
			t.Errorf("got %d pages, want 2", pages)
		}
	}
	if !maps.Equal(found, map[string]bool{"n1": true, "n2": true, "n3": true}) {
		t.Errorf("got the names %v, want n1, n2, n3", found)
	}
}

func TestSignInIsChecked(t *testing.T) {
	a := start(t, nil)
	for form, want := range map[string]string{
		"grant_type=password":           "unsupported_grant_type",
		"grant_type=client_credentials": "invalid_scope",
		"grant_type=client_credentials&scope=x/.default&client_id=other":                            "unauthorized_client",
		"grant_type=client_credentials&scope=x/.default&client_id=" + client:                        "invalid_client",
		"grant_type=client_credentials&scope=x/.default&client_assertion=a.b.c&client_id=" + client: "invalid_client",
	} {
		if status, body := a.signIn(form); status < 400 || body["error"] != want {
			t.Errorf("%s: got %d %v, want %s", form, status, body, want)
		}
	}
}

func TestAdminEndpointNeedsKey(t *testing.T) {
	a := start(t, nil)
	server := httptest.NewServer(a.WithAdmin("key"))
	defer server.Close()
	a.url = server.URL
	for _, path := range []string{"/fake/state", "/fake/faults"} {
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, a.url+path, nil)
		request.Header.Set("Authorization", "Bearer "+a.token)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s without the key: got %s, want 401", path, response.Status)
		}
	}
	a.token = "key"
	if _, _, out := a.call("GET", "/fake/state", nil); out["made"] != 0.0 {
		t.Errorf("got the state %v, want no virtual machine", out)
	}
}

func TestSemanticsOccurIfEnabled(t *testing.T) {
	const late = time.Hour // longer than the test may take
	for name, tc := range map[string]struct {
		semantics fakeazure.Semantics
		now       func(status int, body object) bool // checks the response to a GET right after the creation
		removed   int                                // expected status of a GET right after the deletion
	}{
		"none": {fakeazure.Semantics{}, func(status int, body object) bool {
			return status == http.StatusOK && body["tags"] != nil
		}, http.StatusNotFound},
		"reads do not find new resources": {fakeazure.Semantics{ReadsMissNew: late}, func(status int, _ object) bool {
			return status == http.StatusNotFound
		}, http.StatusNotFound},
		"reads find deleted resources": {fakeazure.Semantics{ReadsShowDeleted: late}, func(status int, _ object) bool {
			return status == http.StatusOK
		}, http.StatusOK},
		"tags are late": {fakeazure.Semantics{TagsLate: late}, func(status int, body object) bool {
			return status == http.StatusOK && body["tags"] == nil
		}, http.StatusNotFound},
		"tokens expire early": {fakeazure.Semantics{TokenLife: time.Nanosecond}, func(status int, _ object) bool {
			return status == http.StatusUnauthorized
		}, http.StatusUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := start(t, func(o *fakeazure.Options) { o.Semantics = tc.semantics })
			path, header := ip+netVersion, http.Header{"Authorization": {"Bearer " + a.token},
				"Content-Type": {"application/json"}}
			raw, err := json.Marshal(object{
				"location": "westeurope", "tags": object{"a": "b"}, "sku": object{"name": "Standard"},
				"properties": object{"publicIPAllocationMethod": "Static"},
			})
			if err != nil {
				t.Fatal(err)
			}
			a.do(http.MethodPut, path, raw, header)
			if status, body := a.do(http.MethodGet, path, nil, header); !tc.now(status, body) {
				t.Errorf("after the creation: got %d %v", status, body)
			}
			a.do(http.MethodDelete, path, nil, header)
			if status, _ := a.do(http.MethodGet, path, nil, header); status != tc.removed {
				t.Errorf("after the deletion: got %d, want %d", status, tc.removed)
			}
		})
	}
}

func TestAdjustChangesBehavior(t *testing.T) {
	a := start(t, nil)
	a.want(201, "", "PUT", nic+netVersion, nicBody())
	a.want(201, "", "PUT", vm+vmVersion, vmBody())
	names := func() (ids []string) {
		t.Helper()
		for next := group + "/providers/Microsoft.Compute/virtualMachines" + vmVersion; next != ""; {
			out := a.want(200, "", "GET", next, nil)
			for _, one := range out["value"].([]any) {
				ids = append(ids, one.(object)["id"].(string))
			}
			link, _ := out["nextLink"].(string)
			next = strings.TrimPrefix(link, a.url)
		}
		return ids
	}
	if got := names(); len(got) != 1 || got[0] != vm {
		t.Fatalf("got the list %v, want only %s", got, vm)
	}
	a.Adjust(func(o *fakeazure.Options) { o.Semantics.ListsRepeat, o.Semantics.IDsUpper = true, true })
	if got := names(); len(got) != 3 || got[0] == vm || !strings.EqualFold(got[0], vm) {
		t.Errorf("got the list %v, want three entries in upper case", got)
	}
	a.Adjust(func(o *fakeazure.Options) { o.Semantics = fakeazure.Semantics{StateFlickers: true} })
	states := map[string]bool{}
	for range 4 {
		states[a.want(200, "", "GET", vm+vmVersion, nil)["properties"].(object)["provisioningState"].(string)] = true
	}
	if !maps.Equal(states, map[string]bool{"Succeeded": true, "Creating": true}) {
		t.Errorf("got the states %v, want Succeeded and Creating", states)
	}
	a.Adjust(func(o *fakeazure.Options) { o.Semantics = fakeazure.Semantics{} })

	end := a.FreezeQuota(time.Hour)
	a.want(201, "", "PUT", nic+"2"+netVersion, nicBody())
	other := vmBody()
	other["properties"].(object)["networkProfile"] = object{"networkInterfaces": []any{object{"id": nic + "2"}}}
	a.want(409, "OperationNotAllowed", "PUT", vm+"2"+vmVersion, other)
	a.want(202, "", "DELETE", vm+vmVersion, nil)
	a.want(409, "OperationNotAllowed", "PUT", vm+"2"+vmVersion, other)
	end()
	tagged := vmBody()
	tagged["properties"].(object)["networkProfile"] = object{"networkInterfaces": []any{object{"id": nic + "2"}}}
	tagged["tags"] = object{"ours": "yes"}
	a.want(201, "", "PUT", vm+"2"+vmVersion, tagged)
	before := len(a.Resources())
	a.DropParts("another")
	if now := len(a.Resources()); now != before {
		t.Errorf("%d resources of a machine without the tag were deleted", before-now)
	}
	a.DropParts("ours")
	for _, r := range a.Resources() {
		if r == "networkInterfaces/machines/n2" || strings.HasPrefix(r, "disks/machines/m2_") {
			t.Errorf("resource %s still exists", r)
		}
	}
	a.want(200, "", "GET", vm+"2"+vmVersion, nil)
}
