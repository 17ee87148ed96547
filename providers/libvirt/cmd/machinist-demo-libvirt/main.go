// Command machinist-demo-libvirt runs Machinist's demo with the libvirt provider. The virtual machines on this host
// boot Debian and run a real kubelet. The command requires Linux, root, and the disk image of hack/guest.
package main

import (
	"os"

	"machinist.dev/machinist/devel/demo"
	"machinist.dev/machinist/providers/libvirt/backend"
)

func main() { demo.Main("libvirt", &backend.Libvirt{Output: os.Stderr}) }
