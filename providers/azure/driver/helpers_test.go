package driver_test

import (
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/driver"
	"machinist.dev/machinist/providers/azure/fakeazure"
	"machinist.dev/machinist/providers/azure/machine/sample"
)

const (
	tenant       = "11111111-1111-4111-8111-111111111111"
	subscription = sample.Subscription
	application  = "33333333-3333-4333-8333-333333333333"
	secret       = "the~secret~of~the~application"

	subnet = sample.Subnet
	sshKey = sample.SSHKey
)

// TestMain runs more parallel tests than there are processors, because they mostly wait for operations.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

type cloud struct {
	*testing.T
	*fakeazure.Azure
	url       string
	transport http.RoundTripper
	settle    time.Duration
	token     string // path of the token file
	grants    []driver.Grant
	launched  int
}

// newCloud starts a fake Azure that serves TLS on the loopback interface. The function change can change the default
// options.
func newCloud(t *testing.T, change func(*fakeazure.Options)) *cloud {
	t.Helper()
	o := fakeazure.Options{
		Tenant: tenant, Subscription: subscription, Client: application, Secret: secret,
		ResourceGroups: []string{"machines", "network"}, Subnets: []string{subnet}, PageSize: 2,
	}
	if change != nil {
		change(&o)
	}
	azure := fakeazure.New(o)
	t.Cleanup(azure.Close)
	server := httptest.NewTLSServer(azure)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return &cloud{T: t, Azure: azure, url: server.URL, transport: server.Client().Transport, settle: 2 * time.Second}
}

// driver returns a new driver with empty caches, as after a restart of the provider.
func (c *cloud) driver() *driver.Driver {
	c.Helper()
	d, err := driver.New(driver.Options{
		Cloud: driver.PrivateCloud(c.url+"/", c.url, ""), PrivateCloud: true, Transport: c.transport, CreateSettle: c.settle,
		FederatedTokenFile: c.token, WorkloadIdentityFor: c.grants,
	})
	c.must(err)
	return d
}

func (c *cloud) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func credentials(changes ...string) provider.Credentials {
	all := map[string][]byte{
		"tenantID": []byte(tenant), "subscriptionID": []byte(subscription), "clientID": []byte(application),
		"clientSecret": []byte(secret + "\n"),
	}
	for i := 0; i < len(changes); i += 2 {
		all[changes[i]] = []byte(changes[i+1])
		if changes[i+1] == "" {
			delete(all, changes[i])
		}
	}
	return provider.NewCredentials(all)
}

func class(changes ...any) provider.Class {
	return provider.Class{Spec: sample.Spec(changes...), Credentials: credentials()}
}

const cluster = "cluster-a"

func request(name string, class provider.Class) provider.CreateRequest {
	m := machineOf(name)
	return provider.CreateRequest{
		Machine: m, Class: class, ClusterID: cluster, Token: string(m.UID) +
			"-1", UserData: provider.NewSecret([]byte("#cloud-config\n")), Version: "v1.36.3",
		Tags: map[string]string{provider.TagCluster: cluster, provider.TagMachineUID: string(m.UID),
			provider.TagMachine: "default/" + name},
	}
}

func machineOf(name string) provider.Machine {
	return provider.Machine{Namespace: "default", Name: name, UID: types.UID("uid-of-" + name)}
}

func (c *cloud) eventually(condition string, ask func() (bool, string)) {
	c.Helper()
	deadline := time.After(20 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, state := ask()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			c.Fatalf("timeout after 20s: %s: %s", condition, state)
		}
	}
}

func adoptableTags() map[string]string { return map[string]string{"machinist-adoptable": "true"} }

func (c *cloud) awaitGone(d provider.Driver, req provider.DeleteRequest) {
	c.Helper()
	c.eventually("Delete reports Gone", func() (bool, string) {
		result, err := d.Delete(c.Context(), req)
		if code := provider.CodeOf(err); err != nil && code != provider.Aborted {
			c.Fatal(err)
		}
		return result.Gone, fmt.Sprint(err)
	})
}

func (c *cloud) nothingLeft() {
	c.Helper()
	if left := c.Resources(); len(left) > 0 {
		c.Errorf("the resources %v still exist", left)
	}
}

func (c *cloud) has(want ...string) {
	c.Helper()
	got := c.Resources()
	for i, r := range got {
		got[i] = r[:strings.LastIndex(r, "/")] + "/" + suffix(r)
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		c.Errorf("got the resources %v, want %v", got, want)
	}
}

// suffix returns the part of a resource name that is the same for all machines.
func suffix(name string) string {
	for _, part := range []string{"-nic-", "-ip-", "-os", "-data-"} {
		if i := strings.LastIndex(name, part); i >= 0 {
			return strings.TrimPrefix(name[i:], "-")
		}
	}
	return "vm"
}
