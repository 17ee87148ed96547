// Command machinist-demo-openstack is machinist-demo with the OpenStack provider on a real OpenStack, which it unpacks
// from Debian's packages if need be and runs on loopback.
package main

import (
	"os"

	"machinist.dev/machinist/devel/demo"
	"machinist.dev/machinist/providers/openstack/backend"
)

func main() { demo.Main("openstack", &backend.OpenStack{Output: os.Stderr}) }
