#!/bin/sh
# Installs packages of Debian, as root, after it has read what Debian has; without packages it only reads that. Several may
# be at it at once: apt holds its lists for one at a time, and turns others away, so here they wait for each other.
#
#   debian.sh [PACKAGE...]
set -eu
die() { echo "debian: $*" >&2; exit 1; }

command -v apt-get >/dev/null || die "apt-get is missing${*:+: install the counterparts of Debian's packages $*}"
[ "$(id -u)" = 0 ] || die "run as root: apt-get update${*:+ && apt-get install --no-install-recommends $*}"
export DEBIAN_FRONTEND=noninteractive
exec 9>/run/machinist-debian.lock
flock 9
apt() { apt-get -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3 -q "$@" 9>&- >&2; }
apt update || die "apt-get update failed: are Debian's packages within reach?"
if [ $# -gt 0 ]; then
	echo "debian: installing $*" >&2
	apt install -y --no-install-recommends "$@" || die "installing $* failed"
fi
