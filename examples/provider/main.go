// Command provider is the example in the provider guide: a provider for a cloud that consists of a folder.
package main

import (
	"github.com/spf13/pflag"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/app"
)

func main() {
	d := &driver{}
	app.Main(app.Provider{
		Name: d.Name(),
		AddFlags: func(fs *pflag.FlagSet) {
			fs.StringVar(&d.cloud.folder, "folder", "", "folder in which the machines are stored. Required")
		},
		New: func() (provider.Driver, error) { return d, d.cloud.open() },
	})
}
