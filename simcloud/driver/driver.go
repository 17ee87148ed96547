package driver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
)

// Name is the name of the provider.
const Name = "sim"

// credentialsKey is the key of the token in the credentials Secret.
const credentialsKey = "token"

// Options configure a Driver.
type Options struct {
	// Endpoints are the base URLs of the allowed clouds, such as "http://127.0.0.1:8080". The first is the default. At
	// least one is required.
	Endpoints []string
	// HTTPClient sends all calls. HTTPClient never follows redirects. Default: a client without a proxy that keeps
	// connections for many concurrent calls.
	HTTPClient *http.Client
	// CreateSettle is how long an unanswered create call may still take effect, and how long its instance may be
	// missing in lists. Default: twice provider.DefaultCallTimeout.
	CreateSettle time.Duration
	// PageSize is the page size of List. Default and maximum: simcloud.MaxPageSize.
	PageSize int
}

// Driver is the provider.Driver of the simulated cloud. It is safe for concurrent use.
type Driver struct {
	endpoints []string
	http      *http.Client
	settle    time.Duration
	pageSize  int
}

var (
	_ provider.Driver  = (*Driver)(nil)
	_ provider.Settler = (*Driver)(nil)
	_ provider.Adopter = (*Driver)(nil)
	_ provider.Scoper  = (*Driver)(nil)
	_ provider.Power   = (*Driver)(nil)
)

// New returns a driver without connecting to the cloud. It returns an error for an endpoint that is not a base URL, or
// an option out of range.
func New(o Options) (*Driver, error) {
	d := &Driver{http: o.HTTPClient, settle: o.CreateSettle, pageSize: o.PageSize}
	for _, endpoint := range o.Endpoints {
		endpoint = strings.TrimRight(endpoint, "/")
		if _, err := simcloud.New(simcloud.Config{Endpoint: endpoint, Token: "unused"}); err != nil {
			return nil, fmt.Errorf("parse the sim endpoint: %w", err)
		}
		d.endpoints = append(d.endpoints, endpoint)
	}
	switch {
	case len(d.endpoints) == 0:
		return nil, errors.New("the sim provider needs at least one endpoint")
	case o.CreateSettle < 0:
		return nil, fmt.Errorf("the create settle time %s of the sim provider must not be negative", o.CreateSettle)
	case o.PageSize < 0 || o.PageSize > simcloud.MaxPageSize:
		return nil, fmt.Errorf("the page size %d of the sim provider must be between 0 and %d", o.PageSize,
			simcloud.MaxPageSize)
	}
	if d.http == nil {
		d.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, IdleConnTimeout: time.Minute}}
	}
	if d.settle == 0 {
		d.settle = 2 * provider.DefaultCallTimeout
	}
	return d, nil
}

// Name implements provider.Driver.
func (d *Driver) Name() string { return Name }

// CreateSettle implements provider.Settler.
func (d *Driver) CreateSettle() time.Duration { return d.settle }

// Validate implements provider.Driver.
func (d *Driver) Validate(_ context.Context, req provider.ValidateRequest) error {
	if _, err := d.parse(req.Class.Spec); err != nil {
		return err
	}
	if req.Class.Credentials.IsEmpty() {
		return nil
	}
	_, err := tokenOf(req.Class.Credentials)
	return err
}

// Capacity implements provider.Driver. It also checks that the cloud offers the region, zone, type and image. So the
// status of the class reports a misspelled image before the first machine is created.
func (d *Driver) Capacity(ctx context.Context, req provider.CapacityRequest) (provider.Capacity, error) {
	spec, err := d.parse(req.Class.Spec)
	if err != nil {
		return provider.Capacity{}, err
	}
	client, err := d.client(spec.Endpoint, req.Class.Credentials)
	if err != nil {
		return provider.Capacity{}, err
	}
	regions, err := client.ListRegions(ctx)
	if err != nil {
		return provider.Capacity{}, translate(err, "list regions")
	}
	region := slices.IndexFunc(regions, func(r simcloud.Region) bool { return r.Name == spec.Region })
	if region < 0 {
		return provider.Capacity{}, notOffered("region", "the cloud has no region %q that the account may use", spec.Region)
	}
	if spec.Zone != "" && !slices.Contains(regions[region].Zones, spec.Zone) {
		return provider.Capacity{}, notOffered("zone", "region %q has no zone %q", spec.Region, spec.Zone)
	}
	images, err := client.ListImages(ctx)
	if err != nil {
		return provider.Capacity{}, translate(err, "list images")
	}
	if findImage(images, spec.Image) == nil {
		return provider.Capacity{}, notOffered("image", "the cloud has no image %q", spec.Image)
	}
	types, err := client.ListInstanceTypes(ctx)
	if err != nil {
		return provider.Capacity{}, translate(err, "list instance types")
	}
	t := findType(types, spec.InstanceType)
	if t == nil {
		return provider.Capacity{}, notOffered("instanceType", "the cloud has no instance type %q", spec.InstanceType)
	}
	return provider.Capacity{
		Resources:       resourcesOf(t),
		InstanceType:    t.Name,
		Region:          spec.Region,
		Zone:            spec.Zone,
		Architecture:    t.Architecture,
		OperatingSystem: "linux",
	}, nil
}

// resourcesOf returns the allocatable resources of an instance type. By default, a kubelet reserves 100 MiB of memory
// and a tenth of the disk.
func resourcesOf(t *simcloud.InstanceType) corev1.ResourceList {
	list := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(t.CPUs), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(max(0, t.MemoryMiB-100)<<20, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(t.EphemeralStorageGiB<<30*9/10, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(podsPerNode, resource.DecimalSI),
	}
	if t.GPUs > 0 {
		list[gpuResource] = *resource.NewQuantity(int64(t.GPUs), resource.DecimalSI)
	}
	return list
}

const (
	gpuResource = corev1.ResourceName("nvidia.com/gpu")
	podsPerNode = 110
)

// client returns a client for an endpoint. All clients share the same connections, because each request contains its
// token.
func (d *Driver) client(endpoint string, credentials provider.Credentials) (account, error) {
	if endpoint == "" {
		endpoint = d.endpoints[0]
	}
	if !slices.Contains(d.endpoints, endpoint) {
		return account{}, provider.Errorf(provider.FailedPrecondition,
			"endpoint %.128q is not an endpoint that this provider may use", endpoint)
	}
	token, err := tokenOf(credentials)
	if err != nil {
		return account{}, err
	}
	client, err := simcloud.New(simcloud.Config{Endpoint: endpoint, Token: token, HTTPClient: d.http})
	if err != nil {
		return account{}, provider.Errorf(provider.Internal, "create a client of the cloud at %q", endpoint)
	}
	return account{client}, nil
}

// tokenOf trims white space, because Secrets created from files end with a newline.
func tokenOf(credentials provider.Credentials) (string, error) {
	if credentials.IsEmpty() {
		return "", provider.Errorf(provider.Unauthenticated, "there are no credentials: a Secret with the key %q is "+
			"required", credentialsKey)
	}
	secret, found := credentials.Get(credentialsKey)
	if !found {
		return "", provider.Errorf(provider.InvalidArgument, "the credentials have no key %q, only %.256q", credentialsKey,
			strings.Join(credentials.Keys(), ", "))
	}
	token := strings.TrimSpace(string(secret.Reveal()))
	unprintable := func(r rune) bool { return r <= ' ' || r > '~' }
	if token == "" || len(token) > maxTokenBytes || strings.ContainsFunc(token, unprintable) {
		return "", provider.Errorf(provider.InvalidArgument,
			"the value of the key %q in the credentials must consist of 1 to %d printable ASCII characters without spaces",
			credentialsKey, maxTokenBytes)
	}
	return token, nil
}

const maxTokenBytes = 4096

func findType(all []simcloud.InstanceType, name string) *simcloud.InstanceType {
	if i := slices.IndexFunc(all, func(t simcloud.InstanceType) bool { return t.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}

func findImage(all []simcloud.Image, name string) *simcloud.Image {
	if i := slices.IndexFunc(all, func(image simcloud.Image) bool { return image.Name == name }); i >= 0 {
		return &all[i]
	}
	return nil
}
