package endpoints

import (
	"fmt"
	"net/netip"
)

// ParseRanges parses ranges such as "10.96.0.0/12", and addresses. An error contains the invalid text.
func ParseRanges(texts []string) ([]netip.Prefix, error) {
	ranges := make([]netip.Prefix, 0, len(texts))
	for _, text := range texts {
		if address, err := netip.ParseAddr(text); err == nil {
			address = address.WithZone("").Unmap()
			ranges = append(ranges, netip.PrefixFrom(address, address.BitLen()))
			continue
		}
		parsed, err := netip.ParsePrefix(text)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%.64q is neither an address nor a range such as 10.96.0.0/12", text)
		case parsed.Addr().Is4In6():
			return nil, fmt.Errorf("%.64q is an IPv4-mapped range; write it as an IPv4 range such as 10.96.0.0/12", text)
		}
		ranges = append(ranges, parsed.Masked())
	}
	return ranges, nil
}

// maxServiceBits is the maximum number of bits that distinguish the Services of a cluster.
// https://kubernetes.io/docs/reference/command-line-tools-reference/kube-apiserver/ (--service-cluster-ip-range)
const maxServiceBits = 20

// ServiceRange returns a range that contains the addresses of a cluster's Services. The argument of ServiceRange is
// the address of the Service kubernetes, as in the variable KUBERNETES_SERVICE_HOST of a pod. The address of the
// Service kubernetes is the first address of the range. A cluster does not tell the size of its range, so
// ServiceRange returns the largest range that can begin with this address. If the text is not an address, ok is
// false.
func ServiceRange(kubernetes string) (services netip.Prefix, ok bool) {
	first, err := netip.ParseAddr(kubernetes)
	if err != nil {
		return netip.Prefix{}, false
	}
	first = first.WithZone("").Unmap()
	network := first.Prev()
	for bits := first.BitLen() - maxServiceBits; network.IsValid() && bits < first.BitLen(); bits++ {
		if p := netip.PrefixFrom(network, bits); p.Masked() == p {
			return p, true
		}
	}
	return netip.PrefixFrom(first, first.BitLen()), true
}
