#!/bin/sh
# Prints the path of one of Prometheus' programs, prometheus or promtool: that in PATH or, where there is none, that of
# Debian's package, which is unpacked once and not installed, so that no service is started. To build it from source would
# take longer than all that is tested with it. It is kept in
# ${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/prometheus.
#
#   prometheus.sh PROGRAM
set -eu
here=$(cd "$(dirname "$0")" && pwd)
die() { echo "prometheus: $*" >&2; exit 1; }

if command -v "$1"; then
	exit
fi
cache=${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}
dir=$cache/prometheus
if [ ! -d "$dir" ]; then
	command -v apt-get >/dev/null || die "install Prometheus, so that $1 is in PATH"
	mkdir -p "$cache"
	new=$(mktemp -d "$cache/.prometheus.XXXXXX")
	trap 'rm -rf "$new"' EXIT
	fetch() { (cd "$new" && apt-get download -o APT::Sandbox::User="$(id -un)" prometheus) >"$new/apt.log" 2>&1; }
	fetch || { "$here/debian.sh" && fetch; } || { cat "$new/apt.log" >&2; die "apt does not serve the package prometheus"; }
	dpkg-deb -x "$new"/prometheus_*.deb "$new/root"
	mv -T "$new/root/usr/bin" "$dir" 2>/dev/null || [ -d "$dir" ] || die "cannot keep the programs in $cache"
fi
echo "$dir/$1"
