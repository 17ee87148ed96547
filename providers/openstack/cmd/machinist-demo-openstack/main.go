// Command machinist-demo-openstack runs Machinist's demo with the OpenStack provider and a real OpenStack. OpenStack is
// unpacked from Debian's packages if necessary, and runs on loopback.
package main

import (
	"os"

	"machinist.dev/machinist/devel/demo"
	"machinist.dev/machinist/providers/openstack/backend"
)

func main() { demo.Main("openstack", &backend.OpenStack{Output: os.Stderr}) }
