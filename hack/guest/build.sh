#!/bin/sh
# Builds the disk image that virtual machines of tests and of the demo boot, from Debian packages and the programs of
# hack/node:
#
#   ${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/guest/<hash of the inputs>/disk.qcow2
#
# and points the link "current" next to that folder to it. The image contains systemd, cloud-init with the data source
# NoCloud, and containerd with two images (registry.test/pause:1 and registry.test/web:1). It contains no kubelet, because
# user data installs it. The image boots with BIOS and prints its journal on the serial port. Its root file system grows with
# the disk.
#
# The packages come from the Debian sources of apt on this machine. Run this script as root. Interrupting it is safe.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/guest
release=bookworm
# Free space in the root file system, in MiB. A larger disk adds more.
spare_mib=256

say() { echo "guest: $*"; }
die() { echo "guest: $*" >&2; exit 1; }

[ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] || die "the image can only be built on Linux on x86-64"
command -v apt-get >/dev/null || die "the image can only be built on Debian: apt-get is missing"
[ "$(id -u)" = 0 ] || die "run this script as root: it creates a root file system"

begun=$(date +%s)
need() { # PACKAGE FILE
	[ -e "$2" ] || missing="${missing:-} $1"
}
missing=
need mmdebstrap /usr/bin/mmdebstrap
need e2fsprogs /sbin/mke2fs
need mtools /usr/bin/mcopy
need syslinux /usr/bin/syslinux
need syslinux-common /usr/lib/syslinux/mbr/gptmbr.bin
need fdisk /sbin/sfdisk
need dosfstools /sbin/mkfs.vfat
need qemu-utils /usr/bin/qemu-img
need busybox-static /bin/busybox
need kmod /sbin/modprobe
need cpio /usr/bin/cpio
if [ -n "$missing" ]; then
	# shellcheck disable=SC2086 # one word each
	"$here/../debian.sh" $missing
fi

mkdir -p "$cache/packages"
cache=$(cd "$cache" && pwd)
"$here/../node/build.sh"
node=$(dirname "$cache")/node
ctr=$("$here/../tool.sh" node github.com/containerd/containerd/v2/cmd/ctr)
web=$("$here/../tool.sh" node ./web)

# sources prints the Debian sources of apt on this machine, each as "URI SUITE COMPONENT".
sources() {
	apt-get indextargets --format '$(ORIGIN) $(CODENAME) $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' |
		sed -n "s/^Debian $release[a-z-]* //p" | sort -u
}
if [ -z "$(sources)" ]; then
	"$here/../debian.sh"
fi
[ -n "$(sources)" ] || die "this machine's apt has no source of Debian $release"

hash=$(cd "$here" && { find . -type f | LC_ALL=C sort | xargs sha256sum
	sha256sum <"$node/containerd"; sha256sum <"$node/containerd-shim-runc-v2"; sha256sum <"$ctr"; sha256sum <"$web"
	sha256sum <"$node/pause"; sources; } | sha256sum | cut -c1-12)
dir=$cache/$hash
mkdir -p "$dir"
exec 9>"$cache/.lock"
if ! flock -n 9; then
	say "another build is running; waiting for it to finish"
	flock 9
fi

point() { # ln -sf would remove the old link first.
	ln -s "$hash" "$cache/.current.$$"
	mv -fT "$cache/.current.$$" "$cache/current"
}
if [ -e "$dir/disk.qcow2" ]; then
	point
	say "the image is ready in $dir"
	exit
fi

work=$(mktemp -d "$cache/.work.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
root=$work/root

# step NAME COMMAND... prints the output of a command only if the command fails.
step() {
	name=$1 step_begun=$(date +%s)
	shift
	# Run in the background: on the left of ||, the shell would ignore set -e and continue after a failed command.
	"$@" >"$work/log" 2>&1 9>&- &
	wait $! || {
		cat "$work/log" >&2
		die "$name failed"
	}
	say "$name: $(($(date +%s) - step_begun)) s"
}

# bootstrap keeps the downloaded packages for later builds.
bootstrap() {
	keyring=/usr/share/keyrings/debian-archive-keyring.gpg
	sources | sed "s|^|deb [signed-by=$keyring] |" >"$work/sources.list"
	include=$(sed '/^#/d' "$here/packages" | paste -sd ,)
	# dpkg need not sync, because an interrupted build is discarded.
	mmdebstrap --mode=root --variant=minbase --include="$include" \
		--dpkgopt=force-unsafe-io --aptopt='Acquire::Languages "none"' \
		--dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
		--skip=download/empty --skip=essential/unlink --skip=cleanup/apt \
		--setup-hook='mkdir -p "$1/var/cache/apt/archives"' \
		--setup-hook="sync-in '$cache/packages' /var/cache/apt/archives" \
		--customize-hook="sync-out /var/cache/apt/archives '$cache/packages'" \
		"$release" "$root" "$work/sources.list"
	rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$cache"/packages/partial "$cache"/packages/lock
}

# kernel unpacks the kernel without installing it, because nothing in the image updates the initial RAM file system.
kernel() {
	name=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[^ ]*\)$/\1/p' | head -n 1)
	[ -n "$name" ] || die "apt knows no linux-image-cloud-amd64"
	(cd "$cache/packages" && { ls "$name"_*.deb >/dev/null 2>&1 || apt-get download "$name"; })
	dpkg-deb -x "$(find "$cache/packages" -name "${name}_*.deb" | LC_ALL=C sort | tail -n 1)" "$work/kernel"
	mv "$work/kernel/lib/modules" "$root/usr/lib/modules"
	cp "$work"/kernel/boot/config-* "$root/boot/" # kubeadm reads this file
	version=$(ls "$root/usr/lib/modules")
	depmod -b "$root" "$version"
}

initrd() {
	initial=$work/initial
	mkdir -p "$initial/bin" "$initial/dev" "$initial/proc" "$initial/sys" "$initial/root" "$initial/modules"
	cp /bin/busybox "$initial/bin/busybox"
	cp "$here/init" "$initial/init"
	chmod 0755 "$initial/init"
	version=$(ls "$root/usr/lib/modules")
	for module in virtio_pci virtio_blk virtio_scsi sd_mod; do
		modprobe -d "$root" -S "$version" --show-depends "$module"
	done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' >"$work/modules"
	while read -r path; do
		cp "$path" "$initial/modules/"
		basename "$path"
	done <"$work/modules" >"$initial/modules/order"
	(cd "$initial" && find . | cpio --quiet -o -H newc) >"$work/initrd"
}

# archive FOLDER FILE packs an OCI layout into an archive that ctr can import.
archive() { tar -C "$1" --owner=0 --group=0 -cf "$2" .; }

install_files() {
	cp -r "$here/files/." "$root/"
	cp "$node/containerd" "$node/containerd-shim-runc-v2" "$ctr" "$root/usr/local/bin/"
	mkdir -p "$root/usr/local/share/images"
	"$node/layout" registry.test/pause:1 "$work/pause" "$(readlink -f "$node/pause"):/pause"
	"$node/layout" registry.test/web:1 "$work/web" "$(readlink -f "$web"):/web"
	archive "$work/pause" "$root/usr/local/share/images/pause.tar"
	archive "$work/web" "$root/usr/local/share/images/web.tar"
	# Each machine generates its own ID.
	: >"$root/etc/machine-id"
	echo guest >"$root/etc/hostname"
	printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"
	ln -sf ../run/systemd/resolve/stub-resolv.conf "$root/etc/resolv.conf"
	chroot "$root" systemctl enable systemd-networkd systemd-resolved containerd preload-images
	chroot "$root" systemctl mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
		e2scrub_reap.service fstrim.timer systemd-timesyncd.service getty.target systemd-pstore.service \
		systemd-update-utmp.service systemd-update-utmp-runlevel.service modprobe@drm.service \
		cloud-init-hotplugd.socket systemd-binfmt.service systemd-networkd-persistent-storage.service
	rm -rf "$root"/var/log/* "$root"/tmp/*
}

# The first partition contains the boot loader. The second contains the root file system and can grow.
boot_mib=32
disk() {
	mkfs_size=$(($(du -sm --apparent-size "$root" | cut -f1) * 11 / 10 + spare_mib))
	truncate -s "${mkfs_size}M" "$work/root.img"
	mke2fs -q -t ext4 -L root -m 0 -E lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0 -d "$root" "$work/root.img"
	mkfs.vfat -C -n boot "$work/boot.img" $((boot_mib * 1024))
	syslinux --install "$work/boot.img"
	cat >"$work/syslinux.cfg" <<-END
		default linux
		prompt 0
		timeout 0
		label linux
		  kernel /vmlinuz
		  append initrd=/initrd $(cat "$here/cmdline")
	END
	mcopy -i "$work/boot.img" "$work/syslinux.cfg" ::/syslinux.cfg
	mcopy -i "$work/boot.img" "$work"/kernel/boot/vmlinuz-* ::/vmlinuz
	mcopy -i "$work/boot.img" "$work/initrd" ::/initrd

	truncate -s $((1 + boot_mib + mkfs_size + 1))M "$work/disk.img"
	sfdisk -q "$work/disk.img" <<-END
		label: gpt
		start=1MiB, size=${boot_mib}MiB, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, attrs=LegacyBIOSBootable
		start=$((1 + boot_mib))MiB, size=${mkfs_size}MiB, type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709
	END
	dd if=/usr/lib/syslinux/mbr/gptmbr.bin of="$work/disk.img" bs=440 count=1 conv=notrunc
	dd if="$work/boot.img" of="$work/disk.img" bs=1M seek=1 conv=notrunc,sparse
	dd if="$work/root.img" of="$work/disk.img" bs=1M seek=$((1 + boot_mib)) conv=notrunc,sparse
	qemu-img convert -O qcow2 "$work/disk.img" "$work/disk.qcow2"
}

step "root file system" bootstrap
step kernel kernel
step "initial RAM file system" initrd
step files install_files
step disk disk
mv "$work/disk.qcow2" "$dir/disk.qcow2"
point
say "the image of $(($(stat -c %s "$dir/disk.qcow2") >> 20)) MiB is ready in $dir after $(($(date +%s) - begun)) s"
