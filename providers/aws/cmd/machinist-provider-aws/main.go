// Command machinist-provider-aws is the provider process for Amazon Web Services.
package main

import (
	"context"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/app"
	"machinist.dev/machinist/providers/aws/driver"
)

func main() {
	var s settings
	app.Main(app.Provider{
		Name:     driver.Name,
		Type:     (*driver.Driver)(nil),
		AddFlags: s.addFlags,
		New: func() (provider.Driver, error) {
			o, err := s.options(context.Background())
			if err != nil {
				return nil, err
			}
			return driver.New(o)
		},
	})
}
