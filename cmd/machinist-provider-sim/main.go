// Command machinist-provider-sim is the provider process of the simulated cloud.
package main

import (
	"errors"
	"time"

	"github.com/spf13/pflag"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/app"
	"machinist.dev/machinist/simcloud/driver"
)

func main() {
	var o driver.Options
	interruptions := false
	app.Main(app.Provider{
		Name: driver.Name,
		Type: (*driver.Driver)(nil),
		AddFlags: func(fs *pflag.FlagSet) {
			fs.StringSliceVar(&o.Endpoints, "cloud-endpoint", nil,
				"URLs of the simulated clouds that classes may use; the first is the default. Required")
			fs.DurationVar(&o.CreateSettle, "create-settle", 5*time.Second,
				"how long a create call whose answer was lost can still take effect in the cloud")
			fs.BoolVar(&interruptions, "interruption-polling", false,
				"ask the cloud every 15 seconds which instances it is about to reclaim")
		},
		New: func() (provider.Driver, error) {
			if len(o.Endpoints) == 0 {
				return nil,
					errors.New("--cloud-endpoint is not set: set it to the URL of the simulated cloud, such as http://127.0.0.1:8080")
			}
			d, err := driver.New(o)
			if err != nil || !interruptions {
				return d, err
			}
			return driver.Announcing{Driver: d}, nil
		},
	})
}
