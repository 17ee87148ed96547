package driver_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/httpapi"
	"machinist.dev/machinist/providers/azure/driver"
	"machinist.dev/machinist/providers/azure/fakeazure"
	"machinist.dev/machinist/providers/azure/machine/sample"
)

// The provider's workload identity belongs to an application in Azure. The IDs of the application are not secret. A
// tenant creates a Secret with these IDs. The identity is used only if a flag grants it for the namespace and the
// application.
//
// Rule: workload-identity-by-namespace.
func TestAttackTenantBorrowsTheWorkloadIdentity(t *testing.T) {
	key, _ := newKey(t)
	const subject = "system:serviceaccount:machinist-system:machinist-provider-azure"
	c := newCloud(t, func(o *fakeazure.Options) {
		o.Secret, o.FederatedIssuer, o.FederatedSubject = "", &key.PublicKey, subject
	})
	token, err := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{
		Subject: subject, Audience: jwt.ClaimStrings{"api://AzureADTokenExchange"},
		ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour)),
	}).SignedString(key)
	c.must(err)
	c.token = filepath.Join(t.TempDir(), "token")
	c.must(os.WriteFile(c.token, []byte(token), 0o600))
	public := credentials("clientSecret", "")

	// All namespaces share one driver, but the clients of one namespace must not serve another.
	c.grants = []driver.Grant{{Namespace: "team-a", Client: strings.ToUpper(application)},
		{Namespace: "team-b", Client: strings.Replace(application, "3", "4", 1)}}
	withGrants := c.driver()
	c.grants = nil
	withoutGrants := c.driver()
	classOf := func(namespace string) provider.Class {
		return provider.Class{Spec: sample.Spec(), Credentials: public.InNamespace(namespace)}
	}
	list := func(d *driver.Driver, namespace string) error {
		_, err := d.List(t.Context(), provider.ListRequest{ClusterID: cluster, Class: classOf(namespace)})
		return err
	}
	c.must(list(withGrants, "team-a"))
	for name, test := range map[string]struct {
		driver    *driver.Driver
		namespace string
	}{
		"another namespace": {withGrants, "team-c"}, "another application": {withGrants, "team-b"},
		"no namespace": {withGrants, ""},
		"no grants":    {withoutGrants, "team-a"},
	} {
		err := list(test.driver, test.namespace)
		if provider.CodeOf(err) != provider.PermissionDenied ||
			!strings.Contains(err.Error(), "--azure-workload-identity-for="+test.namespace+"/"+application) {
			t.Errorf("%s: got %v, want PermissionDenied with the flag", name, err)
		}
		if err := test.driver.Validate(t.Context(),
			provider.ValidateRequest{Class: classOf(test.namespace)}); provider.CodeOf(err) != provider.PermissionDenied {
			t.Errorf("%s: Validate: got %v, want PermissionDenied", name, err)
		}
		if scope, err := test.driver.ListScope(classOf(test.namespace)); err == nil {
			t.Errorf("%s: got the list scope %q, want an error", name, scope)
		}
	}
	c.must(list(withGrants, "team-a"))
}

// A tenant may create Machines of a class that allows adoption. To delete a virtual machine of another owner, the
// tenant adopts it with a Machine. A virtual machine without the tag for adoption is never changed.
//
// Rule: azure-adopts-marked-only.
func TestAttackTenantAdoptsAForeignVirtualMachine(t *testing.T) {
	t.Parallel()
	c := newCloud(t, nil)
	adopt := func(name, id string) error {
		r := request(name, class())
		_, err := c.driver().Adopt(t.Context(), provider.AdoptRequest{Machine: r.Machine, Class: r.Class, ClusterID: cluster,
			ProviderID: id, Tags: r.Tags})
		return err
	}
	for name, existing := range map[string]struct {
		group string
		tags  map[string]string
	}{
		"another-group": {"network", nil}, "own-group": {"MACHINES", nil},
		"marked-otherwise": {"machines", map[string]string{"machinist-adoptable": "yes"}},
	} {
		theirs, _, err := c.launchIn(t.Context(), existing.group, name, existing.tags)
		c.must(err)
		if err := adopt("a", theirs); provider.CodeOf(err) != provider.FailedPrecondition ||
			!strings.Contains(err.Error(), "machinist-adoptable=true") {
			t.Errorf("%s: got %v, want FailedPrecondition with the tag to set", name, err)
		}
		get := lookup(request("a", class()))
		get.ProviderID = theirs
		in, err := c.driver().Get(t.Context(), get)
		c.must(err)
		if in.MachineUID != "" {
			t.Errorf("%s: got a tag for machine %s, want none", name, in.MachineUID)
		}
	}
	for i, group := range []string{"network", "MACHINES"} {
		offered, _, err := c.launchIn(t.Context(), group, "offered-"+strconv.Itoa(i), adoptableTags())
		c.must(err)
		for range 2 { // The second call simulates a retry after a crash.
			c.must(adopt("b"+strconv.Itoa(i), offered))
		}
	}
}

// A user who can edit a class permits its Machines to adopt the instances of another existing cluster. The user then
// names a virtual machine in another resource group. The permission is limited to the resource group of the class.
//
// Rule: former-identity-in-scope.
func TestAttackClassAdoptsFromClusterInOtherGroup(t *testing.T) {
	t.Parallel()
	c := newCloud(t, nil)
	theirs := map[string]string{provider.TagCluster: "theirs", provider.TagMachineUID: "uid-theirs",
		provider.TagMachine: "default/a"}
	adopt := func(id string) (*provider.Instance, error) {
		r := request("a", class())
		return c.driver().Adopt(t.Context(), provider.AdoptRequest{Machine: r.Machine, Class: r.Class, ClusterID: cluster,
			ProviderID: id, Tags: r.Tags, FormerIdentity: &provider.Identity{ClusterID: "theirs", MachineUID: "uid-theirs"}})
	}
	elsewhere, _, err := c.launchIn(t.Context(), "network", "elsewhere", theirs)
	c.must(err)
	if _, err := adopt(elsewhere); provider.CodeOf(err) != provider.FailedPrecondition ||
		!strings.Contains(err.Error(), "resource group network") || !strings.Contains(err.Error(), "machinist-adoptable=true") {
		t.Errorf("got %v, want FailedPrecondition with the group and the tag", err)
	}
	get := lookup(request("a", class()))
	get.ProviderID = elsewhere
	in, err := c.driver().Get(t.Context(), get)
	c.must(err)
	if in.ClusterID != "theirs" || in.MachineUID != "uid-theirs" {
		t.Errorf("got the tags of machine %s in cluster %s, want no change", in.MachineUID, in.ClusterID)
	}
	for name, allowed := range map[string]struct {
		group string
		more  map[string]string
	}{"own-group": {"Machines", nil}, "marked": {"network", adoptableTags()}} {
		tags := maps.Clone(theirs)
		maps.Copy(tags, allowed.more)
		id, _, err := c.launchIn(t.Context(), allowed.group, name, tags)
		c.must(err)
		if in, err := adopt(id); err != nil || in.ClusterID != cluster {
			t.Errorf("%s: got %+v, %v, want the adopted virtual machine", name, in, err)
		}
	}
}

// Azure, or an attacker who impersonates Azure, returns a next-page link to another host, to receive the access token.
// The driver must not send requests to any host except its own endpoint, not even when the SDK follows such a link.
// Every list has a maximum number of pages.
//
// Rules: next-page-on-own-host, lists-bounded.
func TestAttackListContinuesElsewhere(t *testing.T) {
	c := newCloud(t, nil)
	_, err := c.driver().Create(t.Context(), request("a", class()))
	c.must(err)
	before := c.transport
	for name, calls := range map[string]func(d *driver.Driver) error{
		"Capacity": func(d *driver.Driver) error {
			_, err := d.Capacity(t.Context(), provider.CapacityRequest{Class: class("vmSize", "Standard_D128s_v5")})
			return err
		},
		"Get by tags": func(d *driver.Driver) error {
			_, err := d.Get(t.Context(), lookup(request("other", class())))
			return err
		},
		"Delete by tags": func(d *driver.Driver) error {
			_, err := d.Delete(t.Context(), deletion(request("other", class())))
			return err
		},
	} {
		for _, link := range []string{"https://elsewhere.example.com/next", c.url + "/next"} {
			t.Run(name+" "+link, func(t *testing.T) {
				linked := &linkedLists{RoundTripper: before, link: link}
				c.transport = linked
				defer func() { c.transport = before }()
				err := calls(c.driver())
				if provider.CodeOf(err) != provider.Internal {
					t.Errorf("got %v, want Internal", err)
				}
				if elsewhere := !strings.HasPrefix(link, c.url); elsewhere &&
					(!strings.Contains(err.Error(), link) || linked.followed.Load() > 0) ||
					!elsewhere && !errors.Is(err, httpapi.ErrListTooLong) {
					t.Errorf("got %v after %d requests to %s", err, linked.followed.Load(), link)
				}
			})
		}
	}
}

// linkedLists answers every request for a list with an empty page, which contains a link to a next page.
type linkedLists struct {
	http.RoundTripper
	link     string
	followed atomic.Int64 // number of requests to the link
}

func (l *linkedLists) RoundTrip(r *http.Request) (*http.Response, error) {
	last := strings.ToLower(path.Base(r.URL.Path))
	switch {
	case r.URL.String() == l.link:
		l.followed.Add(1)
	case r.Method != http.MethodGet || !slices.Contains([]string{"virtualmachines", "networkinterfaces", "publicipaddresses",
		"disks", "skus"}, last):
		return l.RoundTripper.RoundTrip(r)
	}
	body, err := json.Marshal(map[string]any{"value": []any{}, "nextLink": l.link})
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), Request: r}, err
}
