// Command machinist-provider-openstack is the process of the OpenStack provider.
package main

import (
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/app"
	"machinist.dev/machinist/providers/openstack/driver"
)

func main() {
	var s settings
	app.Main(app.Provider{
		Name:     driver.Name,
		Type:     (*driver.Driver)(nil),
		AddFlags: s.addFlags,
		Warnings: s.warnings,
		New: func() (provider.Driver, error) {
			o, err := s.options()
			if err != nil {
				return nil, err
			}
			return driver.New(o)
		},
	})
}
