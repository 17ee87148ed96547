// Command machinist-demo-vsphere-sim runs machinist-demo with the vSphere provider on vcsim.
package main

import (
	"machinist.dev/machinist/devel/demo"
	"machinist.dev/machinist/providers/vsphere/backend"
)

func main() { demo.Main("vsphere-sim", &backend.VSphere{}) }
