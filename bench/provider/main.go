// Command provider is the provider process of the bench. The cloud of this provider is a map in memory that responds
// after a fixed time.
package main

import (
	"time"

	"github.com/spf13/pflag"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/app"
	simdriver "machinist.dev/machinist/simcloud/driver"
)

func main() {
	var hosts string
	var latency time.Duration
	var anyInstance bool
	app.Main(app.Provider{
		// This provider replaces the provider of the simulated cloud.
		Name: simdriver.Name,
		AddFlags: func(fs *pflag.FlagSet) {
			fs.StringVar(&hosts, "hosts", "",
				"Unix socket of the bench, which receives a line for each new and each deleted instance. Required")
			fs.DurationVar(&latency, "latency", 0, "duration of every call of the cloud")
			fs.BoolVar(&anyInstance, "every-instance", false,
				"return an instance for every Machine, even if this process did not create it; lists are empty")
			fs.StringSlice("cloud-endpoint", nil, "not used")
		},
		New: func() (provider.Driver, error) {
			h, err := dial(hosts)
			if err != nil {
				return nil, err
			}
			return &driver{latency: latency, hosts: h, anyInstance: anyInstance, instances: map[string]*provider.Instance{},
				byMachine: map[string]*provider.Instance{}}, nil
		},
	})
}
