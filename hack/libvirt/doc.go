// Package libvirt runs a real libvirt with QEMU, independently of the libvirt of the system. The package starts a
// libvirtd with a storage pool and a network with DHCP. Domains have the type "qemu": QEMU emulates machines without
// KVM.
//
// # Programs
//
// The script install.sh installs missing Debian packages without starting services. This package needs Linux and root.
//
// # Namespaces
//
// A libvirtd that runs as root uses fixed folders: /etc/libvirt, /var/lib/libvirt, /run/libvirt and others. Each
// Hypervisor therefore has a mount namespace, in which subfolders of its own folder are mounted at these paths. If one
// of these paths does not exist, an empty folder is created on the system.
//
// Each Hypervisor also has a PID namespace, whose first process is the keeper. libvirtd, dnsmasq and every QEMU run in
// both namespaces. When the process that started the Hypervisor ends, the keeper ends too. The kernel then ends all
// processes of the PID namespace. Only a bridge may remain after a test; the next Hypervisor with the same bridge
// removes it.
//
// A Hypervisor uses the network namespace of the system. Guests can connect to servers at the address of the bridge,
// and the system can connect to the addresses of the guests. Locks on files reserve bridges and subnets, so several
// Hypervisors can run at the same time. Nothing else in the network of the system changes. The network has libvirt's
// forward mode "open", which does not set up a packet filter. libvirt also sets net.ipv4.ip_forward. In the mount
// namespace of the Hypervisor, another file replaces this setting, so the system does not change.
//
// # Faults
//
// The method Kill simulates a crash of libvirtd, and Launch starts it again. Domains continue to run meanwhile. Pause
// makes libvirtd hang. KillGuest kills the QEMU of a domain.
package libvirt
