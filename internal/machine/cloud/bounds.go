package cloud

import (
	"errors"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"machinist.dev/machinist/pkg/provider"
)

// These constants are the limits of the CRD schema: maximum string lengths in bytes, and the maximum number of
// addresses. The API server would reject a status with a longer string, and every retry too.
const (
	maxID         = 1024
	maxName       = 256
	maxState      = 63
	maxMessage    = 8 << 10
	maxAddress    = 253
	maxAddressing = 63
	maxAddresses  = 256
)

var providerIDFormat = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://[^\s]+$`)

// boundedInstance returns an instance of a driver with values that fit into a status. boundedInstance truncates long
// names, and removes addresses and node names that cannot be used. A long provider ID or scope is an error, because a
// truncated value would not identify the instance.
func boundedInstance(in *provider.Instance, err error) (*provider.Instance, error) {
	if in == nil || err != nil {
		return in, err
	}
	out := *in
	switch {
	case out.ProviderID != "" && (len(out.ProviderID) > maxID || !providerIDFormat.MatchString(out.ProviderID)):
		return nil, provider.Errorf(provider.Internal,
			"driver returned the provider ID %.128q of %d bytes; it must be a URL without spaces of at most %d bytes",
			out.ProviderID, len(out.ProviderID), maxID)
	case len(out.Scope) > maxID:
		return nil, provider.Errorf(provider.Internal,
			"driver returned a scope of %d bytes for instance %s; at most %d are allowed", len(out.Scope),
			out.ProviderID, maxID)
	}
	if len(out.CreateHandle) > maxID {
		return nil, provider.Errorf(provider.Internal,
			"driver returned a create handle of %d bytes for instance %s; at most %d are allowed", len(out.CreateHandle),
			out.ProviderID, maxID)
	}
	out.State = provider.InstanceState(truncate(string(out.State), maxState))
	out.StateCode = provider.Code(truncate(string(out.StateCode), maxState))
	out.StateMessage = truncate(out.StateMessage, maxMessage)
	out.Type, out.Region = truncate(out.Type, maxName), truncate(out.Region, maxName)
	out.Zone = truncate(out.Zone, maxName)
	if len(validation.IsDNS1123Subdomain(out.NodeName)) > 0 {
		out.NodeName = "" // A truncated name could be the name of another Node.
	}
	out.Addresses = usableAddresses(in.Addresses, maxAddresses)
	out.GuestAddresses = usableAddresses(in.GuestAddresses, maxAddresses-len(out.Addresses))
	return &out, nil
}

func usableAddresses(all []corev1.NodeAddress, limit int) (out []corev1.NodeAddress) {
	for _, a := range all {
		if len(out) < limit && usable(a) {
			out = append(out, a)
		}
	}
	return out
}

func usable(a corev1.NodeAddress) bool {
	return len(a.Address) <= maxAddress && len(a.Type) <= maxAddressing && truncate(a.Address, maxAddress) == a.Address
}

func boundedCapacity(c provider.Capacity, err error) (provider.Capacity, error) {
	c.Architecture, c.OperatingSystem = truncate(c.Architecture, maxState), truncate(c.OperatingSystem, maxState)
	c.InstanceType, c.Region = truncate(c.InstanceType, maxName), truncate(c.Region, maxName)
	c.Zone = truncate(c.Zone, maxName)
	return c, err
}

func boundedError(err error) error {
	e, ok := errors.AsType[*provider.Error](err)
	if !ok || len(e.Message) <= maxMessage {
		return err
	}
	out := *e
	out.Message = truncate(e.Message, maxMessage)
	return &out
}

// truncate returns the first n bytes of s as valid UTF-8.
func truncate(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "")
}
