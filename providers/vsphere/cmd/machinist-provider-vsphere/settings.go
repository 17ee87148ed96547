package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"machinist.dev/machinist/pkg/provider/app"
	"machinist.dev/machinist/providers/vsphere/driver"
)

// settings contains the flags of this provider. None of them is secret.
type settings struct {
	vcenters     map[string]string
	plainHTTP    bool
	createSettle time.Duration
	endpoints    app.EndpointFlags
}

func (s *settings) addFlags(fs *pflag.FlagSet) {
	fs.StringToStringVar(&s.vcenters, "vsphere-vcenter", nil,
		"vCenter as NAME=URL, such as lab=https://vcenter.example.com; can be repeated. Classes use the name. Required")
	fs.BoolVar(&s.plainHTTP, "vsphere-plain-http", false,
		"allow vCenters without TLS; passwords and user data are then readable on the network")
	fs.DurationVar(&s.createSettle, "vsphere-create-settle", 2*time.Minute,
		"how long an unanswered request for a clone may still take effect in vCenter")
	s.endpoints.AddFlags(fs, driver.Name)
}

func (s *settings) options() (driver.Options, error) {
	if len(s.vcenters) == 0 {
		return driver.Options{}, errors.New("--vsphere-vcenter is not set; set it to NAME=URL")
	}
	if s.createSettle <= 0 {
		return driver.Options{}, fmt.Errorf("--vsphere-create-settle is %s; it must be positive", s.createSettle)
	}
	rules, err := s.endpoints.Rules()
	if err != nil {
		return driver.Options{}, err
	}
	return driver.Options{VCenters: s.vcenters, PlainHTTP: s.plainHTTP, CreateSettle: s.createSettle,
		Endpoints: rules}, nil
}
