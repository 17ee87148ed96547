package driver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/endpoints"
	"machinist.dev/machinist/pkg/provider/httpapi"
	"machinist.dev/machinist/providers/vsphere/machine"
)

// Name is the name of the provider.
const Name = "vsphere"

// Options configure a Driver.
type Options struct {
	// VCenters are the URLs of the vCenters, such as "https://vcenter.example", by the name in the providerSpec.
	// Required.
	VCenters map[string]string
	// PlainHTTP allows vCenters without TLS. Passwords and user data are then readable on the network. Default: false.
	PlainHTTP bool
	// CreateSettle is how long a clone whose request was not answered may stay invisible. Default: 2 minutes.
	CreateSettle time.Duration
	// Endpoints restrict the addresses of the vCenters. The addresses in VCenters are always allowed.
	Endpoints endpoints.Rules
	// Transport sends all calls, unless the credentials contain certificate authorities. Default: a transport that
	// obeys Endpoints.
	Transport http.RoundTripper
}

// Driver is the provider.Driver of vSphere. It is safe for concurrent use.
type Driver struct {
	options  Options
	sessions provider.Clients[*session]
	// creating contains the names of virtual machines with a call of Create in progress.
	creating sync.Map
}

var (
	_ provider.Driver    = (*Driver)(nil)
	_ provider.Settler   = (*Driver)(nil)
	_ provider.Adopter   = (*Driver)(nil)
	_ provider.Scoper    = (*Driver)(nil)
	_ provider.Accounter = (*Driver)(nil)
	_ provider.Power     = (*Driver)(nil)
)

// New returns a driver without connecting to a vCenter. It returns an error for an invalid option.
func New(o Options) (*Driver, error) {
	if o.CreateSettle < 0 {
		return nil, errors.New("the create settle time is negative")
	}
	if o.CreateSettle == 0 {
		o.CreateSettle = 2 * time.Minute
	}
	if len(o.VCenters) == 0 {
		return nil, errors.New("no vCenter is configured")
	}
	for name, text := range o.VCenters {
		if len(validation.IsDNS1123Label(name)) > 0 {
			return nil, fmt.Errorf("the name %q of a vCenter is not a DNS label", name)
		}
		if u, err := url.Parse(text); err == nil {
			o.Endpoints = o.Endpoints.AllowHosts(u.Hostname())
		}
		if err := o.checkURL(text); err != nil {
			return nil, fmt.Errorf("the URL %q of vCenter %q %w", text, name, err)
		}
	}
	if o.Transport == nil {
		o.Transport = httpapi.Transport(o.Endpoints)
	}
	return &Driver{options: o}, nil
}

// checkURL returns what is wrong with the URL of a vCenter, to follow the URL.
func (o *Options) checkURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Scheme != "https" && u.Scheme != "http":
		return errors.New(`is not a URL such as "https://vcenter.example"`)
	case u.Scheme == "http" && !o.PlainHTTP:
		return errors.New("has no TLS; set --vsphere-plain-http to allow this")
	}
	if err := o.Endpoints.CheckHost(u.Hostname()); err != nil {
		return fmt.Errorf("is denied: %w; %s", err, allowAddress)
	}
	return nil
}

const allowAddress = "set --vsphere-allow-address to allow it"

// Name implements provider.Driver.
func (d *Driver) Name() string { return Name }

// CreateSettle implements provider.Settler.
func (d *Driver) CreateSettle() time.Duration { return d.options.CreateSettle }

// Validate implements provider.Driver.
func (d *Driver) Validate(_ context.Context, req provider.ValidateRequest) error {
	spec, err := machine.ParseSpec(req.Class.Spec)
	if err != nil {
		return err
	}
	if _, err := d.urlOf(spec.VCenter); err != nil {
		return err
	}
	if req.Class.Credentials.IsEmpty() {
		return nil
	}
	_, err = parseCredentials(req.Class.Credentials)
	return err
}

// Account implements provider.Accounter. The account is the vCenter.
func (d *Driver) Account(class provider.Class) (string, error) {
	at, err := machine.ParseLocation(class.Spec)
	if err != nil {
		return "", err
	}
	return "vCenter " + at.VCenter, nil
}

// ListScope implements provider.Scoper. The scope is a folder of a datacenter.
func (d *Driver) ListScope(class provider.Class) (string, error) {
	at, err := machine.ParseLocation(class.Spec)
	if err != nil {
		return "", err
	}
	return "vCenter " + at.VCenter + " folder " + folderPath(at), nil
}
