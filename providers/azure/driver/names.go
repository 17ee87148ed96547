package driver

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/azure/machine"
)

// maxNamePart bounds what of a Machine's name is in its virtual machine's, so that all of it has at most the 63
// characters of a node's label: a dash, eight characters of hash, another dash and an attempt come after it.
const maxNamePart = 48

// baseName is what the names of all that is made for a Machine begin with: its own name, for people, and 40 bits that
// stand for the cluster and the UID, since Machines of other clusters and namespaces may be called the same.
func baseName(clusterID string, m provider.Machine) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, m.Name)
	name = strings.Trim(name[:min(len(name), maxNamePart)], "-")
	if name == "" {
		name = "machine"
	}
	return name + "-" + shortHash(clusterID, string(m.UID))
}

// vmName is the name of the virtual machine of one attempt, and of its node. The token is "<uid>-<attempt>".
func vmName(clusterID string, m provider.Machine, token string) string {
	base := baseName(clusterID, m)
	attempt, isAttempt := strings.CutPrefix(token, string(m.UID)+"-")
	n, err := strconv.Atoi(attempt)
	switch {
	case isAttempt && err == nil && n == 1:
		return base
	case isAttempt && err == nil && n > 1 && n < 10000:
		return base + "-" + strconv.Itoa(n)
	}
	return base + "-x" + shortHash(token)[:4]
}

// shortHash is 40 bits in the alphabet of names.
func shortHash(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return strings.ToLower(base32.StdEncoding.EncodeToString(h.Sum(nil)[:5]))
}

func interfaceName(vm string, i int) string { return fmt.Sprintf("%s-nic-%d", vm, i) }
func publicIPName(vm string, i int) string  { return fmt.Sprintf("%s-ip-%d", vm, i) }
func osDiskName(vm string) string           { return vm + "-os" }
func dataDiskName(vm string, lun int32) string {
	return fmt.Sprintf("%s-data-%d", vm, lun)
}

// parts are the names of what is made beside a virtual machine and has to go with it.
type parts struct {
	interfaces, publicIPs, disks []string
}

// partsOf are those of a virtual machine that the specification describes.
func partsOf(vm string, s *machine.Spec) parts {
	p := parts{disks: []string{osDiskName(vm)}}
	for i, n := range s.NetworkInterfaces {
		p.interfaces = append(p.interfaces, interfaceName(vm, i))
		if n.PublicIP {
			p.publicIPs = append(p.publicIPs, publicIPName(vm, i))
		}
	}
	for _, d := range s.DataDisks {
		p.disks = append(p.disks, dataDiskName(vm, *d.LUN))
	}
	return p
}

// scopeOf writes the parts down, shortly: it is the Scope of the instance, and a tag. "n2.i0.d0.d1" are two
// interfaces, of which the first has a public address, and data disks 0 and 1.
func scopeOf(s *machine.Spec) string {
	scope := []string{"n" + strconv.Itoa(len(s.NetworkInterfaces))}
	for i, n := range s.NetworkInterfaces {
		if n.PublicIP {
			scope = append(scope, "i"+strconv.Itoa(i))
		}
	}
	for _, d := range s.DataDisks {
		scope = append(scope, "d"+strconv.Itoa(int(*d.LUN)))
	}
	return strings.Join(scope, ".")
}

// partsIn reads what scopeOf wrote. It reports false for what it did not.
func partsIn(vm, scope string) (parts, bool) {
	p := parts{disks: []string{osDiskName(vm)}}
	fields := strings.Split(scope, ".")
	for at, field := range fields {
		if len(field) < 2 {
			return parts{}, false
		}
		n, err := strconv.Atoi(field[1:])
		if err != nil || n < 0 || n >= machine.MaxDataDisks {
			return parts{}, false
		}
		switch {
		case at == 0 && field[0] == 'n':
			for i := range n {
				p.interfaces = append(p.interfaces, interfaceName(vm, i))
			}
		case at > 0 && field[0] == 'i':
			p.publicIPs = append(p.publicIPs, publicIPName(vm, n))
		case at > 0 && field[0] == 'd':
			p.disks = append(p.disks, dataDiskName(vm, int32(n)))
		default:
			return parts{}, false
		}
	}
	return p, true
}
