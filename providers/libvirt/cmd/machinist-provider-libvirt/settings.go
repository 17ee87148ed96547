package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"machinist.dev/machinist/pkg/provider/app"
	"machinist.dev/machinist/providers/libvirt/driver"
)

// settings contains the flags of this provider. None of them is secret.
type settings struct {
	sockets      []string
	hosts        []string
	plainTCP     bool
	createSettle time.Duration
	endpoints    app.EndpointFlags
}

func (s *settings) addFlags(fs *pflag.FlagSet) {
	fs.StringSliceVar(&s.sockets, "libvirt-socket", nil,
		"path of a Unix socket of libvirtd that credentials may name; can be repeated. By default, none is allowed")
	fs.StringSliceVar(&s.hosts, "libvirt-host", nil,
		"host of a hypervisor that credentials may name; can be repeated. By default, all hosts are allowed")
	fs.BoolVar(&s.plainTCP, "libvirt-plain-tcp", false,
		"allow hypervisors without TLS; user data is then readable on the network, and neither side is authenticated")
	fs.DurationVar(&s.createSettle, "libvirt-create-settle", time.Minute,
		"how long an unanswered create request may still take effect in libvirt")
	s.endpoints.AddFlags(fs, driver.Name)
}

func (s *settings) options() (driver.Options, error) {
	if s.createSettle <= 0 {
		return driver.Options{}, fmt.Errorf("--libvirt-create-settle is %s; it must be positive", s.createSettle)
	}
	rules, err := s.endpoints.Rules()
	if err != nil {
		return driver.Options{}, err
	}
	return driver.Options{Sockets: s.sockets, Hosts: s.hosts, PlainTCP: s.plainTCP, CreateSettle: s.createSettle,
		Endpoints: rules}, nil
}

// warnings reports that authors of Secrets choose the cloud.
func (s *settings) warnings() []string {
	if len(s.hosts) > 0 {
		return nil
	}
	return []string{"--libvirt-host is not set, so each author of Secrets with credentials can direct the provider to a hypervisor " +
		"of their own. This server receives user data with bootstrap tokens, and its answers decide which certificates " +
		"kubelets get. Unless these authors are administrators, set the flag to the hypervisors of your cloud."}
}
