// Command provider is the provider process of the benchmark: Machinist's own, around a cloud that is a map in its
// memory and answers after a set time, so that the cloud is not what is measured.
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
	var every bool
	app.Main(app.Provider{
		// It takes the place of the simulated cloud's provider.
		Name: simdriver.Name,
		AddFlags: func(fs *pflag.FlagSet) {
			fs.StringVar(&hosts, "hosts", "",
				"Unix socket of who plays the instances' hosts: gets a line for each instance that comes or goes. Required")
			fs.DurationVar(&latency, "latency", 0, "how long every call to the cloud takes")
			fs.BoolVar(&every, "every-instance", false,
				"have an instance for each Machine that asks for its own, whoever made it, and list none")
			fs.StringSlice("cloud-endpoint", nil, "without meaning here")
		},
		New: func() (provider.Driver, error) {
			h, err := dial(hosts)
			if err != nil {
				return nil, err
			}
			return &driver{latency: latency, hosts: h, every: every, instances: map[string]*provider.Instance{},
				byMachine: map[string]*provider.Instance{}}, nil
		},
	})
}
