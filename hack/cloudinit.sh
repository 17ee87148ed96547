#!/bin/sh
# Prints the path of cloud-init's JSON schema for cloud-configs. The first run unpacks the schema from the package of
# Debian or Ubuntu into ${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/cloud-init, and does not install
# the package. If apt or the package is not available, the script reports this, prints no path, and succeeds.
set -eu
dir=${MACHINIST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/machinist}/cloud-init
schema=$dir/schema.json
if [ ! -s "$schema" ]; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	(cd "$work" && apt-get download cloud-init && dpkg-deb -x cloud-init_*.deb root) >/dev/null 2>&1 || {
		echo "SKIPPED: cloud-configs were not checked against the schema of cloud-init: apt cannot download cloud-init" >&2
		exit 0
	}
	mkdir -p "$dir"
	cp "$work/root/usr/lib/python3/dist-packages/cloudinit/config/schemas/schema-cloud-config-v1.json" "$dir/.schema.$$"
	mv "$dir/.schema.$$" "$schema"
fi
echo "$schema"
