package libvirt

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// subnet is a bridge with its addresses. As long as the file lock is open, no other hypervisor of the system uses this
// subnet.
type subnet struct {
	number byte
	lock   *os.File
}

// reservations is the folder of the locks. All processes must use it, because each process removes bridges without a
// lock.
const reservations = "/run/machinist-libvirt"

// reserveSubnet reserves the first free subnet until this process ends.
func reserveSubnet() (*subnet, error) {
	if err := os.MkdirAll(reservations, 0o700); err != nil {
		return nil, fmt.Errorf("reserve a subnet: %w", err)
	}
	for number := byte(1); number < 255; number++ {
		s := &subnet{number: number}
		lock, err := os.OpenFile(filepath.Join(reservations, s.bridge()), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, fmt.Errorf("reserve a subnet: %w", err)
		}
		err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			s.lock = lock
			if err = s.removeBridge(); err != nil {
				return nil, errors.Join(err, lock.Close())
			}
			var taken bool
			if taken, err = s.taken(); err == nil && !taken {
				return s, nil
			}
		}
		if err != nil && !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("reserve a subnet: %w", err), lock.Close())
		}
		if err := lock.Close(); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("no subnet between 10.213.1.0/24 and 10.213.254.0/24 is free")
}

func (s *subnet) bridge() string { return fmt.Sprintf("machinist%d", s.number) }

func (s *subnet) address(last byte) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 213, s.number, last})
}

func (s *subnet) host() netip.Addr { return s.address(1) }

func (s *subnet) prefix() netip.Prefix { return netip.PrefixFrom(s.address(0), 24) }

func (s *subnet) taken() (bool, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return false, err
	}
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Overlaps(s.prefix()) {
			return true, nil
		}
	}
	return false, nil
}

// removeBridge removes a bridge that a killed process left behind.
func (s *subnet) removeBridge() error {
	if _, err := net.InterfaceByName(s.bridge()); err != nil {
		return nil //nolint:nilerr // The bridge does not exist.
	}
	if out, err := exec.Command("ip", "link", "delete", s.bridge(), "type", "bridge").CombinedOutput(); err != nil {
		return fmt.Errorf("remove the bridge %s: %w: %s", s.bridge(), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (s *subnet) release() error { return errors.Join(s.removeBridge(), s.lock.Close()) }
