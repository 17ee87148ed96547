// Package backend runs the OpenStack provider with a real OpenStack on loopback, for the demo and tests.
package backend

import (
	"context"
	"errors"
	"io"
	"path/filepath"

	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/applicationcredentials"

	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/hack/openstack"
	"machinist.dev/machinist/providers/openstack/driver"
	"machinist.dev/machinist/providers/openstack/hosts"
)

// OpenStack is a stack.Backend with a cloud, simulated guests, and the OpenStack provider. The hypervisors of the cloud
// are fake.
type OpenStack struct {
	// ExistingCloud is an existing cloud, which continues to run after Stop. Default: Start starts a cloud.
	ExistingCloud *openstack.Cloud
	// Output receives one line for each step of Start. If the field is nil, the lines are discarded.
	Output io.Writer

	started *openstack.Cloud
	project *Project
	// credential permits only the calls in permissions.yaml.
	credential *applicationcredentials.ApplicationCredential
	guests     *hosts.Simulator
}

// cloud returns the cloud in use, or nil before Start.
func (o *OpenStack) cloud() *openstack.Cloud {
	if o.ExistingCloud != nil {
		return o.ExistingCloud
	}
	return o.started
}

// Driver implements stack.Backend.
func (*OpenStack) Driver() string { return driver.Name }

// Program implements stack.Backend.
func (*OpenStack) Program() string { return "machinist-provider-openstack" }

// Cloud implements stack.Backend.
func (*OpenStack) Cloud() string { return "" }

// Fleet implements stack.Backend.
func (*OpenStack) Fleet() examples.Set { return examples.OpenStack }

// Args implements stack.Backend.
func (*OpenStack) Args(string) []string {
	return []string{"--openstack-plain-http", "--openstack-allow-address=127.0.0.0/8", "--openstack-create-settle=10s"}
}

// Credentials implements stack.Backend.
func (o *OpenStack) Credentials() map[string]string {
	return map[string]string{
		"authURL": o.cloud().AuthURL(), "region": o.cloud().SeedObjects().Region, "interface": "public",
		"applicationCredentialID": o.credential.ID, "applicationCredentialSecret": o.credential.Secret,
	}
}

// Shell implements stack.Shell. The user is the owner of the project.
func (o *OpenStack) Shell() (programs map[string]string, variables []string) {
	return map[string]string{"openstack": o.cloud().ClientPath()}, o.cloud().Environment("machinist")
}

// Start implements stack.Backend.
func (o *OpenStack) Start(ctx context.Context, s *stack.Stack) (url string, err error) {
	if o.ExistingCloud == nil {
		o.started, err = openstack.Start(ctx, openstack.Options{Dir: filepath.Join(s.Dir(), driver.Name), Output: o.Output})
		if err != nil {
			return "", err
		}
	}
	cloud := o.cloud()
	admin, err := OpenProject(ctx, cloud.CloudsYAML(), "admin")
	if err != nil {
		return "", err
	}
	if o.project, err = OpenProject(ctx, cloud.CloudsYAML(), "machinist"); err != nil {
		return "", err
	}
	if o.credential, err = o.project.createRestrictedCredential(ctx, cloud.SeedObjects().UserID); err != nil {
		return "", err
	}
	o.guests = hosts.Start(hosts.Options{Compute: admin.Compute, Region: cloud.SeedObjects().Region,
		MetadataURL: cloud.MetadataURL(), MetadataSecret: cloud.MetadataSecret()})
	return cloud.AuthURL(), nil
}

// Stop implements stack.Backend.
func (o *OpenStack) Stop() error {
	if o.guests != nil {
		o.guests.Close()
		o.guests = nil
	}
	if o.started == nil {
		return nil
	}
	defer func() { o.started = nil }()
	return o.started.Stop()
}

// CountResources implements stack.Backend.
func (o *OpenStack) CountResources(ctx context.Context) (live, created int, err error) {
	if o.project == nil {
		return 0, 0, errors.New("OpenStack was not started")
	}
	left, err := o.project.Resources(ctx)
	return len(left), o.guests.Booted(), err
}
