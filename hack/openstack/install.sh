#!/bin/sh
# Unpacks the OpenStack of Debian 12 (keystone, nova, placement, glance, neutron, cinder, their client, MariaDB and RabbitMQ)
# into
#
#   ${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/openstack/<hash>/root
#
# where <hash> is a hash of this script. The versions of the packages depend on the apt sources of this machine. The last line
# of the output is that folder.
#
# The script downloads and unpacks packages without installing them. So no file of the system changes, no service starts, no
# package is upgraded, and the script needs no root. It only needs the package lists of apt, and updates them if it is root.
#
# You can interrupt the script, run it several times in parallel, and delete the folder at any time.
set -eu

say() { echo "openstack: $*" >&2; }
die() { echo "openstack: $*" >&2; exit 1; }

# The programs. Their dependencies are unpacked too.
wanted="python3-keystone python3-nova python3-placement python3-glance python3-neutron python3-cinder
	python3-openstackclient python3-pymysql python3-waitress mariadb-server rabbitmq-server"

# Packages that contain the paste.ini files of the programs. Their other files start services.
extra="nova-common nova-api placement-common placement-api glance-common glance-api neutron-common neutron-server
	keystone cinder-common cinder-api"

# Dependencies that the programs never load, or that every Debian has.
dropped='^(perl|libperl|libdbi-perl|libconfig-inifiles-perl|(lib|libpam-|libnss-)?systemd|udev$|libudev|sudo$|rsync$'
dropped="$dropped|gawk|logrotate|open-iscsi|libisns|libopeniscsiusr|graphviz|lib(gvc|gvpr|ann|cdt|cgraph|gts|pathplan)"
dropped="$dropped|liblab-|sphinx-common|python3-(sphinx|alabaster|snowball|mypy|rados|rbd|rgw|ceph|numpy|botocore)"
dropped="$dropped|python3-(boto3|s3transfer|grpcio|docutils)|docutils|lib(rados|rbd|cephfs|rgw|lapack|blas)"
dropped="$dropped|libgfortran|ieee-data|erlang-snmp|mariadb-client$|conntrack|ipset|libipset|libibverbs|librdmacm"
dropped="$dropped|socat)"

here=$(cd "$(dirname "$0")" && pwd)
hash=$(sha256sum <"$here/install.sh" | cut -c1-12)
dir=${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/openstack/$hash
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

# The folder gets its name when it is complete.
if [ -d "$dir/root" ]; then
	echo "$dir/root"
	exit
fi
command -v flock >/dev/null || die "the command flock is needed; install util-linux"
exec 9>"$dir/.lock"
if ! flock -n 9; then
	say "another process is unpacking OpenStack; waiting for it to finish"
	flock 9
fi
if [ -d "$dir/root" ]; then
	echo "$dir/root"
	exit
fi

# shellcheck source=/dev/null
release=$(. /etc/os-release 2>/dev/null && echo "${ID:-} ${VERSION_ID:-}") || release=
[ "$release" = "debian 12" ] ||
	die "this OpenStack needs Debian 12, but this system is ${release:-unknown}: use a Debian 12 container"
for command in apt-get dpkg-deb tar xargs; do
	command -v "$command" >/dev/null || die "the command $command is needed and is not in PATH"
done
case $(/usr/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) in
3.11) ;;
*) die "Debian's python3 is missing at /usr/bin/python3; run: apt-get install python3" ;;
esac

# resolve prints the packages that are not installed on this machine.
resolve() {
	# shellcheck disable=SC2086 # a list
	apt-get install --simulate --no-install-recommends --no-remove $wanted 2>"$dir/apt.log" |
		sed -n 's/^Inst \([^ :]*\).*/\1/p'
}
packages=$(resolve)
if [ -z "$packages" ] || ! apt-cache show nova-common >/dev/null 2>&1; then
	[ "$(id -u)" = 0 ] || die "apt knows no packages of OpenStack; run as root: apt-get update"
	say "apt-get update"
	apt-get update >"$dir/apt.log" 2>&1 || {
		cat "$dir/apt.log" >&2
		die "apt-get update failed: check whether this machine can reach the package servers of Debian"
	}
	packages=$(resolve)
fi
# Packages that are installed must be unpacked too.
names=$(echo "$packages" | grep -v -E "$dropped" || true)
for name in $wanted; do
	echo "$names" | grep -q -x "$name" || names="$names $name"
done

begun=$(date +%s)
tmp=$dir/.tmp
rm -rf "$tmp"
mkdir -p "$tmp/debs" "$tmp/root"
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say "downloading $(echo "$names $extra" | wc -w) packages"
(
	cd "$tmp/debs"
	# shellcheck disable=SC2086 # lists
	apt-get download -o APT::Sandbox::User="$(id -un)" $names $extra >"$dir/apt.log" 2>&1
) || {
	cat "$dir/apt.log" >&2
	die "cannot download the packages of OpenStack: if the package lists are old, run apt-get update"
}

say "unpacking"
unpack='dpkg-deb --fsys-tarfile "$1" | tar -x -C "$0" --no-same-owner --exclude=./usr/share/doc \
	--exclude=./usr/share/man --exclude=./usr/share/locale --exclude=./lib/systemd --exclude="*/tests"'
find "$tmp/debs" -name '*.deb' -print0 | xargs -0 -n1 -P"$(nproc)" sh -c "$unpack" "$tmp/root" ||
	die "unpacking failed: check whether the disk is full"

say "compiling"
# Files that do not compile are for another version of Python, and are never loaded.
/usr/bin/python3 -m compileall -q -j "$(nproc)" "$tmp/root/usr/lib/python3/dist-packages" \
	-s "$tmp/root" -p "$dir/root" >"$dir/compile.log" 2>&1 || true

mv "$tmp/root" "$dir/root"
say "ready in $dir/root after $(($(date +%s) - begun)) s"
echo "$dir/root"
