// Package libvirt runs a real libvirt with QEMU beside the system's own, if that has one: a libvirtd with a storage
// pool and a network with DHCP, whose domains are processes of QEMU that emulate a machine. KVM is not needed: their
// type is "qemu".
//
// # Programs
//
// install.sh installs Debian's packages where one is missing. They bring no service. All of this needs Linux and root.
//
// # Namespaces
//
// A libvirtd that runs as root has its folders compiled in: /etc/libvirt, /var/lib/libvirt, /run/libvirt and others.
// So each Hypervisor has a mount namespace, in which folders below its own are mounted there (empty folders of these
// names are made on the system where there are none), and a PID namespace, whose first process is the keeper.
// libvirtd, dnsmasq and every QEMU run in both. When the keeper ends, the kernel ends all of them, and the keeper
// ends with this process: nothing is left behind, however a test ends. Only a bridge may be; the next one to use its
// name removes it.
//
// The network namespace is the system's. Guests of a Hypervisor reach what listens at its bridge's address, and are
// reached at their own. Bridges and subnets are reserved by locks of files, so that hypervisors run side by side.
// Nothing else of the system's network changes: the network has libvirt's forward mode "open", which sets up no packet
// filter, and what libvirt writes to net.ipv4.ip_forward is written to a file.
//
// # Faults
//
// Kill ends libvirtd alone, as a crash would, and Launch starts it again; domains run on. Pause lets it hang. KillGuest
// ends the QEMU of a domain.
package libvirt
