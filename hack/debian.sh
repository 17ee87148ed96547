#!/bin/sh
# Updates the package lists of Debian, and installs packages. Needs root. Several processes may call this script at the
# same time. They wait for each other, because apt fails while another process locks the package lists.
#
#   debian.sh [PACKAGE...]
set -eu
die() { echo "debian: $*" >&2; exit 1; }

command -v apt-get >/dev/null || die "apt-get is missing${*:+: install the equivalents of Debian's packages $*}"
[ "$(id -u)" = 0 ] || die "run as root: apt-get update${*:+ && apt-get install --no-install-recommends $*}"
export DEBIAN_FRONTEND=noninteractive
exec 9>/run/machinist-debian.lock
flock 9
apt() { apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -q "$@" 9>&- >&2; }
apt update || die "apt-get update failed: check whether this machine can reach the package servers of Debian"
if [ $# -gt 0 ]; then
	echo "debian: installing $*" >&2
	apt install -y --no-install-recommends "$@" || die "installing $* failed"
fi
