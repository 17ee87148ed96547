package cloud

import (
	"errors"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"machinist.dev/machinist/pkg/provider"
)

// Limits of the API's schema for strings in a status, in bytes, and for the number of addresses. The API server refuses
// a status that contains a longer string, and would do so on every retry.
const (
	maxID         = 1024
	maxName       = 256
	maxState      = 63
	maxMessage    = 8 << 10
	maxAddress    = 253
	maxAddressing = 63
	maxAddresses  = 256
)

// providerIDFormat is the format of spec.providerID.
var providerIDFormat = regexp.MustCompile(`^[a-z][a-z0-9+.-]*://[^\s]+$`)

// boundedInstance returns a driver's instance in a form that fits into a status. It truncates names, and drops
// addresses and node names that are unusable. It returns an error for a provider ID or a scope that does not fit,
// because a truncated one would not identify the instance.
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
	out.State = provider.InstanceState(cut(string(out.State), maxState))
	out.StateCode = provider.Code(cut(string(out.StateCode), maxState))
	out.StateMessage = cut(out.StateMessage, maxMessage)
	out.Type, out.Region, out.Zone = cut(out.Type, maxName), cut(out.Region, maxName), cut(out.Zone, maxName)
	if len(validation.IsDNS1123Subdomain(out.NodeName)) > 0 {
		out.NodeName = "" // A truncated name could be the name of another Node.
	}
	out.Addresses = usableAddresses(in.Addresses, maxAddresses)
	out.GuestAddresses = usableAddresses(in.GuestAddresses, maxAddresses-len(out.Addresses))
	return &out, nil
}

// usableAddresses returns the usable addresses, at most as many as the limit.
func usableAddresses(all []corev1.NodeAddress, limit int) (out []corev1.NodeAddress) {
	for _, a := range all {
		if len(out) < limit && usable(a) {
			out = append(out, a)
		}
	}
	return out
}

func usable(a corev1.NodeAddress) bool {
	return len(a.Address) <= maxAddress && len(a.Type) <= maxAddressing && cut(a.Address, maxAddress) == a.Address
}

// boundedCapacity returns a driver's capacity with strings that fit into a status.
func boundedCapacity(c provider.Capacity, err error) (provider.Capacity, error) {
	c.Architecture, c.OperatingSystem = cut(c.Architecture, maxState), cut(c.OperatingSystem, maxState)
	c.InstanceType, c.Region, c.Zone = cut(c.InstanceType, maxName), cut(c.Region, maxName), cut(c.Zone, maxName)
	return c, err
}

// boundedError returns the error with a message that fits into a condition.
func boundedError(err error) error {
	e, ok := errors.AsType[*provider.Error](err)
	if !ok || len(e.Message) <= maxMessage {
		return err
	}
	out := *e
	out.Message = cut(e.Message, maxMessage)
	return &out
}

// cut returns s as valid UTF-8 of at most n bytes.
func cut(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "")
}
