package driver_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/credentials"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/aws/driver"
	"machinist.dev/machinist/providers/aws/fakeaws"
)

const role = "arn:aws:iam::444455556666:role/machinist"

func with(c provider.Credentials) provider.Class {
	out := class()
	out.Credentials = c
	return out
}

func TestRoleIsAssumedWithTheExternalID(t *testing.T) {
	c := newCloud(t, func(o *fakeaws.Options) { o.Roles = []fakeaws.Role{{ARN: role, ExternalID: "tenant-7"}} })
	d := c.driver()
	good := with(secretWith("roleARN", role, "externalID", "tenant-7"))
	c.launchOne(d, "a", good)
	if account := provider.AccountOf(d, good); account != "444455556666" {
		t.Errorf("the account is %q", account)
	}
	_, err := d.Create(t.Context(), request("b", with(secretWith("roleARN", role, "externalID", "tenant-8"))))
	c.wantCode(err, provider.Unauthenticated)
	if err == nil || !strings.Contains(err.Error(), "external ID") || strings.Contains(err.Error(), "tenant-8") {
		t.Errorf("the error is %v", err)
	}
}

// A session of a role can end before its time, such as after a change of the role.
func TestEndedSessionIsReplaced(t *testing.T) {
	c := newCloud(t, func(o *fakeaws.Options) { o.Roles = []fakeaws.Role{{ARN: role}} })
	d := c.driver()
	assumed := with(secretWith("roleARN", role))
	c.launchOne(d, "a", assumed)
	c.ExpireSessions()
	_, err := d.Create(t.Context(), request("b", assumed))
	c.wantCode(err, provider.Unauthenticated)
	c.launchOne(d, "b", assumed)
}

func TestProcessIdentityNeedsAGrant(t *testing.T) {
	c := newCloud(t, func(o *fakeaws.Options) { o.Roles = []fakeaws.Role{{ARN: role}} })
	c.options.Process = credentials.NewStaticCredentialsProvider(accessKey, secretKey, "")
	grant, err := driver.ParseGrant("team-a=" + role)
	c.must(err)
	c.options.ProcessFor = []driver.Grant{grant}
	d := c.driver()
	process := provider.NewCredentials(map[string][]byte{"processIdentity": []byte("true"), "roleARN": []byte(role)})
	c.launchOne(d, "a", with(process.InNamespace("team-a")))
	without := provider.NewCredentials(map[string][]byte{"processIdentity": []byte("true")})
	for name, refused := range map[string]provider.Credentials{
		"another namespace": process.InNamespace("team-b"), "no role": without.InNamespace("team-a"),
	} {
		_, err := d.Create(t.Context(), request("b", with(refused)))
		c.wantCode(err, provider.InvalidArgument)
		if err := d.Validate(t.Context(), provider.ValidateRequest{Class: with(refused)}); err == nil {
			t.Errorf("%s: Validate accepts the credentials", name)
		}
	}
	for _, bad := range []string{"", "Team", "team-a=", "team-a=role", "team-a=" + role + "\n"} {
		if _, err := driver.ParseGrant(bad); err == nil {
			t.Errorf("ParseGrant accepts %q", bad)
		}
	}
}

// A Secret or a class never decides to which host the process connects.
func TestNoSecretAndNoClassNamesAHost(t *testing.T) {
	c := newCloud(t, nil)
	d := c.driver()
	for _, key := range []string{"endpoint", "region", "stsEndpoint", "profile", "config", "credential_process",
		"webIdentityTokenFile"} {
		_, err := d.Create(t.Context(), request("a", with(secretWith(key, "http://169.254.169.254/"))))
		c.wantCode(err, provider.InvalidArgument)
	}
	for _, region := range []string{"eu-west-1.example.com", "eu-west-1/", "eu-west-1#", "169.254.169.254"} {
		_, err := d.Create(t.Context(), request("a", class("region", region)))
		c.wantCode(err, provider.InvalidArgument)
	}
	for _, scope := range []string{"example.com", "eu-west-1a.example.com", "eu"} {
		_, err := d.Get(t.Context(), provider.GetRequest{Machine: machineOf("a"), Class: class(), ClusterID: cluster,
			ProviderID: "aws:///eu-west-1a/i-0c000000000000001", Scope: scope})
		c.wantCode(err, provider.InvalidArgument)
	}
	if calls := c.Calls(); len(calls) > 0 {
		t.Errorf("the driver sent the calls %v", calls)
	}
}
