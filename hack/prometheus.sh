#!/bin/sh
# Prints the path of a program of Prometheus: prometheus or promtool. If the program is not in PATH, the first run
# unpacks the Debian package into ${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/prometheus. The script
# does not install the package, so that no service starts. It does not build Prometheus from source, because that would
# take longer than all tests that need the programs.
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
	command -v apt-get >/dev/null || die "install Prometheus, so that PATH contains $1"
	mkdir -p "$cache"
	new=$(mktemp -d "$cache/.prometheus.XXXXXX")
	trap 'rm -rf "$new"' EXIT
	fetch() { (cd "$new" && apt-get download -o APT::Sandbox::User="$(id -un)" prometheus) >"$new/apt.log" 2>&1; }
	fetch || { "$here/debian.sh" && fetch; } || { cat "$new/apt.log" >&2; die "apt cannot download the package prometheus"; }
	dpkg-deb -x "$new"/prometheus_*.deb "$new/root"
	mv -T "$new/root/usr/bin" "$dir" 2>/dev/null || [ -d "$dir" ] || die "cannot store the programs in $cache"
fi
echo "$dir/$1"
