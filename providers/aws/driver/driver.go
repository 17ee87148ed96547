package driver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/endpoints"
	"machinist.dev/machinist/pkg/provider/httpapi"
	"machinist.dev/machinist/providers/aws/machine"
)

// Name is the name of the provider.
const Name = "aws"

// Options configure a Driver.
type Options struct {
	// Endpoint is the URL of all services of AWS, such as the URL of a fake AWS. Default: the endpoints of the region.
	Endpoint string
	// Process are the process's own credentials, such as those of a web identity or an instance profile. They are used
	// for Secrets without an access key. Without Process, the driver refuses such Secrets.
	Process aws.CredentialsProvider
	// ProcessFor lists the Secrets that may use the process's own credentials. Default: none.
	ProcessFor []Grant
	// Endpoints restrict the addresses that the driver connects to. The URL in Endpoint is always allowed.
	Endpoints endpoints.Rules
	// RootCAs are trusted for AWS. Default: the system's certificate authorities.
	RootCAs *x509.CertPool
	// Transport sends all calls. Default: a transport that obeys Endpoints and RootCAs and keeps connections for many
	// parallel calls.
	Transport http.RoundTripper
	// CreateSettle is how long reads may lag behind, and how long a failed or unanswered create call may still take
	// effect. Default: 5 minutes.
	CreateSettle time.Duration
	// PageSize is the number of instances on a page of List, 5 to 1000. Default: 1000.
	PageSize int32
	// InterruptionQueues are the URLs of SQS queues with events of EventBridge, by region.
	InterruptionQueues map[string]string
	// RebalanceInterrupts is true if a rebalance recommendation counts as an interruption.
	RebalanceInterrupts bool
}

// Driver is the provider.Driver of AWS. It is safe for concurrent use.
type Driver struct {
	options Options
	http    *http.Client
	pool    provider.Clients[*clients]
	notices notices
}

var (
	_ provider.Driver      = (*Driver)(nil)
	_ provider.Settler     = (*Driver)(nil)
	_ provider.Timeouter   = (*Driver)(nil)
	_ provider.Adopter     = (*Driver)(nil)
	_ provider.Scoper      = (*Driver)(nil)
	_ provider.Accounter   = (*Driver)(nil)
	_ provider.Pooler      = (*Driver)(nil)
	_ provider.Power       = (*Driver)(nil)
	_ provider.Interrupter = (*Driver)(nil)
)

// New returns a driver without connecting to AWS. It returns an error for an invalid option.
func New(o Options) (*Driver, error) {
	if o.Endpoint != "" {
		u, err := url.Parse(o.Endpoint)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil {
			return nil, fmt.Errorf("the endpoint %q is not a URL", o.Endpoint)
		}
		o.Endpoints = o.Endpoints.AllowHosts(u.Hostname())
	}
	if o.CreateSettle < 0 {
		return nil, errors.New("the create settle time is negative")
	}
	if o.CreateSettle == 0 {
		o.CreateSettle = 5 * time.Minute
	}
	if o.PageSize == 0 {
		o.PageSize = 1000
	}
	if o.PageSize < 5 || o.PageSize > 1000 {
		return nil, fmt.Errorf("the page size %d is not between 5 and 1000", o.PageSize)
	}
	if o.Transport == nil {
		transport := httpapi.Transport(o.Endpoints)
		if o.RootCAs != nil {
			transport.TLSClientConfig = &tls.Config{RootCAs: o.RootCAs, MinVersion: tls.VersionTLS12}
		}
		o.Transport = transport
	}
	return &Driver{options: o, http: httpapi.Client(o.Transport)}, nil
}

// Name implements provider.Driver.
func (d *Driver) Name() string { return Name }

// CreateSettle implements provider.Settler.
func (d *Driver) CreateSettle() time.Duration { return d.options.CreateSettle }

// CallTimeout implements provider.Timeouter. A Create with references by tags sends about ten requests.
func (d *Driver) CallTimeout() time.Duration { return time.Minute }

// Validate implements provider.Driver.
func (d *Driver) Validate(_ context.Context, req provider.ValidateRequest) error {
	if _, err := machine.ParseSpec(req.Class.Spec); err != nil {
		return err
	}
	if req.Class.Credentials.IsEmpty() {
		return nil
	}
	a, err := parseCredentials(req.Class.Credentials)
	if err != nil {
		return err
	}
	return d.options.checkGrant(a, req.Class.Credentials.Namespace())
}

// ListScope implements provider.Scoper. List covers the region.
func (d *Driver) ListScope(class provider.Class) (string, error) {
	spec, err := machine.ParseSpec(class.Spec)
	return spec.Region, err
}

// Account implements provider.Accounter. Only a role contains the ID of its account. The account of an access key is
// unknown without a call.
func (d *Driver) Account(class provider.Class) (string, error) {
	if class.Credentials.IsEmpty() {
		return "", nil
	}
	a, err := parseCredentials(class.Credentials)
	if err != nil {
		return "", err
	}
	return a.accountID(), nil
}

// CapacityPool implements provider.Pooler. Spot instances, Dedicated Instances and capacity reservations have pools
// of their own.
func (d *Driver) CapacityPool(class provider.Class) (string, error) {
	spec, err := machine.ParseSpec(class.Spec)
	switch {
	case err != nil:
		return "", err
	case spec.CapacityReservation.ID != "":
		return spec.CapacityReservation.ID, nil
	case spec.CapacityReservation.ResourceGroupARN != "":
		return spec.CapacityReservation.ResourceGroupARN[:min(len(spec.CapacityReservation.ResourceGroupARN), 200)], nil
	case spec.Spot != nil:
		return "spot", nil
	case spec.Placement.Tenancy != "default":
		return spec.Placement.Tenancy, nil
	}
	return "", nil
}

// owner is the cluster and the machine of a call.
type owner struct {
	cluster string
	machine provider.Machine
}

func ownerOf(cluster string, m provider.Machine) (owner, error) {
	if cluster == "" || m.UID == "" {
		return owner{}, provider.Errorf(provider.InvalidArgument, "cluster ID %q or UID %q of machine %s/%s is empty",
			cluster, m.UID, m.Namespace, m.Name)
	}
	return owner{cluster: cluster, machine: m}, nil
}
