package driver

import (
	"fmt"
	"strconv"
	"strings"

	"machinist.dev/machinist/providers/azure/machine"
)

func interfaceName(vm string, i int) string { return fmt.Sprintf("%s-nic-%d", vm, i) }
func publicIPName(vm string, i int) string  { return fmt.Sprintf("%s-ip-%d", vm, i) }
func osDiskName(vm string) string           { return vm + "-os" }
func dataDiskName(vm string, lun int32) string {
	return fmt.Sprintf("%s-data-%d", vm, lun)
}

// parts are the names of the resources that are created and deleted with a virtual machine.
type parts struct {
	interfaces, publicIPs, disks []string
}

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

// scopeOf encodes the parts of a machine as a short text, for the scope of the instance and a tag.
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

// partsIn decodes a result of scopeOf. It returns false for any other text.
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
