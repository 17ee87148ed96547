package driver_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/driver"
	"machinist.dev/machinist/providers/azure/fakeazure"
	"machinist.dev/machinist/providers/azure/machine/sample"
)

// The provider's workload identity belongs to an application in Azure, whose IDs are not secret. A tenant creates a
// Secret with these IDs. The identity is used only if the flag grants it for both the namespace and the application.
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

	// All namespaces use one driver, because the clients of one namespace must not serve another.
	c.grants = []driver.Grant{{Namespace: "team-a", Client: strings.ToUpper(application)},
		{Namespace: "team-b", Client: strings.Replace(application, "3", "4", 1)}}
	withGrants := c.driver()
	c.grants = nil
	withoutGrants := c.driver()
	classOf := func(namespace string) provider.Class {
		return provider.Class{Spec: sample.Spec(), Credentials: public.In(namespace)}
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

// A tenant who may create Machines of a class that allows adoption names a virtual machine of another resource group
// that the credentials reach, so that it is deleted with the Machine. The virtual machine has no tag that allows
// adoption, so it is never changed.
//
// Rule: azure-adopts-marked-only.
func TestAttackTenantAdoptsAForeignVirtualMachine(t *testing.T) {
	bothWays(t, func(t *testing.T, newCloud opener) {
		c := newCloud(t, nil)
		adopt := func(name, id string) (*provider.Instance, error) {
			r := request(name, class())
			return c.driver().Adopt(t.Context(), provider.AdoptRequest{Machine: r.Machine, Class: r.Class, ClusterID: cluster,
				ProviderID: id, Tags: r.Tags})
		}
		foreign, _, err := c.launchIn(t.Context(), "network", "theirs", nil)
		c.must(err)
		if _, err := adopt("a", foreign); provider.CodeOf(err) != provider.FailedPrecondition ||
			!strings.Contains(err.Error(), "machinist-adoptable=true") {
			t.Errorf("got %v, want FailedPrecondition with the tag to set", err)
		}
		get := lookup(request("a", class()))
		get.ProviderID = foreign
		in, err := c.driver().Get(t.Context(), get)
		c.must(err)
		if in.MachineUID != "" {
			t.Errorf("got a tag for machine %s, want none", in.MachineUID)
		}
		offered, _, err := c.launchIn(t.Context(), "network", "offered", map[string]string{"machinist-adoptable": "true"})
		c.must(err)
		_, err = adopt("b", offered)
		c.must(err)
		_, err = adopt("b", offered) // As after a crash.
		c.must(err)
		own, _, err := c.launchIn(t.Context(), "MACHINES", "own", nil)
		c.must(err)
		_, err = adopt("c", own)
		c.must(err)
	})
}
