package driver

import (
	"cmp"
	"context"
	"crypto/tls"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/httpapi"
	"machinist.dev/machinist/providers/openstack/machine"
)

// The driver needs features of these microversions.
const (
	// novaMicroversion allows tags in the creation of a server.
	// https://docs.openstack.org/nova/latest/reference/api-microversion-history.html
	novaMicroversion = "2.52"
	// cinderMicroversion provides the attachments of volumes.
	cinderMicroversion = "3.44"
)

// session contains what all calls of one account share: connections, a token, and the service catalog from Keystone.
type session struct {
	account account
	options *Options
	http    *http.Client

	mu       sync.Mutex
	signedIn *signedIn
	since    time.Time
}

// signedIn is the result of a sign-in to Keystone.
type signedIn struct {
	client  *gophercloud.ProviderClient
	catalog *tokens.ServiceCatalog
	// project is the ID of the token's project, or empty if OpenStack does not report it.
	project string
}

// maxSession limits how long a catalog is used, because endpoints can change.
const maxSession = time.Hour

// clients contains the service clients of one account in one region.
type clients struct {
	// region is empty if neither the specification nor the credentials name one.
	region   string
	regional bool
	// defaultRegion is the region in the credentials. project is the ID of the project in the credentials. Unknown
	// values are empty.
	defaultRegion, project string

	compute *gophercloud.ServiceClient
	network *gophercloud.ServiceClient
	volume  *gophercloud.ServiceClient
	image   *gophercloud.ServiceClient
}

// clients returns the services of a region, and signs in if necessary. The default region is that of the credentials.
func (d *Driver) clients(ctx context.Context, c provider.Credentials, region string) (*clients, error) {
	s, err := d.pool.Get(c, "", func() (*session, error) {
		a, err := d.options.parse(c)
		if err != nil {
			return nil, err
		}
		httpClient := d.http
		if a.roots != nil {
			transport := httpapi.Transport(d.options.Endpoints)
			transport.TLSClientConfig = &tls.Config{RootCAs: a.roots, MinVersion: tls.VersionTLS12}
			httpClient = httpapi.Client(transport)
		}
		return &session{account: a, options: &d.options, http: httpClient}, nil
	})
	if err != nil {
		return nil, err
	}
	result, err := s.signIn(ctx)
	if err != nil {
		return nil, err
	}
	out := &clients{region: cmp.Or(region, s.account.region), regional: d.options.RegionalProviderIDs,
		defaultRegion: s.account.region, project: result.project}
	for _, service := range []struct {
		client       **gophercloud.ServiceClient
		kind         string
		types        []string
		version      string
		microversion string
	}{
		{&out.compute, "compute", []string{"compute"}, "", novaMicroversion},
		{&out.network, "network", []string{"network"}, "v2.0/", ""},
		{&out.volume, "volume", []string{"volumev3", "block-storage", "volume"}, "", cinderMicroversion},
		{&out.image, "image", []string{"image"}, "v2/", ""},
	} {
		endpoint, err := s.endpoint(result.catalog, service.types, out.region)
		if err != nil {
			return nil, err
		}
		if endpoint == "" {
			continue // Only machines with volumes need Cinder.
		}
		*service.client = &gophercloud.ServiceClient{ProviderClient: result.client, Endpoint: endpoint, Type: service.kind,
			Microversion: service.microversion}
		if service.version != "" && !strings.HasSuffix(endpoint, "/"+service.version) {
			(*service.client).ResourceBase = endpoint + service.version
		}
	}
	return out, nil
}

// signIn locks the session, so that parallel calls do not request several tokens.
func (s *session) signIn(ctx context.Context) (*signedIn, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.signedIn != nil && time.Since(s.since) < maxSession {
		return s.signedIn, nil
	}
	client, err := openstack.NewClient(s.account.auth.IdentityEndpoint)
	if err != nil {
		return nil, malformed("the URL of the identity service is invalid")
	}
	client.HTTPClient = *s.http
	client.UserAgent.Prepend("machinist")
	client.UseTokenLock()
	options := s.account.auth
	// Without the version, the library would send a call to discover it.
	endpoint := strings.TrimRight(options.IdentityEndpoint, "/")
	if !strings.HasSuffix(endpoint, "/v3") {
		endpoint += "/v3"
	}
	client.IdentityEndpoint = endpoint + "/"
	if err := openstack.AuthenticateV3(ctx, client, &options, gophercloud.EndpointOpts{}); err != nil {
		return nil, translate(ctx, err, "sign in to OpenStack")
	}
	result, ok := client.GetAuthResult().(tokens.CreateResult)
	if !ok {
		return nil, provider.Errorf(provider.Internal, "sign in to OpenStack: the answer has no catalog")
	}
	catalog, err := result.ExtractServiceCatalog()
	if err != nil {
		return nil, provider.Errorf(provider.Internal, "sign in to OpenStack: the catalog of services cannot be read")
	}
	s.signedIn, s.since = &signedIn{client: client, catalog: catalog}, time.Now()
	if project, err := result.ExtractProject(); err == nil && project != nil {
		s.signedIn.project = project.ID
	}
	return s.signedIn, nil
}

// endpoint returns the URL of a service with a final slash, or an empty string if the catalog lacks the service.
func (s *session) endpoint(catalog *tokens.ServiceCatalog, types []string, region string) (string, error) {
	var regions, found []string
	for _, kind := range types {
		for _, entry := range catalog.Entries {
			if entry.Type != kind {
				continue
			}
			for _, e := range entry.Endpoints {
				if e.Interface != s.account.endpointInterface {
					continue
				}
				name := cmp.Or(e.RegionID, e.Region)
				regions = append(regions, name)
				if region == "" || name == region {
					found = append(found, e.URL)
				}
			}
		}
		if len(found) > 0 {
			break
		}
	}
	slices.Sort(regions)
	regions = slices.Compact(regions)
	switch {
	case region == "" && len(regions) > 1:
		return "", notOffered("region",
			"OpenStack has several regions; set the region in the providerSpec or in the credentials to one of %.256s",
			strings.Join(regions, ", "))
	case len(found) > 0:
		if err := s.options.checkURL(found[0]); err != nil {
			return "", provider.Errorf(provider.FailedPrecondition,
				"the endpoint %.256q of the service %q in OpenStack's catalog %w", found[0], types[0], err)
		}
		return strings.TrimRight(found[0], "/") + "/", nil
	case len(regions) > 0:
		return "", notOffered("region",
			"OpenStack has no region %.128q with the service %q and the interface %q; regions with them: %.256s",
			region, types[0], s.account.endpointInterface, strings.Join(regions, ", "))
	case types[0] == "compute" || types[0] == "network":
		return "", provider.Errorf(provider.FailedPrecondition, "OpenStack's catalog has no service %q with the interface %q",
			types[0], s.account.endpointInterface)
	}
	return "", nil
}

// regionOf returns the region of a providerSpec, or an empty string.
func regionOf(raw []byte) string {
	spec, err := machine.ParseSpec(raw)
	if err != nil {
		return ""
	}
	return spec.Region
}

func (c *clients) requireVolumeService(field string) error {
	if c.volume == nil {
		return notOffered(field, "OpenStack's catalog has no volume service")
	}
	return nil
}

// notOffered returns an error for a valid field that this OpenStack does not support at the moment.
func notOffered(field, format string, args ...any) error {
	e := provider.Errorf(provider.FailedPrecondition, format, args...)
	e.Field = field
	return e
}
