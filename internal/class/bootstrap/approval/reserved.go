package approval

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/platform/validation"
	"machinist.dev/machinist/pkg/provider/endpoints"
)

// ReservedNames holds names and addresses for which no serving certificate is approved, even if the provider reports
// them. The zero value reserves the names and addresses that no node can have, such as localhost, loopback addresses
// and kubernetes.default.
type ReservedNames struct {
	// Hosts are DNS names and IP addresses, such as the host in the URL of the API server.
	Hosts []string
	// Ranges are IP ranges, such as the range of Services.
	Ranges []netip.Prefix
}

// find returns a reserved name or address in the request, or "".
func (v ReservedNames) find(r request) string {
	rules := endpoints.Rules{Denied: slices.Clone(v.Ranges)}
	var names []string
	for _, host := range v.Hosts {
		if address, err := netip.ParseAddr(host); err == nil {
			address = address.WithZone("").Unmap()
			rules.Denied = append(rules.Denied, netip.PrefixFrom(address, address.BitLen()))
		} else {
			names = append(names, plainName(host))
		}
	}
	for _, name := range r.DNS {
		if validation.IsReservedNodeName(name) || strings.Contains(name, "*") || slices.Contains(names, plainName(name)) ||
			rules.CheckHost(name) != nil {
			return name
		}
	}
	for _, ip := range r.IPs {
		if rules.Check(ip) != nil {
			return ip.String()
		}
	}
	return ""
}

func plainName(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// withAPIServers returns v with the addresses of the target cluster's Service kubernetes and of its API servers.
func (v ReservedNames) withAPIServers(ctx context.Context, target client.Reader) (ReservedNames, error) {
	service, servers := &corev1.Service{}, &discoveryv1.EndpointSlice{}
	for _, object := range []client.Object{service, servers} {
		err := target.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, object)
		if client.IgnoreNotFound(err) != nil {
			return ReservedNames{}, fmt.Errorf("read the addresses of the API servers of the target cluster: %w", err)
		}
	}
	v.Hosts = append(slices.Clone(v.Hosts), service.Spec.ClusterIPs...)
	for _, server := range servers.Endpoints {
		v.Hosts = append(v.Hosts, server.Addresses...)
	}
	return v, nil
}
