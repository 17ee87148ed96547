// Command machinist-provider-vsphere is the process of the vSphere provider.
package main

import (
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/app"
	"machinist.dev/machinist/providers/vsphere/driver"
)

func main() {
	var s settings
	app.Main(app.Provider{
		Name:     driver.Name,
		Type:     (*driver.Driver)(nil),
		AddFlags: s.addFlags,
		New: func() (provider.Driver, error) {
			o, err := s.options()
			if err != nil {
				return nil, err
			}
			return driver.New(o)
		},
	})
}
