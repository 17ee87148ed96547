#!/bin/sh
# Installs the Debian packages with the programs that package libvirt runs, if a program is missing: the libvirt daemon
# with its drivers for QEMU, networks and storage, virsh, QEMU for x86, and dnsmasq. Needs root. The packages do not
# start services.
#
#   install.sh
set -eu

say() { echo "libvirt: $*" >&2; }
die() { echo "libvirt: $*" >&2; exit 1; }

[ "$(uname -s)" = Linux ] || die "libvirt with QEMU needs Linux"

drivers=/usr/lib/$(uname -m)-linux-gnu/libvirt/connection-driver
missing=
need() { # PACKAGE FILE...
	package=$1
	shift
	for file in "$@"; do
		command -v "$file" >/dev/null || [ -x "/usr/sbin/$file" ] || [ -r "$file" ] || missing="$missing $package"
	done
}
need libvirt-daemon libvirtd "$drivers/libvirt_driver_network.so" "$drivers/libvirt_driver_storage.so"
need libvirt-daemon-driver-qemu "$drivers/libvirt_driver_qemu.so"
need libvirt-clients virsh
need qemu-system-x86 qemu-system-x86_64
need qemu-utils qemu-img
need dnsmasq-base dnsmasq
need iproute2 ip
need mount mount
need util-linux nsenter unshare
if [ -n "$missing" ]; then
	# Name each package once, even if several of its files are missing.
	missing=$(echo "$missing" | tr ' ' '\n' | sort -u | tr '\n' ' ')
	command -v apt-get >/dev/null || die "install the equivalents of Debian's packages $missing"
	[ "$(id -u)" = 0 ] || die "install as root: apt-get install --no-install-recommends $missing"
	say "installing $missing"
	export DEBIAN_FRONTEND=noninteractive
	# apt fails while another process installs packages, so wait for the lock. It is the lock of hack/debian.sh, which is not
	# available if this script is embedded in a program.
	exec 9>/run/machinist-debian.lock
	flock 9
	# shellcheck disable=SC2086 # a list
	{ apt-get update -q && apt-get -o DPkg::Lock::Timeout=300 install -qy --no-install-recommends $missing; } >&2 ||
		die "the installation of packages failed"
fi
[ "$(id -u)" = 0 ] || die "libvirtd needs root here, for bridges and namespaces"
