package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"machinist.dev/machinist/pkg/provider/app"
	"machinist.dev/machinist/providers/openstack/driver"
)

// settings contains the flags of this provider. None of them is secret.
type settings struct {
	authURLs     []string
	plainHTTP    bool
	regional     bool
	createSettle time.Duration
	endpoints    app.EndpointFlags
}

func (s *settings) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&s.authURLs, "openstack-auth-url", nil,
		"URL of an identity service that credentials may name; can be repeated. By default, all URLs are allowed")
	fs.BoolVar(&s.plainHTTP, "openstack-plain-http", false,
		"allow identity services and endpoints without TLS; tokens and user data are then readable on the network")
	fs.BoolVar(&s.regional, "openstack-regional-provider-ids", false,
		"write provider IDs as openstack://REGION/UUID, like a cloud controller manager with OS_CCM_REGIONAL=true")
	fs.DurationVar(&s.createSettle, "openstack-create-settle", time.Minute,
		"how long an unanswered create request may still take effect in OpenStack")
	s.endpoints.AddFlags(fs, driver.Name)
}

func (s *settings) options() (driver.Options, error) {
	if s.createSettle <= 0 {
		return driver.Options{}, fmt.Errorf("--openstack-create-settle is %s; it must be positive", s.createSettle)
	}
	rules, err := s.endpoints.Rules()
	if err != nil {
		return driver.Options{}, err
	}
	return driver.Options{AuthURLs: s.authURLs, PlainHTTP: s.plainHTTP, RegionalProviderIDs: s.regional,
		CreateSettle: s.createSettle, Endpoints: rules}, nil
}

// warnings reports that authors of Secrets choose the cloud.
func (s *settings) warnings() []string {
	if len(s.authURLs) > 0 {
		return nil
	}
	return []string{"--openstack-auth-url is not set, so each author of Secrets with credentials can direct the provider to an identity service " +
		"of their own. This server receives user data with bootstrap tokens, and its answers decide which certificates " +
		"kubelets get. Unless these authors are administrators, set the flag to the identity services of your cloud."}
}
