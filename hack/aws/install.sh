#!/bin/sh
# Unpacks Debian's packages python3-botocore, which contains the API that AWS publishes, and awscli, into
#
#   ${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/aws/<hash>/root
#
# where <hash> is a hash of this script. The last line of the output is that folder.
#
# The script downloads and unpacks the packages without installing them. So no file of the system changes, and the script
# needs no root. It only needs the package lists of apt, and updates them if it is root.
#
# You can interrupt the script, run it several times in parallel, and delete the folder at any time.
set -eu

say() { echo "aws: $*" >&2; }
die() { echo "aws: $*" >&2; exit 1; }

here=$(cd "$(dirname "$0")" && pwd)
hash=$(sha256sum <"$here/install.sh" | cut -c1-12)
dir=${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/aws/$hash
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)

# The folder gets its name when it is complete.
if [ -d "$dir/root" ]; then
	echo "$dir/root"
	exit
fi
command -v flock >/dev/null || die "the command flock is needed; install util-linux"
exec 9>"$dir/.lock"
flock 9
if [ -d "$dir/root" ]; then
	echo "$dir/root"
	exit
fi
for command in apt-get dpkg-deb; do
	command -v "$command" >/dev/null || die "the command $command is needed and is not in PATH; use a Debian container"
done
# Dependencies of awscli that are not installed on this machine.
resolve() {
	apt-get install --simulate --no-install-recommends --no-remove awscli 2>"$dir/apt.log" |
		sed -n 's/^Inst \([^ :]*\).*/\1/p'
}
if ! apt-cache show python3-botocore awscli >/dev/null 2>&1; then
	[ "$(id -u)" = 0 ] || die "apt does not know the packages python3-botocore and awscli; run as root: apt-get update"
	say "apt-get update"
	apt-get update >"$dir/apt.log" 2>&1 || {
		cat "$dir/apt.log" >&2
		die "apt-get update failed: check whether this machine can reach the package servers of Debian"
	}
fi
names=$(resolve | grep -v -x -e awscli -e python3-botocore || true)

tmp=$dir/.tmp
rm -rf "$tmp"
mkdir -p "$tmp/deb" "$tmp/root"
trap 'rm -rf "$tmp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

say "downloading python3-botocore, awscli and $(echo "$names" | wc -w) dependencies"
(
	cd "$tmp/deb"
	# shellcheck disable=SC2086 # a list
	apt-get download -o APT::Sandbox::User="$(id -un)" python3-botocore awscli $names >"$dir/apt.log" 2>&1
) || {
	cat "$dir/apt.log" >&2
	die "cannot download the packages: if the package lists are old, run apt-get update"
}
data=./usr/lib/python3/dist-packages/botocore/data
for deb in "$tmp"/deb/*.deb; do
	case $deb in
	# All other APIs are not needed.
	*/python3-botocore_*) set -- "$data/ec2" "$data/sqs" "$data/sts" ;;
	*) set -- --exclude=./usr/share/doc --exclude=./usr/share/man --exclude='*/examples' ;;
	esac
	dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$tmp/root" --no-same-owner "$@" ||
		die "unpacking failed: check whether the disk is full"
done
mv "$tmp/root" "$dir/root"
say "ready in $dir/root"
echo "$dir/root"
