package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"machinist.dev/machinist/providers/openstack/driver"
)

// settings are the flags of this provider. None of them is a secret.
type settings struct {
	authURLs     []string
	plainHTTP    bool
	regional     bool
	createSettle time.Duration
}

func (s *settings) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&s.authURLs, "openstack-auth-url", nil,
		"URL of an identity service that credentials may name; may be repeated. By default they may name any")
	fs.BoolVar(&s.plainHTTP, "openstack-plain-http", false,
		"allow identity services and endpoints without TLS: tokens and user data are readable on the network")
	fs.BoolVar(&s.regional, "openstack-regional-provider-ids", false,
		"write provider IDs as openstack://REGION/UUID, as a cloud controller manager with OS_CCM_REGIONAL=true does")
	fs.DurationVar(&s.createSettle, "openstack-create-settle", time.Minute,
		"how long a creation whose answer was lost can still take effect at OpenStack")
}

func (s *settings) options() (driver.Options, error) {
	if s.createSettle <= 0 {
		return driver.Options{}, fmt.Errorf("--openstack-create-settle is %s; it must be positive", s.createSettle)
	}
	return driver.Options{AuthURLs: s.authURLs, PlainHTTP: s.plainHTTP, RegionalProviderIDs: s.regional,
		CreateSettle: s.createSettle}, nil
}
