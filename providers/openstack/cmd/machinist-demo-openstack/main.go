// Command machinist-demo-openstack runs Machinist's demo with the OpenStack provider and a real OpenStack. It unpacks
// OpenStack from Debian's packages if necessary, and runs it on loopback.
package main

import (
	"os"

	"machinist.dev/machinist/devel/demo"
	"machinist.dev/machinist/providers/openstack/backend"
)

func main() { demo.Main("openstack", &backend.OpenStack{Output: os.Stderr}) }
