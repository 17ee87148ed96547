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
	"machinist.dev/machinist/providers/aws/driver"
	"machinist.dev/machinist/providers/aws/fakeaws"
	"machinist.dev/machinist/providers/aws/machine/sample"
)

const (
	accessKey = "AKIAMACHINISTTESTKEY"
	secretKey = "the+secret+of+the+access+key/machinist00"
	cluster   = "cluster-a"
	queuePath = "/111122223333/interruptions"
)

// TestMain runs more parallel tests than there are processors, because they mostly wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", "12"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

type cloud struct {
	*testing.T
	*fakeaws.AWS
	url       string
	transport http.RoundTripper
	options   driver.Options
}

// newCloud starts a fake AWS. The function change can change the default options. The function wrap, if any, wraps
// the handler.
func newCloud(t *testing.T, change func(*fakeaws.Options), wrap ...func(http.Handler) http.Handler) *cloud {
	t.Helper()
	o := fakeaws.Options{AccessKey: accessKey, SecretKey: secretKey, PageSize: 5, Queues: []string{queuePath}}
	if change != nil {
		change(&o)
	}
	fake := fakeaws.New(o)
	var handler http.Handler = fake
	for _, w := range wrap {
		handler = w(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return &cloud{T: t, AWS: fake, url: server.URL, transport: server.Client().Transport,
		options: driver.Options{CreateSettle: 2 * time.Second, PageSize: 5}}
}

// driver returns a new driver with empty caches, as after a restart of the provider.
func (c *cloud) driver() *driver.Driver {
	c.Helper()
	o := c.options
	o.Endpoint, o.Transport = c.url, c.transport
	d, err := driver.New(o)
	c.must(err)
	return d
}

func (c *cloud) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func secretWith(changes ...string) provider.Credentials {
	all := map[string][]byte{"accessKeyID": []byte(accessKey), "secretAccessKey": []byte(secretKey + "\n")}
	for i := 0; i < len(changes); i += 2 {
		all[changes[i]] = []byte(changes[i+1])
		if changes[i+1] == "" {
			delete(all, changes[i])
		}
	}
	return provider.NewCredentials(all)
}

func class(changes ...any) provider.Class {
	return provider.Class{Spec: sample.Spec(changes...), Credentials: secretWith()}
}

func request(name string, class provider.Class) provider.CreateRequest {
	m := machineOf(name)
	return provider.CreateRequest{
		Machine: m, Class: class, ClusterID: cluster, Token: string(m.UID) + "-1",
		UserData: provider.NewSecret([]byte("#cloud-config\n")), Version: "v1.36.3",
		Tags: map[string]string{provider.TagCluster: cluster, provider.TagMachineUID: string(m.UID),
			provider.TagMachine: "default/" + name},
	}
}

func machineOf(name string) provider.Machine {
	return provider.Machine{Namespace: "default", Name: name, UID: types.UID("uid-of-" + name)}
}

// launch creates an instance and returns the requests for it.
func (c *cloud) launchOne(d provider.Driver, name string, class provider.Class) *provider.Instance {
	c.Helper()
	in, err := d.Create(c.Context(), request(name, class))
	c.must(err)
	return in
}

func getRequest(name string, class provider.Class, in *provider.Instance) provider.GetRequest {
	return provider.GetRequest{Machine: machineOf(name), Class: class, ClusterID: cluster, ProviderID: in.ProviderID,
		Scope: in.Scope, CreateHandle: in.CreateHandle}
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

// updated repeats Update until it ends, and returns the last result.
func (c *cloud) updated(d provider.Driver, req provider.UpdateRequest) (last provider.UpdateResult) {
	c.Helper()
	c.eventually("Update ends", func() (bool, string) {
		var err error
		last, err = d.Update(c.Context(), req)
		c.must(err)
		return last.Outcome != provider.UpdateInProgress, fmt.Sprintf("%+v", last)
	})
	return last
}

func (c *cloud) awaitGone(d provider.Driver, req provider.DeleteRequest) {
	c.Helper()
	c.eventually("Delete reports Gone", func() (bool, string) {
		result, err := d.Delete(c.Context(), req)
		c.must(err)
		return result.Gone, result.Remaining
	})
}

func (c *cloud) nothingLeft() {
	c.Helper()
	if left := c.Resources(); len(left) > 0 {
		c.Errorf("the resources %v still exist", left)
	}
}

// count returns the number of existing resources of a kind, such as "volume".
func (c *cloud) count(kind string) (n int) {
	for _, r := range c.Resources() {
		if strings.HasPrefix(r, kind+"/") {
			n++
		}
	}
	return n
}

func (c *cloud) wantCode(err error, want ...provider.Code) {
	c.Helper()
	if !slices.Contains(want, provider.CodeOf(err)) {
		c.Errorf("got error %v, want the code %v", err, want)
	}
}

func idOf(in *provider.Instance) string {
	return in.ProviderID[strings.LastIndex(in.ProviderID, "/")+1:]
}
