#!/bin/sh
# Prints the path of cloud-init's own schema of cloud-configs, which is unpacked once from the system's Debian or Ubuntu
# package into ${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/cloud-init. Nothing is installed. Where there
# is no apt or no package it prints nothing, and says so.
set -eu
dir=${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/cloud-init
schema=$dir/schema.json
if [ ! -s "$schema" ]; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	(cd "$work" && apt-get download cloud-init && dpkg-deb -x cloud-init_*.deb root) >/dev/null 2>&1 || {
		echo "SKIPPED: cloud-configs are not checked against cloud-init's schema: apt does not serve cloud-init" >&2
		exit 0
	}
	mkdir -p "$dir"
	cp "$work/root/usr/lib/python3/dist-packages/cloudinit/config/schemas/schema-cloud-config-v1.json" "$dir/.schema.$$"
	mv "$dir/.schema.$$" "$schema"
fi
echo "$schema"
