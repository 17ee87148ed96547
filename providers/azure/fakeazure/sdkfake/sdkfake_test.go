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

// azure is one with clients of the SDK that have its transport.
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

func (a *azure) make(name string) armnetwork.Interface {
	a.Helper()
	poller, err := a.begin(name)
	a.must(err)
	made, err := poller.PollUntilDone(a.Context(), &runtime.PollUntilDoneOptions{Frequency: time.Millisecond})
	a.must(err)
	return made.Interface
}

// refused checks an error that Azure answered with.
func (a *azure) refused(err error, status int, code string) *azcore.ResponseError {
	a.Helper()
	e, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok || e.StatusCode != status || e.ErrorCode != code {
		a.Fatalf("got %v, want %d %s", err, status, code)
	}
	return e
}

// What begins an operation answers with what it makes; how it stands is what is true when that is asked.
func TestAnOperationIsFollowedToItsEnd(t *testing.T) {
	a := start(t, func(o *fakeazure.Options) { o.Change = 300 * time.Millisecond })
	poller, err := a.begin("n")
	a.must(err)
	response, err := poller.Poll(t.Context())
	a.must(err)
	if poller.Done() || response.StatusCode != http.StatusOK {
		t.Errorf("it is done at once, with %s", response.Status)
	}
	made, err := poller.PollUntilDone(t.Context(), &runtime.PollUntilDoneOptions{Frequency: 5 * time.Millisecond})
	a.must(err)
	if *made.Name != "n" || *made.Properties.ProvisioningState != armnetwork.ProvisioningStateSucceeded {
		t.Errorf("it ends with %+v", made.Interface)
	}

	end := a.Inject(fakeazure.Fault{Operation: "NetworkInterfaces_CreateOrUpdate", AsyncCode: "SubnetIsFull"})
	poller, err = a.begin("m")
	a.must(err)
	end()
	_, err = poller.PollUntilDone(t.Context(), &runtime.PollUntilDoneOptions{Frequency: 5 * time.Millisecond})
	a.refused(err, http.StatusConflict, "SubnetIsFull")
}

// A second request for what is under way is one of its own, and not a check the first.
func TestEachRequestReachesTheState(t *testing.T) {
	a := start(t, func(o *fakeazure.Options) { o.Change = time.Hour })
	for range 2 {
		_, err := a.begin("n")
		a.must(err)
	}
	if n := a.Calls()["NetworkInterfaces_CreateOrUpdate"]; n != 2 {
		t.Errorf("%d of 2 requests arrived", n)
	}
}

func TestListsThatAreReadAtATimeDoNotMeet(t *testing.T) {
	a := start(t, nil)
	want := []string{"1", "2", "3", "4", "5"}
	for _, name := range want {
		a.make(name)
	}
	first, second := a.interfaces.NewListPager("machines", nil), a.interfaces.NewListPager("machines", nil)
	var found [2][]string
	for pages := 0; first.More() || second.More(); pages++ {
		if pages == 3 {
			t.Fatal("the lists do not end after three pages")
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
			t.Errorf("a list has %v", names)
		}
	}
}

// An error is what Azure answers, with its header and message.
func TestErrorsAreAzures(t *testing.T) {
	a := start(t, nil)
	_, err := a.interfaces.Get(t.Context(), "machines", "n", nil)
	a.refused(err, http.StatusNotFound, "ResourceNotFound")
	_, err = a.interfaces.NewListPager("nowhere", nil).NextPage(t.Context())
	a.refused(err, http.StatusNotFound, "ResourceGroupNotFound")

	a.Inject(fakeazure.Fault{Operation: "NetworkInterfaces_*", Status: http.StatusTooManyRequests, Code: "TooManyRequests",
		Message: "not so fast", RetryAfter: 7})
	_, err = a.begin("n")
	e := a.refused(err, http.StatusTooManyRequests, "TooManyRequests")
	if e.RawResponse.Header.Get("Retry-After") != "7" || !strings.Contains(e.Error(), "not so fast") {
		t.Errorf("the header is %v, the error %v", e.RawResponse.Header, e)
	}
}

func TestWhatIsNotServedFails(t *testing.T) {
	a := start(t, nil)
	_, err := a.vms.BeginRestart(t.Context(), "machines", "m", nil)
	if err == nil || !strings.Contains(err.Error(), "not implemented") {
		t.Errorf("an operation without a handler: %v", err)
	}
	_, err = a.vms.BeginDelete(t.Context(), "machines", "m",
		&armcompute.VirtualMachinesClientBeginDeleteOptions{ForceDeletion: new(true)})
	if err == nil || !strings.Contains(err.Error(), "not served") {
		t.Errorf("an option that nothing heeds: %v", err)
	}
	a.Inject(fakeazure.Fault{Operation: "VirtualMachines_Get", LoseAnswer: true})
	if _, err = a.vms.Get(t.Context(), "machines", "m", nil); !errors.Is(err, fakeazure.ErrNoAnswer) {
		t.Errorf("an answer that is lost: %v", err)
	}
}

// What the published API's code cannot read does not reach the state.
func TestTheApisOwnCodeReadsRequests(t *testing.T) {
	a := start(t, nil)
	ctx := context.WithValue(t.Context(), runtime.CtxAPINameKey{}, "InterfacesClient.BeginCreateOrUpdate")
	const in = "/subscriptions/" + subscription + "/resourceGroups/machines/providers/Microsoft.Network/"
	for name, wrong := range map[string]struct{ path, body string }{
		"a body":             {in + "networkInterfaces/n", `{"location": 1}`},
		"a path":             {in + "interfaces/n", "{}"},
		"a letter of it":     {in + "networkinterfaces/n", "{}"},
		"a path with no end": {in + "networkInterfaces/", "{}"},
	} {
		request, err := http.NewRequestWithContext(ctx, http.MethodPut, endpoint+wrong.path+"?api-version=2025-01-01",
			strings.NewReader(wrong.body))
		a.must(err)
		if response, err := sdkfake.New(a.Azure).Do(request); err == nil {
			t.Errorf("%s that is wrong is answered: %s", name, response.Status)
		}
	}
	if n := a.Calls()["NetworkInterfaces_CreateOrUpdate"]; n != 0 {
		t.Errorf("%d of them reached the state", n)
	}
}
