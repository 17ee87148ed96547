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

// A tenant who may make Secrets names the application that the provider's workload identity can sign in as, whose IDs
// are no secrets. It serves those only to those that the flag grants it: the namespace and the application must both
// be right.
//
// Rule: workload-identity-by-namespace.
func TestAttackTenantBorrowsTheWorkloadIdentity(t *testing.T) {
	key, _ := newKey(t)
	const subject = "system:serviceaccount:machinist-system:machinist-provider-azure"
	c := newCloud(t, func(o *fakeazure.Options) {
		o.Secret, o.FederatedIssuer, o.FederatedSubject = "", &key.PublicKey, subject
	})
	signed, err := jwt.NewWithClaims(jwt.SigningMethodRS256, jwt.RegisteredClaims{
		Subject: subject, Audience: jwt.ClaimStrings{"api://AzureADTokenExchange"},
		ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour)),
	}).SignedString(key)
	c.must(err)
	c.token = filepath.Join(t.TempDir(), "token")
	c.must(os.WriteFile(c.token, []byte(signed), 0o600))
	public := credentials("clientSecret", "")

	// The clients of one namespace must not serve another, so all are asked of one driver.
	c.grants = []driver.Grant{{Namespace: "team-a", Client: strings.ToUpper(application)},
		{Namespace: "team-b", Client: strings.Replace(application, "3", "4", 1)}}
	granting := c.driver()
	c.grants = nil
	off := c.driver()
	classOf := func(namespace string) provider.Class {
		return provider.Class{Spec: sample.Spec(), Credentials: public.In(namespace)}
	}
	list := func(d *driver.Driver, namespace string) error {
		_, err := d.List(t.Context(), provider.ListRequest{ClusterID: cluster, Class: classOf(namespace)})
		return err
	}
	c.must(list(granting, "team-a"))
	for name, test := range map[string]struct {
		driver    *driver.Driver
		namespace string
	}{
		"another namespace": {granting, "team-c"}, "another application": {granting, "team-b"},
		"no namespace":         {granting, ""},
		"nobody is granted it": {off, "team-a"},
	} {
		err := list(test.driver, test.namespace)
		if provider.CodeOf(err) != provider.PermissionDenied ||
			!strings.Contains(err.Error(), "--azure-workload-identity-for="+test.namespace+"/"+application) {
			t.Errorf("%s: %v", name, err)
		}
		if err := test.driver.Validate(t.Context(),
			provider.ValidateRequest{Class: classOf(test.namespace)}); provider.CodeOf(err) != provider.PermissionDenied {
			t.Errorf("%s: the class is valid: %v", name, err)
		}
		if scope, err := test.driver.ListScope(classOf(test.namespace)); err == nil {
			t.Errorf("%s: shares the list of %s", name, scope)
		}
	}
	c.must(list(granting, "team-a"))
}

// A tenant who may create Machines of a class that allows adoption names a virtual machine of another resource group
// that the credentials reach, to have it deleted with the Machine. It is not tagged, so nothing is ever done to it.
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
		theirs, _, err := c.launchIn(t.Context(), "network", "theirs", nil)
		c.must(err)
		if _, err := adopt("a", theirs); provider.CodeOf(err) != provider.FailedPrecondition ||
			!strings.Contains(err.Error(), "machinist-adoptable=true") {
			t.Errorf("got %v", err)
		}
		get := lookup(request("a", class()))
		get.ProviderID = theirs
		in, err := c.driver().Get(t.Context(), get)
		c.must(err)
		if in.MachineUID != "" {
			t.Errorf("it is tagged for %s", in.MachineUID)
		}
		offered, _, err := c.launchIn(t.Context(), "network", "offered", map[string]string{"machinist-adoptable": "true"})
		c.must(err)
		_, err = adopt("b", offered)
		c.must(err)
		_, err = adopt("b", offered) // Again, as after a crash.
		c.must(err)
		own, _, err := c.launchIn(t.Context(), "MACHINES", "own", nil)
		c.must(err)
		_, err = adopt("c", own)
		c.must(err)
	})
}
