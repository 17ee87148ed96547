package sdkfake_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/arm"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/compute/armcompute/v7"
	"github.com/Azure/azure-sdk-for-go/sdk/resourcemanager/network/armnetwork/v7"

	"machinist.dev/machinist/providers/azure/fakeazure"
	"machinist.dev/machinist/providers/azure/fakeazure/sdkfake"
)

const (
	subscription = "22222222-2222-4222-8222-222222222222"
	subnet       = "/subscriptions/" + subscription +
		"/resourceGroups/machines/providers/Microsoft.Network/virtualNetworks/v/subnets/s"
	endpoint = "https://management.example.com"
)

type azure struct {
	*testing.T
	*fakeazure.Azure
	interfaces *armnetwork.InterfacesClient
	vms        *armcompute.VirtualMachinesClient
}

func start(t *testing.T, change func(*fakeazure.Options)) *azure {
	t.Helper()
	o := fakeazure.Options{Tenant: "tenant", Subscription: subscription, Client: "client", Secret: "secret",
		Subnets: []string{subnet}, PageSize: 2}
	if change != nil {
		change(&o)
	}
	a := &azure{T: t, Azure: fakeazure.New(o)}
	t.Cleanup(a.Close)
	common := azcore.ClientOptions{
		Cloud: cloud.Configuration{ActiveDirectoryAuthorityHost: endpoint +
			"/", Services: map[cloud.ServiceName]cloud.ServiceConfiguration{
			cloud.ResourceManager: {Endpoint: endpoint, Audience: endpoint},
		}},
		Transport: sdkfake.New(a.Azure),
		Retry:     policy.RetryOptions{MaxRetries: -1},
	}
	token, err := azidentity.NewClientSecretCredential("tenant", "client", "secret",
		&azidentity.ClientSecretCredentialOptions{ClientOptions: common, DisableInstanceDiscovery: true})
	a.must(err)
	options := &arm.ClientOptions{ClientOptions: common, DisableRPRegistration: true}
	a.interfaces, err = armnetwork.NewInterfacesClient(subscription, token, options)
	a.must(err)
	a.vms, err = armcompute.NewVirtualMachinesClient(subscription, token, options)
	a.must(err)
	return a
}

func (a *azure) must(err error) {
	a.Helper()
	if err != nil {
		a.Fatal(err)
	}
}

func (a *azure) begin(name string) (*runtime.Poller[armnetwork.InterfacesClientCreateOrUpdateResponse], error) {
	return a.interfaces.BeginCreateOrUpdate(a.Context(), "machines", name, armnetwork.Interface{
		Location: new("westeurope"),
		Properties: &armnetwork.InterfacePropertiesFormat{IPConfigurations: []*armnetwork.InterfaceIPConfiguration{{
			Name:       new("a"),
			Properties: &armnetwork.InterfaceIPConfigurationPropertiesFormat{Subnet: &armnetwork.Subnet{ID: new(subnet)}},
		}}},
	}, nil)
}

func (a *azure) create(name string) armnetwork.Interface {
	a.Helper()
	poller, err := a.begin(name)
	a.must(err)
	created, err := poller.PollUntilDone(a.Context(), &runtime.PollUntilDoneOptions{Frequency: time.Millisecond})
	a.must(err)
	return created.Interface
}

func (a *azure) wantRefused(err error, status int, code string) *azcore.ResponseError {
	a.Helper()
	e, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok || e.StatusCode != status || e.ErrorCode != code {
		a.Fatalf("got %v, want %d %s", err, status, code)
	}
	return e
}

// The call that starts an operation returns the changed resource. Each poll returns the current status.
func TestPollerFollowsOperation(t *testing.T) {
	a := start(t, func(o *fakeazure.Options) { o.ChangeDuration = 300 * time.Millisecond })
	poller, err := a.begin("n")
	a.must(err)
	response, err := poller.Poll(t.Context())
	a.must(err)
	if poller.Done() || response.StatusCode != http.StatusOK {
		t.Errorf("the first poll reports the end, with status %s", response.Status)
	}
	created, err := poller.PollUntilDone(t.Context(), &runtime.PollUntilDoneOptions{Frequency: 5 * time.Millisecond})
	a.must(err)
	if *created.Name != "n" || *created.Properties.ProvisioningState != armnetwork.ProvisioningStateSucceeded {
		t.Errorf("got the result %+v, want n in state Succeeded", created.Interface)
	}

	end := a.Inject(fakeazure.Fault{Operation: "NetworkInterfaces_CreateOrUpdate", AsyncCode: "SubnetIsFull"})
	poller, err = a.begin("m")
	a.must(err)
	end()
	_, err = poller.PollUntilDone(t.Context(), &runtime.PollUntilDoneOptions{Frequency: 5 * time.Millisecond})
	a.wantRefused(err, http.StatusConflict, "SubnetIsFull")
}

// A repeated request must not be mistaken for a poll of the first operation.
func TestEachRequestIsExecuted(t *testing.T) {
	a := start(t, func(o *fakeazure.Options) { o.ChangeDuration = time.Hour })
	for range 2 {
		_, err := a.begin("n")
		a.must(err)
	}
	if n := a.Calls()["NetworkInterfaces_CreateOrUpdate"]; n != 2 {
		t.Errorf("got %d requests, want 2", n)
	}
}

func TestParallelListsAreIndependent(t *testing.T) {
	a := start(t, nil)
	want := []string{"1", "2", "3", "4", "5"}
	for _, name := range want {
		a.create(name)
	}
	first, second := a.interfaces.NewListPager("machines", nil), a.interfaces.NewListPager("machines", nil)
	var found [2][]string
	for pages := 0; first.More() || second.More(); pages++ {
		if pages == 3 {
			t.Fatal("the lists have more than three pages")
		}
		for i, pager := range []*runtime.Pager[armnetwork.InterfacesClientListResponse]{first, second} {
			page, err := pager.NextPage(t.Context())
			a.must(err)
			for _, one := range page.Value {
				found[i] = append(found[i], *one.Name)
			}
		}
	}
	for _, names := range found {
		if !slices.Equal(names, want) {
			t.Errorf("got the list %v, want %v", names, want)
		}
	}
}

func TestErrorsContainResponse(t *testing.T) {
	a := start(t, nil)
	_, err := a.interfaces.Get(t.Context(), "machines", "n", nil)
	a.wantRefused(err, http.StatusNotFound, "ResourceNotFound")
	_, err = a.interfaces.NewListPager("nowhere", nil).NextPage(t.Context())
	a.wantRefused(err, http.StatusNotFound, "ResourceGroupNotFound")

	a.Inject(fakeazure.Fault{Operation: "NetworkInterfaces_*", Status: http.StatusTooManyRequests, Code: "TooManyRequests",
		Message: "not so fast", RetryAfter: 7})
	_, err = a.begin("n")
	e := a.wantRefused(err, http.StatusTooManyRequests, "TooManyRequests")
	if e.RawResponse.Header.Get("Retry-After") != "7" || !strings.Contains(e.Error(), "not so fast") {
		t.Errorf("got the header %v and the error %v, want Retry-After 7 and the message", e.RawResponse.Header, e)
	}
}

func TestUnsupportedRequestsFail(t *testing.T) {
	a := start(t, nil)
	_, err := a.vms.BeginRestart(t.Context(), "machines", "m", nil)
	if err == nil || !strings.Contains(err.Error(), "not implemented") {
		t.Errorf("operation without a handler: got %v", err)
	}
	_, err = a.vms.BeginDelete(t.Context(), "machines", "m",
		&armcompute.VirtualMachinesClientBeginDeleteOptions{ForceDeletion: new(true)})
	if err == nil || !strings.Contains(err.Error(), "not served") {
		t.Errorf("option that is not supported: got %v", err)
	}
	a.Inject(fakeazure.Fault{Operation: "VirtualMachines_Get", LoseAnswer: true})
	if _, err = a.vms.Get(t.Context(), "machines", "m", nil); !errors.Is(err, fakeazure.ErrNoAnswer) {
		t.Errorf("lost answer: got %v, want ErrNoAnswer", err)
	}
}

func TestSDKParsesRequests(t *testing.T) {
	a := start(t, nil)
	ctx := context.WithValue(t.Context(), runtime.CtxAPINameKey{}, "InterfacesClient.BeginCreateOrUpdate")
	const in = "/subscriptions/" + subscription + "/resourceGroups/machines/providers/Microsoft.Network/"
	for name, invalid := range map[string]struct{ path, body string }{
		"body":                {in + "networkInterfaces/n", `{"location": 1}`},
		"path":                {in + "interfaces/n", "{}"},
		"case of the path":    {in + "networkinterfaces/n", "{}"},
		"path without a name": {in + "networkInterfaces/", "{}"},
	} {
		request, err := http.NewRequestWithContext(ctx, http.MethodPut, endpoint+invalid.path+"?api-version=2025-01-01",
			strings.NewReader(invalid.body))
		a.must(err)
		if response, err := sdkfake.New(a.Azure).Do(request); err == nil {
			t.Errorf("invalid %s: got status %s, want an error", name, response.Status)
		}
	}
	if n := a.Calls()["NetworkInterfaces_CreateOrUpdate"]; n != 0 {
		t.Errorf("%d invalid requests were executed", n)
	}
}
