package app

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"machinist.dev/machinist/pkg/provider/endpoints"
)

// EndpointFlags are the flags with which an administrator limits the addresses to which a driver may connect. A
// provider needs these flags if its driver takes endpoints from credentials, classes or answers of the cloud.
type EndpointFlags struct {
	prefix          string
	allowed, denied []string
}

// AddFlags adds the flags --PREFIX-allow-address and --PREFIX-deny-address.
func (f *EndpointFlags) AddFlags(fs *pflag.FlagSet, prefix string) {
	f.prefix = prefix
	fs.StringSliceVar(&f.allowed, f.name("allow"), nil,
		"address or range (CIDR) to which the provider may connect even if it is a loopback, link-local or Service address; can be repeated. By default, none is allowed")
	fs.StringSliceVar(&f.denied, f.name("deny"), nil,
		"address or range (CIDR) to which the provider does not connect, such as those of Services and pods; can be repeated. In a pod, the range of Services that begins with $KUBERNETES_SERVICE_HOST is always denied")
}

func (f *EndpointFlags) name(what string) string { return f.prefix + "-" + what + "-address" }

// Rules returns the rules from the flags and the environment. An error names the flag and the value.
func (f *EndpointFlags) Rules() (r endpoints.Rules, err error) {
	if r.Allowed, err = endpoints.ParseRanges(f.allowed); err != nil {
		return r, fmt.Errorf("--%s: %w", f.name("allow"), err)
	}
	if r.Denied, err = endpoints.ParseRanges(f.denied); err != nil {
		return r, fmt.Errorf("--%s: %w", f.name("deny"), err)
	}
	if services, ok := endpoints.ServiceRange(os.Getenv("KUBERNETES_SERVICE_HOST")); ok {
		r.Denied = append(r.Denied, services)
	}
	return r, nil
}
