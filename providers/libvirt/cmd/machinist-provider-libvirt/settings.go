package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"machinist.dev/machinist/providers/libvirt/driver"
)

// settings are the flags of this provider. None of them is a secret.
type settings struct {
	sockets      []string
	hosts        []string
	plainTCP     bool
	createSettle time.Duration
}

func (s *settings) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&s.sockets, "libvirt-socket", nil,
		"path of a unix socket of libvirtd that credentials may name; may be repeated. By default they may name none")
	fs.StringSliceVar(&s.hosts, "libvirt-host", nil,
		"host of a hypervisor that credentials may name; may be repeated. By default they may name any")
	fs.BoolVar(&s.plainTCP, "libvirt-plain-tcp", false,
		"allow hypervisors without TLS: user data is readable on the network, and nobody proves who he is")
	fs.DurationVar(&s.createSettle, "libvirt-create-settle", time.Minute,
		"how long a creation whose answer was lost can still take effect at libvirt")
}

func (s *settings) options() (driver.Options, error) {
	if s.createSettle <= 0 {
		return driver.Options{}, fmt.Errorf("--libvirt-create-settle is %s; it must be positive", s.createSettle)
	}
	return driver.Options{Sockets: s.sockets, Hosts: s.hosts, PlainTCP: s.plainTCP, CreateSettle: s.createSettle}, nil
}
